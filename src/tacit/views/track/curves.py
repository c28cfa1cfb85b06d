"""What a run or a training of a sweep has to show, as curves with the names under which they are tracked.

::

    utility/loss, utility/test_auc, ...     over steps
    leak/norm, leak/cosine, ...             looks while training ran; leak AUCs are folded, max(v, 1 - v)
    gate/residual on visits                 what the gate measured at the ends of epochs; also with .low and .high
    gate/limit                              at each decision
    strength/level                          of the protection
    pace/turns_per_second                   over turns; waiting counts
    pace/journal_bytes                      over turns
    exchange/canaries, exchange/read of hour, ...   the report's, of a training in one exchange, at step 1
    report/norm on batches                  the report's, at the last step; also with .low and .high
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tacit.views.pacing import seconds
from tacit.views.reading import RunReader
from tacit.views.track.tracker import Point, Tracker

Times = Callable[[Sequence[float]], Sequence[float | None]]
"""When some steps were done, in seconds since 1970."""


@dataclass(frozen=True)
class Curve:
    """Figures over steps."""

    name: str  # with its group in front
    x: Sequence[float]  # steps, rising
    y: Sequence[float]  # figures
    times: Times  # when steps were done


def later(curves: Iterable[Curve], tracker: Tracker) -> list[Point]:
    """Of all points those that a tracker does not have: of each curve what comes after its last step there."""
    points = []
    for curve in curves:
        reached = tracker.reached(curve.name)
        first = bisect_right(curve.x, reached)
        steps, values = curve.x[first:], curve.y[first:]
        for step, value, time in zip(steps, values, curve.times(steps), strict=True):
            if step > reached:  # one of several at the same step
                points.append(Point(curve.name, int(step), value, time))
                reached = int(step)
    return points


def run_curves(run: RunReader) -> Iterator[Curve]:
    """Every curve of a run, whose reader is refreshed."""
    times = _times(run)
    for name, series in run.series.items():
        yield Curve(name, series.x, series.y, times)
        if len(series.low) == len(series.x) == len(series.high):
            yield Curve(f"{name}.low", series.x, series.low, times)
            yield Curve(f"{name}.high", series.x, series.high, times)
    limits = [(run.decided_at(one), one["limit"]) for one in run.decisions if one["limit"] is not None]
    yield Curve("gate/limit", [step for step, _ in limits], [limit for _, limit in limits], times)
    yield from _pace(run)
    yield from _report(run)


def replica_curves(replica: dict[str, Any]) -> Iterator[Curve]:
    """Every curve of one training of a sweep, which is not thinned."""
    for curve in replica["curves"]:
        for ending, key in (("", "y"), (".low", "low"), (".high", "high")):
            known = [(x, y) for x, y in zip(curve["x"], curve.get(key, ()), strict=False) if y is not None]
            name = f"{curve['group']}/{curve['name']}{ending}"
            yield Curve(name, [x for x, _ in known], [y for _, y in known], _unknown)


def _pace(run: RunReader) -> Iterator[Curve]:
    """How fast turns were done, from one turn to the next that is noted; turns that were done again count once."""
    moved: list[tuple[float, int, int]] = []
    for time, turn, _, journal in run.pace:
        if not moved or turn > moved[-1][1]:
            moved.append((time, turn, journal))
    turns = [turn for _, turn, _ in moved]
    when = {turn: time for time, turn, _ in moved}

    def times(some: Sequence[float]) -> list[float | None]:
        return [when[int(turn)] for turn in some]

    yield Curve("pace/journal_bytes", turns, [float(journal) for *_, journal in moved], times)
    rates = [
        (after[1], (after[1] - before[1]) / (after[0] - before[0]))
        for before, after in pairwise(moved)
        if after[0] > before[0]
    ]
    yield Curve("pace/turns_per_second", [turn for turn, _ in rates], [rate for _, rate in rates], times)


def _report(run: RunReader) -> Iterator[Curve]:
    """What the report says, as a point for each of its figures."""
    if run.report is None:
        return
    made = seconds(run.report["made"])
    step = (run.steps or 1) * (run.status.get("epochs") or 1)
    for leak in run.report["leaks"]:
        layer = "" if leak["layer"] == "cut" else f" at {leak['layer']}"
        layer += "" if leak["measure"] == run.measure else f" ({leak['measure']})"
        for ending, key in (("", "value"), (".low", "low"), (".high", "high")):
            if leak[key] is not None:
                name = f"report/{leak['attack']} on {leak['on']}{layer}{ending}"
                yield Curve(name, [step], [leak[key]], lambda steps: [made] * len(steps))


def _times(run: RunReader) -> Times:
    """When steps were done, read off the pace: turns are spread evenly over steps, though some are for testing."""
    steps = (run.steps or 0) * (run.status.get("epochs") or 0)
    turns = run.status.get("turns") or 0
    if not run.pace or not steps or not turns:
        return _unknown
    reached = np.maximum.accumulate([turn for _, turn, *_ in run.pace])
    first = np.unique(reached, return_index=True)[1]
    clock = np.array([time for time, *_ in run.pace])

    def times(some: Sequence[float]) -> list[float | None]:
        when: list[float] = np.interp(np.asarray(some) * (turns / steps), reached[first], clock[first]).tolist()
        return [*when]

    return times


def _unknown(steps: Sequence[float]) -> list[float | None]:
    return [None] * len(steps)
