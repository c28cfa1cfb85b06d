"""Pictures of the docs as SVG: they bring their own ground, and turn dark where the reader's system is dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tacit.report.svg import el, ticks

WIDTH = 760

_STYLE = """
svg { --ground: #ffffff; --ink: #24292f; --faint: #6e7781; --grid: #d8dee4; --zero: #1f6fb2; --one: #c4620a;
  --none: #333333; --iso: #a05a00; --max_norm: #2a8f57; --marvell: #1f6fb2; --matched: #b3261e; --one_visit: #d4776f;
  --response: #7a4fa3; --gaussian: #57606a; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #161b22; --ink: #e6edf3; --faint: #9da7b3; --grid: #30363d; --zero: #6cb6ff; --one: #f0a24a;
    --none: #e6edf3; --iso: #e3b341; --max_norm: #57c78a; --marvell: #6cb6ff; --matched: #ff7b72; --one_visit: #ffc0ba;
    --response: #c9a4f5; --gaussian: #9da7b3; }
}
text { font: 12px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: var(--ink); }
text.head { font-size: 13px; font-weight: 600; }
text.faint { fill: var(--faint); }
.ground { fill: var(--ground); }
.grid { stroke: var(--grid); stroke-width: 1; }
.box { fill: none; stroke: var(--faint); stroke-width: 1.3; }
.arrow { stroke: var(--ink); stroke-width: 1.6; fill: none; }
"""


def picture(title: str, told: str, height: int, inside: Iterable[Markup], width: int = WIDTH) -> str:
    """A whole file; `told` says what is to be seen, for those who can't see it."""
    made = el(
        "svg",
        el("title", title),
        el("desc", told),
        Markup(f"<style>{_STYLE}</style>"),
        el("rect", width=width, height=height, rx=8, class_="ground"),
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        role="img",
    )
    return str(made).replace("><", ">\n<") + "\n"


