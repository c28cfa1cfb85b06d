"""Small pictures as text: elements that escape what they hold, and positions in percent.

A picture has a fixed height and the width of its place. Everything in it stands at percentages of the plot, so that it
fits a phone and a large screen with letters of one size. Curves can't be given in percent: they lie in an inner picture
of 100 by 100 that is stretched. Axis labels hang outside of the plot, in the padding that its figure has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

__all__ = ["at", "el", "line", "near", "picture", "stretched", "text", "ticks"]

Number = float | int | str


def el(tag: str, *inside: str | Markup, **attributes: Number | None) -> Markup:
    """An element; `class_` is the attribute class, other underscores are hyphens, None is left out."""
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{told}>{''.join(escape(one) for one in inside)}</{tag}>")  # both parts are escaped above


def picture(title: str, told: str, *inside: Markup, height: int, class_: str) -> Markup:
    """A picture that says what it shows to those who can't see it.

    Args:
        title: what it is.
        told: what is to be seen in it, in words.
        inside: its elements.
        height: of the plot, in pixels.
        class_: how it is styled.
    """
    return el(
        "svg", el("title", title), el("desc", told), *inside, role="img", width="100%", height=height, class_=class_
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
