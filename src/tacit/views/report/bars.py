"""Pictures along one scale: where a figure lies between nothing and everything, and how often examples were visited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from tacit.views.report.measures import Judged, Measure
from tacit.views.report.svg import at, el, line, near, picture, text
from tacit.views.report.words import decimals

_MOST_BARS = 24
_LABELLED = 12  # bars that have room for their number


@dataclass(frozen=True)
class Mark:
    """A place on a scale with a name of its own."""

    name: str  # what it is
    value: float  # where it is
    kind: str = "other"  # "limit", or "other"


def scale(measure: Measure, figure: Judged | None, marks: Iterable[Mark] = (), *, title: str) -> Markup:
    """A scale from one end to the other with a figure, its interval and further marks, a limit among them."""
    marks = sorted(marks, key=lambda mark: mark.value)
    top = 16 * max(1, len(marks))  # each label has a line of its own, so that no two can meet
    height = top + 92
    axis, band = (top + 30) / height, [(top + 12) / height, (top + 48) / height]
    drawn = []
    for mark in marks:
        place = measure.share(mark.value)
        if mark.kind == "limit":
            size = {"width": at(1 - place), "height": at(band[1] - band[0])}
            drawn.append(el("rect", x=at(place), y=at(band[0]), class_="beyond", **size))
    drawn.append(line(0, axis, 1, axis, "axis"))
    for value in measure.marks:
        place = measure.share(value)
        drawn.append(line(place, axis - 6 / height, place, axis + 6 / height, "axis"))
        drawn.append(
            text(f"{value:.1f}", place, 1, "tick", dy=-22, anchor={0.0: "start", 1.0: "end"}.get(place, "middle"))
        )
    drawn += [
        text(measure.lowest, 0, 1, "tick", dy=-5, anchor="start"),
        text(measure.highest, 1, 1, "tick", dy=-5, anchor="end"),
    ]
    names = []  # above all lines
    for row, mark in enumerate(marks):
        place, below = measure.share(mark.value), 16 * (row + 1) + 2
        drawn.append(line(place, below / height, place, band[1], mark.kind))
        words = f"{mark.name} {decimals(mark.value)}"
        names.append(text(words, place, 0, f"{mark.kind} name", dy=below - 6, anchor=near(place)))
    drawn += names
    if figure is not None:
        drawn.append(line(measure.share(figure.low), axis, measure.share(figure.high), axis, "range"))
        drawn.append(el("circle", cx=at(measure.share(figure.value)), cy=at(axis), r=9, class_="dot"))
    shown = [f"{mark.name} {decimals(mark.value)}" for mark in marks]
    if figure is not None:
        shown.insert(0, f"{decimals(figure.value)}, between {decimals(figure.low)} and {decimals(figure.high)}")
    words = f"From {measure.chance:g}, {measure.lowest}, to 1, {measure.highest}: {'; '.join(shown)}."
    return picture(title, words, *drawn, height=height, class_="scale")


def interval(name: str, measure: Measure, figure: Judged, limit: float | None, *, over: bool | None = None) -> Markup:
    """One figure's interval on its scale, small enough for a line of a table."""
    if over is None:
        over = limit is not None and figure.high > limit
    drawn = [line(0, 0.5, 1, 0.5, "axis"), line(0, 0.2, 0, 0.8, "axis"), line(1, 0.2, 1, 0.8, "axis")]
    if limit is not None:
        drawn.append(line(measure.share(limit), 0, measure.share(limit), 1, "limit"))
    low, value, high = map(measure.share, (figure.low, figure.value, figure.high))
    drawn.append(line(low, 0.5, high, 0.5, "range over" if over else "range"))
    drawn.append(line(value, 0.12, value, 0.88, "estimate over" if over else "estimate"))
    bounds = f"between {decimals(figure.low)} and {decimals(figure.high)}"
    words = f"{decimals(figure.value)}, {bounds}{', over the limit' if over else ''}"
    return picture(name, words, *drawn, height=22, class_="interval")


def histogram(visits: Mapping[int, int]) -> Markup:
    """How many examples have been visited so often: a bar for each number of visits, or for a few of them together."""
    bars = _binned(visits)
    most = max(number for _, _, number in bars)
    drawn = [line(0, 1, 1, 1, "axis"), text("visits", 1, 1, "tick what", dy=40, anchor="end")]
    few = sum(number > 0 for *_, number in bars) <= _LABELLED
    labels = max(1, -(-len(bars) // _LABELLED))
    for place, (first, last, number) in enumerate(bars):
        left, middle, high = place / len(bars), (place + 0.5) / len(bars), number / most
        name = f"{first:,}" if first == last else f"{first:,}–{last:,}"
        bar = el(
            "rect", el("title", f"{name}: {number:,}"), x=at(left + 0.1 / len(bars)), y=at(1 - high),
            width=at(0.8 / len(bars)), height=at(high), class_="bar",
        )  # fmt: skip
        drawn.append(bar)
        if place % labels == 0:
            drawn.append(text(name, middle, 1, "tick", dy=18))
        if few and number:
            drawn.append(text(f"{number:,}", middle, 1 - high, "tick", dy=-6))
    words = "; ".join(f"{first} to {last}: {number:,}" for first, last, number in bars)
    return picture("Examples by how often each was visited", words, *drawn, height=160, class_="plot")


def _binned(visits: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """First and last number of visits, and examples, of each bar; empty places between them are bars as well."""
    low, high = min(visits), max(visits)
    wide = -(-(high - low + 1) // _MOST_BARS)
    bars = [0] * (-(-(high - low + 1) // wide))
    for times, examples in visits.items():
        bars[(times - low) // wide] += examples
    return [(low + wide * i, min(low + wide * (i + 1) - 1, high), number) for i, number in enumerate(bars)]