def words(said: str, x: float, y: float, class_: str = "", *, anchor: str = "start", fill: str | None = None) -> Markup:
    style = None if fill is None else f"fill: var(--{fill})"
    return el("text", said, x=_short(x), y=_short(y), class_=class_ or None, text_anchor=anchor, style=style)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Panel:
    """A part of a picture with two axes."""

    left: float
    top: float
    width: float
    height: float
    across: tuple[float, float]
    up: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.across
        return self.left + self.width * (min(max(value, low), high) - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.up
        return self.top + self.height * (1 - (min(max(value, low), high) - low) / (high - low))

    def below(self, marks: Sequence[float], spelled: str = "{:g}") -> list[Markup]:
        """Marks of the axis across."""
        base = self.top + self.height
        return [
            _line(self.left, base, self.left + self.width, base),
            *(words(spelled.format(mark), self.x(mark), base + 15, "faint", anchor="middle") for mark in marks),
        ]

    def beside(self, marks: Sequence[float], spelled: str = "{:.2f}") -> list[Markup]:
        """Marks of the axis up, each with a line across."""
        drawn = []
        for mark in marks:
            drawn.append(_line(self.left, self.y(mark), self.left + self.width, self.y(mark)))
            drawn.append(words(spelled.format(mark), self.left - 6, self.y(mark) + 4, "faint", anchor="end"))
        return drawn


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return el("line", x1=_short(x1), y1=_short(y1), x2=_short(x2), y2=_short(y2), class_="grid")


def path(points: Iterable[tuple[float, float]], style: str, *, closed: bool = False) -> Markup:
    places = "L".join(f"{_short(x)} {_short(y)}" for x, y in points)
    return el("path", d=f"M{places}{'Z' if closed else ''}", style=style)


# --- histograms ------------------------------------------------------------------------------------------------------


def histograms(
    runs: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    quantity: str,
    attack: str,
    title: str,
    axis: str,
    marks: Mapping[float, str],
) -> str:
    """Two by two panels, one for each protection: how a quantity lies in each class, and what the attack makes of it.

    Args:
        runs: what each panel is called, and the run that it shows.
        quantity: the name of the histogram.
        attack: which looks at it.
        title: of the picture.
        axis: what the axis across is.
        marks: of that axis, with their spelling.
    """
    drawn, told = _legend(title), []
    for place, (name, run) in enumerate(runs):
        counted = run["histograms"][quantity]
        peak = max(*counted["negative"], *counted["positive"])
        left, top = 24 + place % 2 * 372, 78 + place // 2 * 166
        panel = Panel(left, top, 340, 106, tuple(counted["range"]), (0.0, peak * 1.05))
        drawn += panel.below([])
        for at, said in marks.items():
            anchor = "start" if at == panel.across[0] else "end" if at == panel.across[1] else "middle"
            drawn.append(words(said, panel.x(at), top + 121, "faint", anchor=anchor))
        for side, colour in (("negative", "zero"), ("positive", "one")):
            drawn.append(_area(panel, counted[side], colour))
        leak = run["leaks"][attack]
        drawn.append(words(name, left, top - 8, "head"))
        drawn.append(words(f"{attack} attack: {leak:.2f}", left + 340, top - 8, anchor="end"))
        told.append(f"{name}: the {attack} attack reaches {leak:.2f}")
    drawn.append(words(axis, WIDTH - 24, 392, "faint", anchor="end"))
    return picture(title, "; ".join(told), 404, drawn)


def _legend(title: str) -> list[Markup]:
    drawn = [words(title, 24, 26, "head")]
    for at, colour, said in ((24, "zero", "negative: not late"), (164, "one", "positive: late")):
        drawn.append(el("rect", x=at, y=37, width=12, height=12, style=f"fill: var(--{colour}); fill-opacity: .55"))
        drawn.append(words(said, at + 18, 47))
    return drawn


def _area(panel: Panel, shares: Sequence[float], colour: str) -> Markup:
    """Stairs over the bins, closed at the ground."""
    low, high = panel.across
    step = (high - low) / len(shares)
    points = [(panel.x(low), panel.y(0.0))]
    for place, share in enumerate(shares):
        points += [(panel.x(low + (place + side) * step), panel.y(share)) for side in (0, 1)]
    points.append((panel.x(high), panel.y(0.0)))
    style = f"fill: var(--{colour}); fill-opacity: .38; stroke: var(--{colour}); stroke-width: 1.3"
    return path(points, style, closed=True)


# --- lines -----------------------------------------------------------------------------------------------------------


def visits(runs: Sequence[tuple[str, Mapping[str, Any]]], limit: float) -> str:
    """What the best attack on means reaches, by the number of visits it has seen."""
    title = "What all visits of one flight tell together"
    count = len(runs[0][1]["visits"])
    panel = Panel(60, 56, 470, 250, (1, count), (0.5, 1.0))
    drawn = [words(title, 24, 26, "head"), words("leak AUC of the best attack on means", 24, 44, "faint")]
    drawn += panel.beside(ticks(0.5, 1.0, 5)) + panel.below(range(1, count + 1), "{:.0f}")
    drawn.append(words("visits so far", 530, 338, "faint", anchor="end"))
    y = panel.y(limit)
    drawn.append(el("path", d=f"M60 {y:.1f}H530", style="stroke: var(--ink); stroke-dasharray: 5 4"))
    drawn.append(words(f"what matched was set to: {limit:g}", 64, y + 14, "faint"))
    ends = []
    for name, run in runs:
        seen, colour = run["visits"], run["kind"]
        drawn.append(
            path(
                [(panel.x(n), panel.y(value)) for n, value in enumerate(seen, start=1)],
                f"fill: none; stroke: var(--{colour}); stroke-width: 2.4",
            )
        )
        drawn += [dot(panel.x(n), panel.y(value), colour) for n, value in enumerate(seen, start=1)]
        ends.append((panel.y(seen[-1]), f"{name}: {seen[-1]:.2f}", colour))
    drawn += [words(said, 540, y + 4, fill=colour) for y, said, colour in _apart(ends)]
    told = "; ".join(
        f"{name}: {run['visits'][0]:.2f} after 1, {run['visits'][-1]:.2f} after {count}" for name, run in runs
    )
    return picture(title, told, 352, drawn)


def dot(x: float, y: float, colour: str, *, hollow: bool = False) -> Markup:
    style = f"fill: var(--ground); stroke: var(--{colour}); stroke-width: 1.6" if hollow else f"fill: var(--{colour})"
    return el("circle", cx=_short(x), cy=_short(y), r=4, style=style)


def square(x: float, y: float, colour: str) -> Markup:
    return el("rect", x=_short(x - 4.5), y=_short(y - 4.5), width=9, height=9, style=f"fill: var(--{colour})")


def _apart(labels: Sequence[tuple[float, str, str]], least: float = 17.0) -> list[tuple[float, str, str]]:
    """Labels moved down as far as they would cover one another."""
    placed: list[tuple[float, str, str]] = []
    for y, said, colour in sorted(labels):
        placed.append((max(y, placed[-1][0] + least) if placed else y, said, colour))
    return placed


def tradeoff(curves: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]], limit: float, untrained: float) -> str:
    """What the model is worth against what the worst attack reached, a line for each protection.

    Args:
        curves: by kind, what it is called and its runs.
        limit: drawn upwards.
        untrained: what a model is worth whose bottom never learns; drawn across.
    """
    title = "What protection costs: left is private, up is useful"
    told = [f"a bottom that never learns: test AUC {untrained:.3f}"]
    worth = [one["test_auc"] for _, runs in curves.values() for run in runs for one in (run, run["slow"])]
    low = min(worth) - 0.01
    panel = Panel(60, 56, 500, 320, (0.5, 1.0), (low, max(worth) + 0.01))
    drawn = [words(title, 24, 26, "head"), words("test AUC of the model", 24, 44, "faint")]
    drawn += panel.beside(ticks(low, panel.up[1], 6)) + panel.below(ticks(0.5, 1.0, 5), "{:.1f}")
    drawn.append(words("leak AUC of the worst attack", 560, 410, "faint", anchor="end"))
    dashed = "stroke: var(--ink); stroke-dasharray: 5 4"
    drawn.append(el("path", d=f"M{panel.x(limit):.1f} 56V376", style=dashed))
    drawn.append(el("path", d=f"M60 {panel.y(untrained):.1f}H560", style=dashed))
    for place, (kind, (name, runs)) in enumerate(curves.items()):
        points = [_place(panel, run) for run in _by_strength(runs)]
        if len(points) > 1:
            drawn.append(path(points, f"fill: none; stroke: var(--{kind}); stroke-width: 1.8"))
        drawn += [dot(x, y, kind) for x, y in points]
        drawn += [dot(*_place(panel, run["slow"]), kind, hollow=True) for run in runs]
        drawn += [dot(584, 74 + 22 * place, kind), words(name, 596, 78 + 22 * place)]
        told += [f"{run['name']}: leak {run['worst']['value']:.2f}, test AUC {run['test_auc']:.3f}" for run in runs]
    drawn += [dot(584, 250, "ink", hollow=True), words("a bottom that learns slowly", 596, 254)]
    drawn += [el("path", d="M576 276H592", style=dashed), words("one that never learns:", 596, 280)]
    drawn.append(words(f"{untrained:.3f}, and no leak", 596, 297))
    return picture(title, "; ".join(told), 424, drawn)


