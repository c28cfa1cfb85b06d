"""The live page's pages, rendered from what folders hold with the same parts as reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, UndefinedError
from markupsafe import Markup, escape

from tacit.report import one_shot, svg
from tacit.report.document import Measured
from tacit.report.measures import MEASURES, Judged
from tacit.report.plots import Mark, interval, scale
from tacit.report.rendering import environment
from tacit.report.run import RunReader
from tacit.report.web import words
from tacit.report.web.charts import over_steps, over_time
from tacit.report.words import count, decimals, spelled

Card = Mapping[str, Any]

_POINTS = 600  # of a curve
_ON = {
    "live": "at a single look", "batches": "on batches", "visits": "on all visits of an example",
    "report": "in the report",
}  # fmt: skip


@cache
def _templates() -> Environment:
    made = environment()
    made.filters["coded"] = _coded
    made.globals.update(
        words=words, decimals=decimals, spelled=spelled, figure=_figure, spark=_spark,
    )  # fmt: skip
    return made


def _page(name: str, *, title: str, up: str = "", **content: Any) -> bytes:
    template = _templates().get_template(f"web/templates/{name}.html.j2")
    try:
        text = template.render(title=title, up=up, **content)
    except UndefinedError as error:  # a file holds something else than what is written there
        raise LookupError(str(error)) from error
    return text.encode(errors="replace")  # a name on the disk may hold what is no letter


def themed(page: bytes, cookies: Mapping[str, str]) -> bytes:
    """A page in the theme that a cookie names, before anything is painted."""
    kept = theme(cookies).encode()
    return page.replace(b'<html lang="en">', b'<html lang="en" data-theme="%s">' % kept, 1) if kept else page


def theme(cookies: Mapping[str, str]) -> str:
    """The theme that a cookie names; empty for the system's."""
    kept = cookies.get("tacit-theme", "")
    return kept if kept in ("light", "dark") else ""


def overview(cards: Sequence[Card]) -> bytes:
    """All runs as cards."""
    training, wrong = sum(words.state(card).word == "Training" for card in cards), sum(map(words.over, cards))
    parts = [count(len(cards), "run")]
    parts += [f"{training:,} training"] if training else []
    parts += [f"{wrong:,} over the limit"] if wrong else []
    return _page("overview", title="Runs", cards=cards, sum=" · ".join(parts))


def run(reader: RunReader) -> bytes:
    """A run: its state in a sentence, then everything that it wrote down."""
    detail = reader.detail(_POINTS)
    measure, worst = MEASURES[detail["measure"]], detail["worst"]
    limits = [] if detail["limit"] is None else [Mark("limit", detail["limit"], "limit")]
    shared: dict[str, Any] = {
        "title": detail["name"], "up": "/", "run": detail, "state": words.state(detail),
        "verdict": words.verdict(detail), "over": words.over(detail), "measure": measure,
        "scale": scale(measure, _judged(worst), limits, title="On a scale from nothing to everything"),
        "on": _ON, "decisions": _decisions(detail), "events": list(reversed(detail["events"])),
    }  # fmt: skip
    if detail["exchange"] is not None:
        report = reader.document if reader.document is not None and reader.document.exchange is not None else None
        content = {} if report is None else one_shot.content(report)
        exchange = detail["exchange"]
        return _page("exchange", report=report, timeline=_timeline(exchange["timeline"]), **{**content, **shared})
    return _page(
        "run", charts=over_steps(detail), pace=over_time(detail), stalls=_longest(detail["pace"]["stalls"]),
        grid=None if detail["matrix"] is None else _grid(detail["matrix"], detail["measure"], detail["limit"]),
        **shared,
    )  # fmt: skip


def refusal(status: int, text: str) -> bytes:
    """An error as a page."""
    return _page("refusal", title="Not here" if status == 404 else "Not shown", up="/", text=text)


# --- parts of pages --------------------------------------------------------------------------------------------------


def _coded(text: object) -> Markup:
    """Text whose commands stand between backticks."""
    parts = str(text).split("`")
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def _judged(worst: Mapping[str, Any] | None) -> Judged | None:
    if worst is None:
        return None
    low, high = (worst["value"] if worst[end] is None else worst[end] for end in ("low", "high"))
    return Judged(worst["value"], low, high)


def _figure(card: Card) -> Markup | str:
    """The worst attack on its scale, small enough for a card."""
    found = _judged(card["worst"])
    return "" if found is None else interval(str(card["name"]), MEASURES[card["measure"]], found, card["limit"])


def _spark(card: Card) -> Markup | str:
    """The worst attack over time, as a line without axes."""
    spark, bound = card["spark"], card["limit"]
    points = [(x, y) for x, y in zip(spark["x"], spark["y"], strict=True) if y is not None]
    if len(points) < 2:
        return ""
    heights = [y for _, y in points] + ([] if bound is None else [bound])
    across, up = svg.Axis(points[0][0], points[-1][0]), svg.Axis(min(heights), max(heights))
    line = [(across.share(x), 0.1 + 0.8 * (1 - up.share(y))) for x, y in points]
    drawn = [svg.stretched(line, "series s1")]
    if bound is not None:
        level = 0.1 + 0.8 * (1 - up.share(bound))
        drawn.append(svg.line(0, level, 1, level, "limit"))
    return svg.el("svg", *drawn, class_="spark", aria_hidden="true")


def _decisions(detail: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Time, epoch, decision and reason, newest first."""
    return [
        (words.clock(one["time"]), f"{one['epoch']:,}", str(one["decision"]), str(one["reason"]))
        for one in reversed(detail["decisions"])
    ]


def _longest(stalls: Sequence[tuple[float, float, str]]) -> list[tuple[str, str, str]]:
    ordered = sorted(stalls, key=lambda stall: stall[0] - stall[1])[:8]
    return [(words.clock(since), words.duration(to - since), why) for since, to, why in ordered]


def _timeline(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Markup, str]]:
    """Each part, a bar over time, and how long it took; light bars are waiting or standing still."""
    ends = [end for row in rows for span in row["spans"] for end in span]
    axis = svg.Axis(min(ends, default=0.0), max(ends, default=0.0))
    shown = []
    for row in rows:
        bars = [
            svg.el("rect", x=svg.at(axis.share(since)), y=0, height=14, class_="still" if row["still"] else "span",
                   width=svg.at(max(0.005, axis.share(to) - axis.share(since)) if axis.high > axis.low else 1.0))
            for since, to in row["spans"]
        ]  # fmt: skip
        since, took = words.clock(row["spans"][0][0]), sum(to - since for since, to in row["spans"])
        bar = svg.picture(row["part"], f"from {since}, {words.duration(took)}", *bars, height=14, class_="track")
        shown.append((row["part"], bar, "under 1 s" if took < 1 else words.duration(took)))
    return shown


def _grid(found: Mapping[str, Any], measure: Measured, bound: float | None) -> dict[str, Any]:
    """A table of attacks by columns, those that reached most first."""

    def height(row: Mapping[str, Any]) -> float:
        return max((value for value in row["values"] if value is not None), default=-math.inf)

    lines = []
    for row in sorted(found["rows"], key=height, reverse=True):
        cells = []
        for value, low, high in zip(row["values"], row["low"], row["high"], strict=True):
            ends = "" if low is None or high is None or high <= low else f"{low:.2f} to {high:.2f}"
            tone = "" if value is None else f"h{round(10 * math.sqrt(MEASURES[measure].share(value)))}"
            cells.append((decimals(value), ends, tone, value is not None and bound is not None and value > bound))
        lines.append((row["attack"], row["on"], cells))
    return {"heads": found["columns"], "lines": lines}
