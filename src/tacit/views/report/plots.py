"""Pictures over time: the strength of the protection, and the leak while training ran."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from tacit.views.report import svg
from tacit.views.report.document import Decision, LiveCurve, Moment
from tacit.views.report.measures import Measure
from tacit.views.report.words import decimals

SERIES = 5
"""Curves that have a colour and a pattern of their own; further ones are grey."""

_MOST_POINTS = 150  # of a curve

_SHAPES = {
    "raise": "M-6 5L0 -6L6 5z",
    "lower": "M-6 -5L0 6L6 -5z",
    "pause": "M-5 -5H-1V5H-5zM1 -5H5V5H1z",
    "stop": "M-5 -5H5V5H-5z",
    "resume": "M-4 -6L6 0L-4 6z",
}


def strengths(moments: Sequence[Moment], decisions: Sequence[Decision]) -> Markup:
    """How many steps above the configured strength each epoch was, as stairs, with what was decided before them."""
    first, last = moments[0].epoch, moments[-1].epoch
    across, up = svg.Axis(first - 1, last), svg.Axis(0, max(1, *(moment.level for moment in moments)))
    drawn = svg.grid_across(up, [level for level in svg.ticks(0, up.high, 5) if level == int(level)], "{:.0f}")
    drawn += svg.labels_below(
        svg.Axis(first - 0.5, last + 0.5), [t for t in svg.ticks(first, last, 10) if t == int(t)], "{:,.0f}"
    )
    stairs = []
    for moment in moments:
        height = 1 - up.share(moment.level)
        stairs += [(across.share(moment.epoch - 1), height), (across.share(moment.epoch), height)]
    drawn += [svg.stretched(stairs, "stairs"), *svg.names("epoch", "steps up")]
    levels = {moment.epoch: moment.level for moment in moments}
    for decision in decisions:
        shape = _SHAPES.get(decision.decision)
        if shape is None:
            continue
        mark = svg.el(
            "path", svg.el("title", f"before epoch {decision.epoch}: {decision.decision}"), d=shape, class_="decision"
        )
        height = 1 - up.share(levels.get(decision.epoch, moments[-1].level))
        drawn.append(
            svg.el("svg", mark, x=svg.at(across.share(decision.epoch - 1)), y=svg.at(height), overflow="visible")
        )
    steps = [moments[0], *(after for before, after in pairwise(moments) if before.level != after.level)]
    words = "; ".join(f"from epoch {moment.epoch}: {moment.level}" for moment in steps)
    return svg.picture("Steps above the configured strength, by epoch", words, *drawn, height=140, class_="plot")


def curves(measure: Measure, shown: Sequence[LiveCurve], limit: float | None) -> Markup:
    """What each attack reached while training ran, with the limit as a line; the first few are told apart."""
    values = [value for curve in shown for value in curve.values if value is not None]
    steps = [step for curve in shown for step in curve.steps]
    across, up = svg.Axis(min(steps), max(steps)), zoomed(measure, values, limit)
    whole = [mark for mark in svg.ticks(across.low, across.high, 5) if mark == int(mark)]
    drawn = svg.grid_across(up, svg.ticks(up.low, up.high, 6), "{:.2f}") + svg.labels_below(across, whole, "{:,.0f}")
    for place, curve in reversed(list(enumerate(shown))):
        points = [
            None if value is None else (across.share(step), 1 - up.share(value)) for step, value in _thinned(curve)
        ]
        style = f"series s{place + 1}" if place < SERIES else "series rest"
        drawn.append(svg.stretched(points, style))
        known = [point for point in points if point is not None]
        if len(known) == 1:  # a line of one point can't be seen
            drawn.append(svg.el("circle", cx=svg.at(known[0][0]), cy=svg.at(known[0][1]), r=4, class_=style))
    drawn += [*svg.limit_across(up, limit), *svg.names("step", measure.name)]
    words = "; ".join(f"{curve.attack}: {_range(curve)}" for curve in shown)
    return svg.picture(f"{measure.name} while training ran", words, *drawn, height=240, class_="plot")


def zoomed(measure: Measure, values: Sequence[float], limit: float | None) -> svg.Axis:
    """From where nothing is learnt to a round number above everything that is shown."""
    most = max([*values, *([] if limit is None else [limit]), measure.chance + 0.08])
    high = next((mark for mark in (measure.chance + 0.1 * i for i in range(1, 11)) if mark >= most + 0.01), 1.0)
    return svg.Axis(min(measure.chance, *values), min(high, 1.0))


def _thinned(curve: LiveCurve) -> Sequence[tuple[int, float | None]]:
    """The curve with few enough points to be seen: of each stretch the highest one."""
    points = list(zip(curve.steps, curve.values, strict=True))
    every = -(-len(points) // _MOST_POINTS)
    if every <= 1:
        return points
    parts = [points[place : place + every] for place in range(0, len(points), every)]
    return [max(part, key=lambda point: -1.0 if point[1] is None else point[1]) for part in parts]


def _range(curve: LiveCurve) -> str:
    known = [value for value in curve.values if value is not None]
    return f"from {decimals(min(known))} to {decimals(max(known))}" if known else "no figure"