def _place(panel: Panel, run: Mapping[str, Any]) -> tuple[float, float]:
    return panel.x(run["worst"]["value"]), panel.y(run["test_auc"])


def _by_strength(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(runs, key=lambda run: (run["rate"], run["noise"]))


# --- who sends what --------------------------------------------------------------------------------------------------


def overview() -> str:
    """The two halves of a split model, and what crosses between them."""
    title = "A model in two halves: what crosses the line"
    told = (
        "The airport turns its columns into an embedding and sends it; the airline predicts, compares with the label "
        "and sends one gradient for each flight back."
    )
    drawn = [words(title, 24, 26, "head")]
    for left, name, has in (
        (24, "the airport", ("schedule and weather", "no label")),
        (536, "the airline", ("its aircraft", "the label: late or not")),
    ):
        drawn.append(el("rect", x=left, y=48, width=200, height=150, rx=8, class_="box"))
        drawn.append(words(name, left + 16, 74, "head"))
        drawn += [words(said, left + 16, 98 + 18 * place) for place, said in enumerate(has)]
    for left, name in ((40, "bottom half of the model"), (552, "top half of the model")):
        drawn.append(el("rect", x=left, y=146, width=168, height=34, rx=5, class_="box"))
        drawn.append(words(name, left + 84, 167, anchor="middle"))
    for y, arrow, said, more in (
        (92, "M232 92H520M510 86L522 92L510 98", "an embedding of each flight", "128 numbers, made of its columns"),
        (156, "M528 156H240M250 150L238 156L250 162", "a gradient for each flight", "128 numbers, made of its label"),
    ):
        drawn.append(el("path", d=arrow, class_="arrow"))
        drawn.append(words(said, 380, y - 9, anchor="middle"))
        drawn.append(words(more, 380, y + 18, "faint", anchor="middle"))
    drawn.append(words("what an example's label is can be read off its gradient", 380, 222, "faint", anchor="middle"))
    return picture(title, told, 238, drawn)
