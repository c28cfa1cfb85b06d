"""Pictures of a report: figures on a scale, visits of examples, leaks over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from tacit.report import svg
from tacit.report.document import LiveCurve
from tacit.report.measures import Judged, Measure
from tacit.report.series import thinned
from tacit.report.words import decimals

SERIES = 5
"""Curves that have a colour and a pattern of their own; further ones are grey."""

_MOST_POINTS = 150  # of a curve


def curves(measure: Measure, shown: Sequence[LiveCurve], limit: float | None) -> Markup:
    """What each attack reached while training ran, with the limit as a line; the first few are told apart."""
    values = [value for curve in shown for value in curve.values if value is not None]
    steps = [step for curve in shown for step in curve.steps]
    across, up = svg.Axis(min(steps), max(steps)), _zoomed(measure, values, limit)
    whole = [mark for mark in svg.ticks(across.low, across.high, 5) if mark == int(mark)]
    drawn = svg.grid_across(up, svg.ticks(up.low, up.high, 6), "{:.2f}") + svg.labels_below(across, whole, "{:,.0f}")
    for place, curve in reversed(list(enumerate(shown))):
        known = [math.nan if value is None else value for value in curve.values]
        points = [
            None if math.isnan(known[i]) else (across.share(curve.steps[i]), 1 - up.share(known[i]))
            for i in thinned(np.array(known), _MOST_POINTS)
        ]
        style = f"series s{place + 1}" if place < SERIES else "series rest"
        drawn.append(svg.stretched(points, style))
        single = [point for point in points if point is not None]
        if len(single) == 1:  # a line of one point can't be seen
            drawn.append(svg.el("circle", cx=svg.at(single[0][0]), cy=svg.at(single[0][1]), r=4, class_=style))
    drawn += [*svg.limit_across(up, limit), *svg.names("step", measure.name)]
    each = {curve.attack: [value for value in curve.values if value is not None] for curve in shown}
    words = "; ".join(f"{name}: from {decimals(min(some))} to {decimals(max(some))}" for name, some in each.items())
    return svg.picture(f"{measure.name} while training ran", words, *drawn, height=240, class_="plot")


def _zoomed(measure: Measure, values: Sequence[float], limit: float | None) -> svg.Axis:
    """From where nothing is learnt to a round number above everything that is shown."""
    most = max([*values, *([] if limit is None else [limit]), measure.chance + 0.08])
    high = next((mark for mark in (measure.chance + 0.1 * i for i in range(1, 11)) if mark >= most + 0.01), 1.0)
    return svg.Axis(min(measure.chance, *values), min(high, 1.0))


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
            size = {"width": svg.at(1 - place), "height": svg.at(band[1] - band[0])}
            drawn.append(svg.el("rect", x=svg.at(place), y=svg.at(band[0]), class_="beyond", **size))
    drawn.append(svg.line(0, axis, 1, axis, "axis"))
    for value in measure.marks:
        place = measure.share(value)
        drawn.append(svg.line(place, axis - 6 / height, place, axis + 6 / height, "axis"))
        drawn.append(
            svg.text(f"{value:.1f}", place, 1, "tick", dy=-22, anchor={0.0: "start", 1.0: "end"}.get(place, "middle"))
        )
    drawn += [
        svg.text(measure.lowest, 0, 1, "tick", dy=-5, anchor="start"),
        svg.text(measure.highest, 1, 1, "tick", dy=-5, anchor="end"),
    ]
    names = []  # above all lines
    for row, mark in enumerate(marks):
        place, below = measure.share(mark.value), 16 * (row + 1) + 2
        drawn.append(svg.line(place, below / height, place, band[1], mark.kind))
        words = f"{mark.name} {decimals(mark.value)}"
        names.append(svg.text(words, place, 0, f"{mark.kind} name", dy=below - 6, anchor=svg.near(place)))
    drawn += names
    if figure is not None:
        drawn.append(svg.line(measure.share(figure.low), axis, measure.share(figure.high), axis, "range"))
        drawn.append(svg.el("circle", cx=svg.at(measure.share(figure.value)), cy=svg.at(axis), r=9, class_="dot"))
    shown = [f"{mark.name} {decimals(mark.value)}" for mark in marks]
    if figure is not None:
        shown.insert(0, f"{decimals(figure.value)}, between {decimals(figure.low)} and {decimals(figure.high)}")
    words = f"From {measure.chance:g}, {measure.lowest}, to 1, {measure.highest}: {'; '.join(shown)}."
    return svg.picture(title, words, *drawn, height=height, class_="scale")


def interval(name: str, measure: Measure, figure: Judged, limit: float | None, *, over: bool | None = None) -> Markup:
    """One figure's interval on its scale, small enough for a line of a table."""
    if over is None:
        over = limit is not None and figure.high > limit
    drawn = [svg.line(0, 0.5, 1, 0.5, "axis"), svg.line(0, 0.2, 0, 0.8, "axis"), svg.line(1, 0.2, 1, 0.8, "axis")]
    if limit is not None:
        drawn.append(svg.line(measure.share(limit), 0, measure.share(limit), 1, "limit"))
    low, value, high = map(measure.share, (figure.low, figure.value, figure.high))
    drawn.append(svg.line(low, 0.5, high, 0.5, "range over" if over else "range"))
    drawn.append(svg.line(value, 0.12, value, 0.88, "estimate over" if over else "estimate"))
    bounds = f"between {decimals(figure.low)} and {decimals(figure.high)}"
    words = f"{decimals(figure.value)}, {bounds}{', over the limit' if over else ''}"
    return svg.picture(name, words, *drawn, height=22, class_="interval")
