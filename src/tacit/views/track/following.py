"""Runs brought to trackers, and kept up to date while they go on.

Whatever was brought is not brought again: a tracker says up to which step it has a curve, and only later points go
there. A run that was killed repeats steps bit for bit, so what is there already is right. `docs/ref-tracking.md` lists
the curves by their names.
"""

from __future__ import annotations

import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import UsageError
from tacit.views.pacing import seconds
from tacit.views.reading import DAMAGE, Place, RunReader, damage, figures, find
from tacit.views.track.tracker import Point, State, Tracker

_REPORTS = ("report.json", "report.html")
_CARD = ("run", "party", "role", "mode", "epochs", "measure", "limit")
_OWN = (  # of party.toml; not where data, keys and peers are
    "limit", "on_limit", "model", "training", "protect", "odds", "budget", "odds_budget", "learn", "head",
)  # fmt: skip


class Following(ABC):
    """Runs under some folders; those that begin later are found as well, and none that is gone is awaited.

    Where none is found it is a `UsageError`.
    """

    def __init__(self, roots: Sequence[Path | str]) -> None:
        self._roots = list(roots)
        self.readers: dict[str, RunReader] = {}  # of what there is, by id
        self.problems: dict[str, str] = {}  # what could not be read, by id; the rest goes on
        self._look()
        if not self.readers:
            raise UsageError(
                f"no run under {', '.join(map(str, roots))}: name a party's folder, a run's, or one above; the "
                "results.parquet of a sweep is a table already"
            )

    @property
    def finished(self) -> bool:
        """Whether nothing more can come: every run has ended, and so has its process."""
        return all(state_of(reader) == "finished" for reader in self.readers.values())

    def update(self) -> int:
        """Bring what is new; how many figures that were."""
        self._look()
        changed = []
        for place, reader in self.readers.items():
            try:
                if reader.refresh():
                    changed.append(reader)
                self.problems.pop(place, None)
            except DAMAGE as error:
                self.problems[place] = damage(reader.place, error)
        return self._bring(changed)

    @abstractmethod
    def _bring(self, changed: Sequence[RunReader]) -> int:
        """Bring what those have that changed."""

    def _look(self) -> None:
        places = [place for place in find(self._roots) if place.kind == "run"]
        self.readers = {place.id: self.readers.get(place.id) or RunReader(place) for place in places}


class Export(Following):
    """Runs brought to trackers, each to one of its own."""

    def __init__(self, roots: Sequence[Path | str], open_tracker: Callable[[Place], Tracker]) -> None:
        super().__init__(roots)
        self.brought: dict[Place, int] = {}  # how many figures of each run
        self._open = open_tracker
        self._trackers: dict[str, Tracker] = {}  # of runs that are not over: others hold no file open
        self._filed: dict[str, float] = {}

    def close(self) -> None:
        """Close all trackers, each with how its run stands."""
        for place, tracker in self._trackers.items():
            tracker.close(state_of(self.readers[place]) if place in self.readers else "stopped")
        self._trackers.clear()

    def _bring(self, changed: Sequence[RunReader]) -> int:
        return sum(map(self._bring_run, changed))

    def _bring_run(self, run: RunReader) -> int:
        place = run.place
        if place.id not in self._trackers:
            self._trackers[place.id] = self._open(place)
        tracker = self._trackers[place.id]
        tracker.facts(facts_of(run))
        new = list(_new_points(run, tracker))
        tracker.points(new)
        self.brought[place] = self.brought.get(place, 0) + len(new)
        for decision in run.decisions:
            step = run.decided_at(decision)
            if step > tracker.reached("gate/decision"):
                words = f"{decision['decision']}: {decision['reason']}"
                tracker.text("gate/decision", step, words, time=seconds(decision["time"]))
        paths = [path for name in _REPORTS if (path := place.path / name).exists()]
        changed = max((path.stat().st_mtime for path in paths), default=-math.inf)
        if changed > self._filed.get(place.id, -math.inf):
            tracker.files(paths)
            self._filed[place.id] = changed
        if state_of(run) == "finished":
            self._trackers.pop(place.id).close()
        else:
            tracker.flush()
        return len(new)


def _new_points(run: RunReader, tracker: Tracker) -> Iterator[Point]:
    """The figures beyond what a tracker has of each curve; of several at one step the first."""
    for curve, times in figures(run):
        x = np.array(curve.x)
        for ending, values in (("", curve.y), (".low", curve.low), (".high", curve.high)):
            name = f"{curve.group}/{curve.name}{ending}"
            reached = tracker.reached(name) if len(values) == len(x) else math.inf
            for place in np.flatnonzero(x > reached):
                if x[place] > reached:
                    reached = int(x[place])
                    yield Point(name, reached, values[place], None if times is None else float(times[place]))


def state_of(run: RunReader) -> State:
    """How a run stands."""
    alive, over = bool(run.status.get("alive")), run.status.get("state") == "finished"
    if over and (run.report is not None or not alive):  # a process that has trained may still write a report
        return "finished"
    return "running" if alive else "stopped"


# --- facts -----------------------------------------------------------------------------------------------------------


def facts_of(reader: RunReader) -> dict[str, object]:
    """The facts of a run, by dotted names such as "cut.widths.airport" or "protect.gradient.name".

    They are read from the party's folder, where its settings still are those of this run; else there are only the few
    that the run tells of itself. Addresses, and where keys and data lie, are not among them.
    """
    card, folder = reader.card(), reader.place.path.parent.parent
    facts: dict[str, object] = {name: card[name] for name in _CARD if card[name] is not None}
    contract, own = _toml(folder / "contract.toml"), _toml(folder / "party.toml")
    if contract.get("run") == card["run"]:
        facts |= contract | {name: value for name, value in own.items() if name.partition(".")[0] in _OWN}
    versions = ((reader.report or {}).get("subject") or {}).get("versions") or {}
    return facts | {f"versions.{name}": version for name, version in versions.items()}


def _toml(path: Path) -> dict[str, object]:
    """A file's values by dotted names; nothing where it can't be read, for facts are told where they are known."""
    try:
        return dict(_flat(tomllib.loads(path.read_text())))
    except (OSError, ValueError, RecursionError):
        return {}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
