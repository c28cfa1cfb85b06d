"""Runs and sweeps brought to trackers, and kept up to date while they go on.

Whatever was brought is not brought again: a tracker says up to which step it has a curve, and only later points go
there. A run that was killed repeats steps bit for bit, so what is there already is right. `docs/ref-tracking.md` lists
the curves by their names.
"""

from __future__ import annotations

import math
import tomllib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import UsageError
from tacit.views import reading
from tacit.views.pacing import seconds
from tacit.views.reading import DAMAGE, Reader, RunReader, SweepReader, damage
from tacit.views.series import Series
from tacit.views.track.tracker import Point, State, Tracker

_REPORTS = ("report.json", "report.html")
_CARD = ("run", "party", "role", "mode", "epochs", "measure", "limit")
_OWN = (  # of party.toml; not where data, keys and peers are
    "limit", "on_limit", "model", "training", "protect", "odds", "budget", "odds_budget", "learn", "head",
)  # fmt: skip


class Following(ABC):
    """Runs and sweeps under some folders; those that begin later are found as well, and none that is gone is awaited.

    Where none is found it is a `UsageError`.
    """

    def __init__(self, roots: Sequence[Path | str]) -> None:
        self._roots = list(roots)
        self.readers: dict[str, Reader] = {}  # of what there is, by id
        self.problems: dict[str, str] = {}  # what could not be read, by id; the rest goes on
        self._look()
        if not self.readers:
            raise UsageError(
                f"no run and no sweep under {', '.join(map(str, roots))}: name a party's folder, a run's, or one above"
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
    def _bring(self, changed: Sequence[Reader]) -> int:
        """Bring what those have that changed."""

    def _look(self) -> None:
        places = reading.find(self._roots)
        self.readers = {place.id: self.readers.get(place.id) or reading.reader(place) for place in places}


class Export(Following):
    """Runs and sweeps brought to trackers, each training to one of its own."""

    def __init__(self, roots: Sequence[Path | str], open_tracker: Callable[[str, str], Tracker]) -> None:
        super().__init__(roots)
        self.brought: dict[str, int] = {}  # how many figures of each run, or training of a sweep, by its id
        self.names: dict[str, str] = {}  # of the same
        self._open = open_tracker
        self._trackers: dict[str, Tracker] = {}  # of runs that are not over: others hold no file open
        self._filed: dict[str, float] = {}

    def close(self) -> None:
        """Close all trackers, each with how its run stands."""
        for place, tracker in self._trackers.items():
            tracker.close(state_of(self.readers[place]) if place in self.readers else "stopped")
        self._trackers.clear()

    def _bring(self, changed: Sequence[Reader]) -> int:
        before = sum(self.brought.values())
        for reader in changed:
            if isinstance(reader, RunReader):
                self._bring_run(reader)
            else:
                self._bring_sweep(reader)
        return sum(self.brought.values()) - before

    def _bring_curves(self, place: str, name: str, curves: Iterable[_Curve], tracker: Tracker) -> None:
        new = []
        for curve, x, y, times in curves:
            reached = tracker.reached(curve)
            first = bisect_right(x, reached)
            for step, value, time in zip(x[first:], y[first:], times(x[first:]), strict=True):
                if step > reached:  # of several at one step the first
                    reached = int(step)
                    new.append(Point(curve, reached, value, time))
        tracker.points(new)
        self.brought[place] = self.brought.get(place, 0) + len(new)
        self.names[place] = name

    def _bring_run(self, run: RunReader) -> None:
        place = run.place
        if place.id not in self._trackers:
            self._trackers[place.id] = self._open(place.id, place.name)
        tracker = self._trackers[place.id]
        tracker.facts(facts_of(run))
        self._bring_curves(place.id, place.name, run_curves(run), tracker)
        for decision in run.decisions:
            step = run.decided_at(decision)
            if step > tracker.reached("gate/decision"):
                words = f"{decision['decision']}, level {decision['level']}: {decision['reason']}"
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

    def _bring_sweep(self, sweep: SweepReader) -> None:
        """Trainings of a sweep are over when they are found, so each is brought once."""
        for point in sweep.points:
            number = point["replica"]
            place = f"{sweep.place.id}-{number}"
            if place in self.brought:
                continue
            name = f"{sweep.place.name} {point['label']} seed {point['seed']} ({number})"
            tracker = self._open(place, name)
            facts = {key: point[key] for key in ("protection", "knob", "strength", "seed") if point[key] is not None}
            tracker.facts({"sweep": sweep.place.name, "data": sweep.about.get("data"), **facts})
            self._bring_curves(place, name, _of_series(sweep.series(number), _unknown), tracker)
            tracker.close()


def state_of(reader: Reader) -> State:
    """How a run or a sweep stands."""
    if isinstance(reader, SweepReader):
        return "finished" if (reader.place.path / "results.parquet").exists() else "running"
    alive, over = bool(reader.status.get("alive")), reader.status.get("state") == "finished"
    if over and (reader.report is not None or not alive):  # a process that has trained may still write a report
        return "finished"
    return "running" if alive else "stopped"


# --- curves ----------------------------------------------------------------------------------------------------------

_Times = Callable[[Sequence[float]], Sequence[float | None]]  # when some steps were done, in seconds since 1970


_Curve = tuple[str, Sequence[float], Sequence[float], _Times]  # its name with its group in front, rising steps, figures


def _of_series(each: Mapping[str, Series], times: _Times) -> Iterator[_Curve]:
    for name, series in each.items():
        yield name, series.x, series.y, times
        if len(series.low) == len(series.x):
            yield f"{name}.low", series.x, series.low, times
            yield f"{name}.high", series.x, series.high, times


def run_curves(run: RunReader) -> Iterator[_Curve]:
    """Every curve of a run, whose reader is refreshed."""
    times = _times(run)
    yield from _of_series(run.series, times)
    limited = [decision for decision in run.decisions if decision["limit"] is not None]
    yield "gate/limit", [run.decided_at(one) for one in limited], [one["limit"] for one in limited], times
    yield from _pace(run)
    if run.report is None:
        return
    made, step = seconds(run.report["made"]), (run.steps or 1) * (run.status.get("epochs") or 1)
    for leak in run.report["leaks"]:
        layer = "" if leak["layer"] == "cut" else f" at {leak['layer']}"
        layer += "" if leak["measure"] == run.measure else f" ({leak['measure']})"
        for ending, key in (("", "value"), (".low", "low"), (".high", "high")):
            name = f"report/{leak['attack']} on {leak['on']}{layer}{ending}"
            yield name, [step], [leak[key]], lambda steps: [made] * len(steps)


def _pace(run: RunReader) -> Iterator[_Curve]:
    """How fast turns were done, from one turn to the next that is noted; turns that were done again count once."""
    moved: list[tuple[float, int, int]] = []
    for time, turn, _, journal in run.pace:
        if not moved or turn > moved[-1][1]:
            moved.append((time, turn, journal))
    when: dict[float, float] = {turn: time for time, turn, _ in moved}
    rates = {
        turn: (turn - before) / (time - since)
        for (since, before, _), (time, turn, _) in pairwise(moved)
        if time > since
    }
    sizes = {turn: float(size) for _, turn, size in moved}
    for name, figures in (("journal_bytes", sizes), ("turns_per_second", rates)):
        yield f"pace/{name}", list(figures), list(figures.values()), lambda turns: [when[turn] for turn in turns]


def _times(run: RunReader) -> _Times:
    """When steps were done, read off the pace: turns are spread evenly over steps, though some are for testing."""
    steps = (run.steps or 0) * (run.status.get("epochs") or 0)
    turns = run.status.get("turns") or 0
    if not run.pace or not steps or not turns:
        return _unknown
    reached = np.maximum.accumulate([turn for _, turn, *_ in run.pace])
    first = np.unique(reached, return_index=True)[1]
    clock = np.array([time for time, *_ in run.pace])
    return lambda some: np.interp(np.asarray(some) * (turns / steps), reached[first], clock[first]).tolist()


def _unknown(steps: Sequence[float]) -> list[float | None]:
    return [None] * len(steps)


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
