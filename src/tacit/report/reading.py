"""Finding runs and reading them: all that those need who show them. Every figure of one also stands in a long table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.report.finding import DAMAGE, Place, damage, find
from tacit.report.run import RunReader
from tacit.report.series import Series

if TYPE_CHECKING:
    import polars as pl

__all__ = ["DAMAGE", "FIGURES", "Place", "RunReader", "damage", "figures", "find", "frame"]

FIGURES = {
    **dict.fromkeys(("place", "run", "party", "group", "name", "measure"), str),
    **dict.fromkeys(("step", "time", "value", "low", "high"), float),
}
"""The columns of the long table, and what they hold."""


def frame(run: RunReader) -> pl.DataFrame:
    """Every figure of a run as one long table: place, run, party, group, name, measure, step, time, value, low, high.

    Steps of the pace are turns.
    """
    import polars as pl

    who = {"place": run.place.id, "run": run.status.get("run"), "party": run.status.get("party")}
    pieces = [pl.DataFrame(schema=FIGURES)]
    for curve, times in figures(run):
        told = {**who, "group": curve.group, "name": curve.name, "measure": curve.measure, "time": times}
        told |= {"step": np.array(curve.x), "value": np.array(curve.y)}
        if len(curve.low) == len(curve):
            told |= {"low": np.array(curve.low), "high": np.array(curve.high)}
        pieces.append(pl.DataFrame({column: told.get(column) for column in FIGURES}, schema=FIGURES))
    known = [pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in ("value", "low", "high")]
    return pl.concat(pieces).with_columns(known)


def figures(run: RunReader) -> Iterator[tuple[Series, NDArray[np.float64] | None]]:
    """Every curve of a run, and when each of its steps was done; None where nobody knows.

    Times are read off the pace, over which a run's steps are spread evenly, though some of its turns are for testing.
    """
    reached = np.maximum.accumulate(np.array([turn for _, turn, *_ in run.pace], np.int64))
    turns, first = np.unique(reached, return_index=True)
    clock = np.array([time for time, *_ in run.pace])[first]
    steps, planned = (run.steps or 0) * (run.status.get("epochs") or 0), run.status.get("turns") or 0
    for curve in _curves(run):
        each = 1.0 if curve.group == "pace" else planned / steps if steps else 0.0  # turns of a step
        yield curve, np.interp(np.array(curve.x) * each, turns, clock) if each and len(turns) else None


def _curves(run: RunReader) -> Iterator[Series]:
    """What is shown over steps, then limits, the pace and what the report says."""
    yield from run.series.values()
    limits, sizes, rates = Series("limit", "gate"), Series("journal_bytes", "pace"), Series("turns_per_second", "pace")
    for decision in run.decisions:
        if decision["limit"] is not None:
            limits.add(run.decided_at(decision), decision["limit"])
    since, before = 0.0, -1
    for time, turn, _, journal in run.pace:
        if turn <= before:  # it stood still, or does turns again, which count once
            continue
        sizes.add(turn, journal)
        if before >= 0 and time > since:
            rates.add(turn, (turn - before) / (time - since))
        since, before = time, turn
    yield from (limits, sizes, rates)
    report = run.report or {"leaks": []}
    for leak in report["leaks"]:
        layer = "" if leak["layer"] == "cut" else f" at {leak['layer']}"
        layer += "" if leak["measure"] == run.measure else f" ({leak['measure']})"
        curve = Series(f"{leak['attack']} on {leak['on']}{layer}", "report", leak["measure"])
        curve.add((run.steps or 1) * (run.status.get("epochs") or 1), leak["value"], (leak["low"], leak["high"]))
        yield curve
