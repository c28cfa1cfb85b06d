"""Small pictures as text: elements that escape what they hold, and positions in percent.

A picture has a fixed height and the width of its place. Everything in it stands at percentages of the plot, so that it
fits a phone and a large screen with letters of one size. Curves can't be given in percent: they lie in an inner picture
of 100 by 100 that is stretched. Axis labels hang outside of the plot, in the padding that its figure has.

The same plots make a page, which has `svg.css` among its styles, and files of their own, which bring it along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

Number = float | int | str


def el(tag: str, *inside: str | Markup, **attributes: Number | None) -> Markup:
    """An element; `class_` is the attribute class, other underscores are hyphens, None is left out."""
    spelled = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{spelled}>{''.join(escape(part) for part in inside)}</{tag}>")  # both parts are escaped above


def picture(title: str, words: str, *inside: Markup, height: int, class_: str) -> Markup:
    """A picture that says what it shows to those who can't see it."""
    return el(
        "svg", el("title", title), el("desc", words), *inside, role="img", width="100%", height=height, class_=class_
    )


def at(share: float) -> str:
    """A share of the width or height, as an attribute says it."""
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line between shares of the width and height."""
    return el("line", x1=at(x1), y1=at(y1), x2=at(x2), y2=at(y2), class_=class_)


def text(
    words: str, x: float, y: float, class_: str, *, dx: float = 0, dy: float = 0, anchor: str = "middle"
) -> Markup:
    """Words at a share of the width and height, moved by pixels."""
    return el("text", words, x=at(x), y=at(y), dx=dx or None, dy=dy or None, text_anchor=anchor, class_=class_)


def near(share: float) -> str:
    """The anchor that keeps a label inside of the picture: at its edges labels grow inwards."""
    return "start" if share < 0.12 else "end" if share > 0.88 else "middle"


def stretched(points: Iterable[tuple[float, float] | None], class_: str) -> Markup:
    """A curve through shares of the width and height; None is a gap."""
    path, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        x, y = (100 * min(max(share, 0.0), 1.0) for share in point)
        path.append(f"{pen}{x:.2f} {y:.2f}")
        pen = "L"
    inner = el("path", d="".join(path), class_=class_, vector_effect="non-scaling-stroke")
    return el("svg", inner, width="100%", height="100%", viewBox="0 0 100 100", preserveAspectRatio="none")


def ticks(low: float, high: float, most: int = 6) -> Sequence[float]:
    """Round numbers between two others, at most so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * place, 10) for place in range(first, last + 1)]


@dataclass(frozen=True)
class Axis:
    """The values between two ends of a plot."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def grid_across(up: Axis, marks: Sequence[float], spelled: str) -> list[Markup]:
    """A line and a label at each mark of the axis up."""
    drawn = []
    for mark in marks:
        y = 1 - up.share(mark)
        drawn += [line(0, y, 1, y, "grid"), text(spelled.format(mark), 0, y, "tick", dx=-8, dy=4, anchor="end")]
    return drawn


def labels_below(across: Axis, marks: Sequence[float], spelled: str) -> list[Markup]:
    """A label at each mark of the axis across."""
    places = [across.share(mark) for mark in marks]
    return [
        text(spelled.format(mark), place, 1, "tick", dy=20, anchor="end" if place > 0.97 else "middle")
        for mark, place in zip(marks, places, strict=True)
    ]


def limit_across(up: Axis, limit: float | None) -> list[Markup]:
    """A limit of the axis up; nothing where there is none."""
    if limit is None:
        return []
    y = 1 - up.share(limit)
    return [line(0, y, 1, y, "limit"), text(f"limit {limit:.3f}", 1, y, "limit name", dy=-6, anchor="end")]


def limit_up(across: Axis, limit: float | None) -> list[Markup]:
    """A limit of the axis across; nothing where there is none."""
    if limit is None:
        return []
    x = across.share(limit)
    return [line(x, 0, x, 1, "limit"), text(f"limit {limit:.3f}", x, 0, "limit name", dy=-6, anchor=near(x))]


def names(across: str, up: str) -> list[Markup]:
    """What the axes are, where no curve runs."""
    return [
        text(across, 1, 1, "tick what", dy=40, anchor="end"),
        text(up, 0, 0, "tick what", dx=-40, dy=-14, anchor="start"),
    ]


def standalone(title: str, plots: Sequence[Markup], key: Sequence[tuple[Markup, str]]) -> str:
    """Plots side by side as a file of its own, on its own ground, dark where the reader's system is dark."""
    wide, high, left = 520 if len(plots) == 1 else 380, 340, 64
    right = left + len(plots) * (wide + left)
    width, height = right + 210, max(high + 130, 24 * len(key) + 90)
    placed = [
        el("svg", plot, x=left + place * (wide + left), y=72, width=wide, height=high, overflow="visible")
        for place, plot in enumerate(plots)
    ]
    for row, (mark, name) in enumerate(key):
        drawn = el("svg", mark, x=right - 26, y=84 + 24 * row, overflow="visible")
        placed += [drawn, el("text", name, x=right - 6, y=88 + 24 * row)]
    made = el(
        "svg", el("title", title), Markup(f"<style>{_STYLES.read_text()}</style>"),
        el("rect", width=width, height=height, class_="ground"), el("text", title, x=24, y=30, class_="title"), *placed,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=width, height=height,
    )  # fmt: skip
    return str(made).replace("><", ">\n<") + "\n"


_STYLES = Path(__file__).with_name("svg.css")
