"""Pictures over time: the strength of the protection, the leak while training ran, and what it cost in utility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from tacit.report._svg import at, el, line, near, picture, stretched, text, ticks
from tacit.report.document import Decision, LiveCurve, Moment
from tacit.report.measures import Measure
from tacit.report.words import count, decimals, spelled

__all__ = ["SERIES", "curves", "strengths", "tradeoff"]

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


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def strengths(moments: Sequence[Moment], decisions: Sequence[Decision]) -> Markup:
    """How many steps above the configured strength each epoch was, as stairs, with what was decided before them."""
    first, last = moments[0].epoch, moments[-1].epoch
    across, up = _Axis(first - 1, last), _Axis(0, max(1, *(one.level for one in moments)))
    drawn = _grid_across(up, [level for level in ticks(0, up.high, 5) if level == int(level)], "{:.0f}")
    drawn += _labels_below(
        _Axis(first - 0.5, last + 0.5), [t for t in ticks(first, last, 10) if t == int(t)], "{:,.0f}"
    )
    stairs = []
    for one in moments:
        height = 1 - up.share(one.level)
        stairs += [(across.share(one.epoch - 1), height), (across.share(one.epoch), height)]
    drawn += [stretched(stairs, "stairs"), *_names("epoch", "steps up")]
    levels = {one.epoch: one.level for one in moments}
    for decision in decisions:
        shape = _SHAPES.get(decision.decision)
        if shape is None:
            continue
        mark = el(
            "path", el("title", f"before epoch {decision.epoch}: {decision.decision}"), d=shape, class_="decision"
        )
        height = 1 - up.share(levels.get(decision.epoch, moments[-1].level))
        drawn.append(el("svg", mark, x=at(across.share(decision.epoch - 1)), y=at(height), overflow="visible"))
    steps = [one for before, one in pairwise((None, *moments)) if one and (before is None or before.level != one.level)]
    told = "; ".join(f"from epoch {one.epoch}: {one.level}" for one in steps)
    return picture("Steps above the configured strength, by epoch", told, *drawn, height=140, class_="plot")


def curves(measure: Measure, shown: Sequence[LiveCurve], limit: float | None) -> Markup:
    """What each attack reached while training ran, with the limit as a line; the first few are told apart.

    Args:
        measure: of all these curves.
        shown: the curves, those that matter most first.
        limit: drawn across, where there is one.
    """
    values = [value for one in shown for value in one.values if value is not None]
    steps = [step for one in shown for step in one.steps]
    across, up = _Axis(min(steps), max(steps)), _zoomed(measure, values, limit)
    drawn = _grid_across(up, ticks(up.low, up.high, 6), "{:.2f}") + _labels_below(
        across, _round_steps(across), "{:,.0f}"
    )
    for place, one in reversed(list(enumerate(shown))):
        points = [None if value is None else (across.share(step), 1 - up.share(value)) for step, value in _thinned(one)]
        style = f"series s{place + 1}" if place < SERIES else "series rest"
        drawn.append(stretched(points, style))
        known = [point for point in points if point is not None]
        if len(known) == 1:  # a line of one point can't be seen
            drawn.append(el("circle", cx=at(known[0][0]), cy=at(known[0][1]), r=4, class_=style))
    drawn += [*_limit_across(up, limit), *_names("step", measure.name)]
    told = "; ".join(f"{one.attack}: {_range(one)}" for one in shown)
    return picture(f"{measure.name} while training ran", told, *drawn, height=240, class_="plot")


def tradeoff(measure: Measure, moments: Sequence[Moment], figure: str, limit: float | None) -> Markup:
    """How good the model was after each epoch, against what the worst live attack reached in it.

    Args:
        measure: of the leak.
        moments: epochs that have both.
        figure: which of the model's figures.
        limit: drawn upwards, where there is one.
    """
    pairs = [
        (one.epoch, one.worst.value, value)
        for one in moments
        if one.worst is not None and (value := one.figures.get(figure)) is not None
    ]
    across = _zoomed(measure, [leak for _, leak, _ in pairs], limit)
    low, high = min(value for *_, value in pairs), max(value for *_, value in pairs)
    spare = max(0.25 * (high - low), 0.005)
    up = _Axis(low - spare, high + spare)
    drawn = _grid_across(up, ticks(up.low, up.high, 5), "{:.3f}")
    drawn += _labels_below(across, ticks(across.low, across.high, 6), "{:.2f}")
    if limit is not None:
        place = across.share(limit)
        drawn.append(line(place, 0, place, 1, "limit"))
        drawn.append(text(f"limit {decimals(limit)}", place, 0, "limit name", dy=-6, anchor=near(place)))
    places = [(across.share(leak), 1 - up.share(value)) for _, leak, value in pairs]
    drawn += [stretched(places, "way"), *_names(f"{measure.name} of the worst attack", spelled(figure))]
    named = _named(places)
    for i, ((epoch, leak, value), (x, y)) in enumerate(zip(pairs, places, strict=True)):
        tip = el("title", f"epoch {epoch}: {measure.name} {decimals(leak)}, {spelled(figure)} {decimals(value)}")
        drawn.append(el("circle", tip, cx=at(x), cy=at(y), r=5, class_="point"))
        if i in named:
            drawn.append(text(str(epoch), x, y, "tick", dy=-10))
    told = "; ".join(f"epoch {epoch}: {decimals(leak)}, {decimals(value)}" for epoch, leak, value in pairs)
    return picture(
        f"{spelled(figure)} against {measure.name}, {count(len(pairs), 'epoch')}",
        told,
        *drawn,
        height=260,
        class_="plot",
    )


def _zoomed(measure: Measure, values: Sequence[float], limit: float | None) -> _Axis:
    """From where nothing is learnt to a round number above everything that is shown."""
    most = max([*values, *([] if limit is None else [limit]), measure.chance + 0.08])
    high = next((mark for mark in (measure.chance + 0.1 * i for i in range(1, 11)) if mark >= most + 0.01), 1.0)
    return _Axis(min(measure.chance, *values), min(high, 1.0))


def _grid_across(up: _Axis, marks: Sequence[float], spelled: str) -> list[Markup]:
    drawn = []
    for mark in marks:
        y = 1 - up.share(mark)
        drawn += [line(0, y, 1, y, "grid"), text(spelled.format(mark), 0, y, "tick", dx=-8, dy=4, anchor="end")]
    return drawn


def _labels_below(across: _Axis, marks: Sequence[float], spelled: str) -> list[Markup]:
    places = [across.share(mark) for mark in marks]
    return [
        text(spelled.format(mark), place, 1, "tick", dy=20, anchor="end" if place > 0.97 else "middle")
        for mark, place in zip(marks, places, strict=True)
    ]


def _limit_across(up: _Axis, limit: float | None) -> list[Markup]:
    if limit is None:
        return []
    y = 1 - up.share(limit)
    return [line(0, y, 1, y, "limit"), text(f"limit {decimals(limit)}", 1, y, "limit name", dy=-6, anchor="end")]


def _round_steps(across: _Axis) -> Sequence[float]:
    return [mark for mark in ticks(across.low, across.high, 5) if mark == int(mark)]


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


def _names(across: str, up: str) -> list[Markup]:
    """What the axes are, where no curve runs."""
    return [
        text(across, 1, 1, "tick what", dy=40, anchor="end"),
        text(up, 0, 0, "tick what", dx=-40, dy=-14, anchor="start"),
    ]


def _named(places: Sequence[tuple[float, float]]) -> set[int]:
    """Which points have room for a name, the last one first."""
    named: list[int] = []
    for i in reversed(range(len(places))):
        if all(abs(places[i][0] - places[j][0]) > 0.03 or abs(places[i][1] - places[j][1]) > 0.09 for j in named):
            named.append(i)
    return set(named)
