"""Pictures of what protection costs: what a model is worth against what the worst attack reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tacit.report import svg
from tacit.report.words import decimals

_COLOURS = 7


@dataclass(frozen=True)
class Dot:
    """One training, or one setting over all its trainings."""

    leak: float  # how much can be read
    worth: float  # of the model
    name: str = ""  # that stands beside it
    across: tuple[float, float] | None = None  # the interval of the leak, where it is drawn
    up: tuple[float, float] | None = None  # the interval of the worth, where it is drawn


@dataclass(frozen=True)
class Panel:
    """One of some pictures side by side, which share their families and what is upwards."""

    name: str  # of the leak
    families: Mapping[str, Sequence[Dot]]  # dots that belong together, from mild to strong
    leaks: svg.Axis  # the ends of the axis across
    limit: float | None = None  # on the leak, where there is one
    ring: tuple[Dot, bool] | None = None  # around the dot that was chosen, and whether it holds the limit


def tradeoff_file(title: str, panels: Sequence[Panel], *, worth: str, levels: Mapping[str, float] | None = None) -> str:
    """Settings of several kinds as a file: a line for each family, told apart by colour and dashes."""
    levels = levels or {}
    styles = _styles(panels)
    dots = [dot for panel in panels for family in panel.families.values() for dot in family]
    ends = [end for dot in dots if dot.up is not None for end in dot.up]
    up = _room([*(dot.worth for dot in dots), *levels.values(), *ends])
    key = [(_dash(f"series {style}") + _circle(style), name) for name, style in styles.items()]
    key += [(_dash("level"), f"{name}: {decimals(value)}") for name, value in levels.items()]
    key += [(_ring(panel.ring[1]), panel.ring[0].name) for panel in panels if panel.ring is not None]
    plots = [_panel(panel, up, styles, worth, list(levels.values())) for panel in panels]
    return svg.standalone(title, plots, key)


def _styles(panels: Sequence[Panel]) -> dict[str, str]:
    names = dict.fromkeys(name for panel in panels for name in panel.families)
    return {name: "bare" if name == "no protection" else f"s{place % _COLOURS + 1}" for place, name in enumerate(names)}


def _panel(panel: Panel, up: svg.Axis, styles: Mapping[str, str], worth: str, levels: Sequence[float]) -> Markup:
    across = panel.leaks
    drawn = svg.grid_across(up, svg.ticks(up.low, up.high, 6), "{:.3f}")
    drawn += [*svg.labels_below(across, svg.ticks(across.low, across.high, 6), "{:.1f}"), *svg.names(panel.name, worth)]
    if panel.limit is not None:
        x = across.share(panel.limit)
        drawn.append(svg.el("rect", x=svg.at(x), y="0%", width=svg.at(1 - x), height="100%", class_="beyond"))
    drawn += [svg.line(0, 1 - up.share(level), 1, 1 - up.share(level), "level") for level in levels]
    drawn += svg.limit_up(across, panel.limit)
    for name, family in panel.families.items():
        style = styles[name]
        places = [(across.share(dot.leak), 1 - up.share(dot.worth)) for dot in family]
        drawn.append(svg.stretched(places, f"series {style}"))
        for dot, (x, y) in zip(family, places, strict=True):
            if dot.across is not None:
                left, right = map(across.share, dot.across)
                drawn.append(svg.line(left, y, right, y, f"whisker {style}"))
            if dot.up is not None:
                below, above = map(up.share, dot.up)
                drawn.append(svg.line(x, 1 - below, x, 1 - above, f"whisker {style}"))
            drawn.append(svg.el("svg", _circle(style), x=svg.at(x), y=svg.at(y)))
            if dot.name:
                drawn.append(svg.text(dot.name, x, y, "tick", dx=9, dy=-7))
    if panel.ring is not None:
        dot, holds = panel.ring
        drawn.append(svg.el("svg", _ring(holds), x=svg.at(across.share(dot.leak)), y=svg.at(1 - up.share(dot.worth))))
    spelled_out = {
        name: ", ".join(f"{decimals(dot.leak)} {decimals(dot.worth)}" for dot in family)
        for name, family in panel.families.items()
    }
    families = "; ".join(f"{name}: {dots}" for name, dots in spelled_out.items())
    return svg.picture(f"{worth} against {panel.name}", families, *drawn, height=340, class_="plot")


def _dash(style: str) -> Markup:
    return svg.el("line", x1=-12, x2=12, class_=style)


def _circle(style: str) -> Markup:
    return svg.el("circle", r=4, class_=f"dots {style}")


def _ring(holds: bool) -> Markup:
    return svg.el("circle", r=10, class_="ring" if holds else "ring bad")


def _room(values: Sequence[float]) -> svg.Axis:
    low, high = min(values), max(values)
    spare = max(0.25 * (high - low), 0.005)
    return svg.Axis(low - spare, high + spare)
