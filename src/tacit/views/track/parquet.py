"""Everything that runs have found as four Parquet files, each one long table over all runs; see `SCHEMAS`.

`place` is the same in all four and stays the same: it stands for a run's folder. Files are written whole, each in place
of the one before, so that a reader never sees a part.
"""

from __future__ import annotations

import json
import time as clock
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tacit.disk import replaced, storing
from tacit.views.reading import FIGURES, RunReader, frame
from tacit.views.track.following import Following

_SHARE = 10  # of the time goes into writing, at most one part in so many

_WHO = {"place": pl.String, "run": pl.String, "party": pl.String}
SCHEMAS: dict[str, dict[str, Any]] = {
    "figures": {name: pl.String if kind is str else pl.Float64 for name, kind in FIGURES.items()},
    "decisions": _WHO
    | {"time": pl.String, "epoch": pl.Int64, "step": pl.Int64, "decision": pl.String}
    | {"strength": pl.String, "limit": pl.Float64, "reason": pl.String, "broken": pl.Boolean},
    "events": _WHO | {"time": pl.String, "event": pl.String, "details": pl.String},
    "leaks": _WHO
    | {"attack": pl.String, "on": pl.String, "layer": pl.String, "measure": pl.String}
    | dict.fromkeys(("value", "low", "high", "quantile", "baseline", "seconds"), pl.Float64),
}
"""The columns of each file and their types."""


class Tables(Following):
    """The runs under some folders as Parquet files, written anew when a run has changed."""

    def __init__(
        self, roots: Sequence[Path | str], folder: str | Path, *, now: Callable[[], float] = clock.monotonic
    ) -> None:
        super().__init__(roots)
        self.rows: dict[str, int] = {}
        self._folder, self._now = Path(folder), now
        self._pieces: dict[str, dict[str, pl.DataFrame]] = {}
        self._due, self._waiting = float("-inf"), False
        with storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Write what has not been written yet."""
        if self._waiting:
            self._write()

    def _bring(self, changed: Sequence[RunReader]) -> int:
        """Write the files, but not so often that writing them takes a good part of the time."""
        before = self.rows.get("figures", 0)
        for run in changed:
            self._pieces[run.place.id] = _tables(run)
            self._waiting = True
        if self._waiting and (self._now() >= self._due or self.finished):
            started = self._now()
            self._write()
            ended = self._now()
            self._due = ended + _SHARE * (ended - started)
        return self.rows.get("figures", 0) - before

    def _write(self) -> None:
        for name, schema in SCHEMAS.items():
            pieces = [self._pieces[place][name] for place in sorted(self._pieces)]
            table = pl.concat(pieces) if pieces else pl.DataFrame(schema=schema)
            replaced(self._folder / f"{name}.parquet", table.write_parquet, durable=False)
            self.rows[name] = len(table)
        self._waiting = False


def _tables(run: RunReader) -> dict[str, pl.DataFrame]:
    who = {"place": run.place.id, "run": run.status.get("run"), "party": run.status.get("party")}
    decided = [{**decision, "step": run.decided_at(decision)} for decision in run.decisions]
    events = []
    for event in run.events:  # what is special to a kind of event is kept as JSON
        rest = {name: value for name, value in event.items() if name not in ("time", "event")}
        events.append({"time": event["time"], "event": event["event"], "details": json.dumps(rest)})
    rows = {"decisions": decided, "events": events, "leaks": (run.report or {}).get("leaks", [])}
    tables = {"figures": frame(run)}
    for name, lines in rows.items():
        schema = SCHEMAS[name]
        cells = [{column: (who if column in who else line).get(column) for column in schema} for line in lines]
        tables[name] = pl.DataFrame(cells, schema=schema)
    return tables
