"""What a run says about itself in its folder: where it stands, and what happened."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit.disk import append_line, read_lines, replaced, storing
from tacit.errors import StorageError, UsageError
from tacit.party import sealed_log
from tacit.party.folder import Folder
from tacit.wire.line import Alarm, Waiting

__all__ = ["PACE", "Pace", "Status", "Telling", "alive", "paces", "read", "read_run"]

PACE = "pace.jsonl"
"""When which turn was done, and when it waited: a few lines a minute, never repeated: time does not return."""

_FILE, _LOG, _OLDER = "status.json", "log.jsonl", "log.older.jsonl"
_APART = 2.0  # seconds between two lines of the pace
_SHARE = 1000  # of the run's whole time lies between two of them, so that a month has few thousand
_PAUSE = 1.0  # seconds between two writes of what changes at every step
_LARGEST = 4 * 2**20  # bytes of a log; then it becomes the older one, in the place of the one before
_MINUTE = 60.0  # seconds in which refusals about one field count as one flood
_WAITING = 1000  # lines that wait for a disk which takes none
_EACH = 10  # refusals of a flood that have a line of their own

# What a status may hold, of which kind; the first ones are always there.
_ALWAYS = {"run": str, "party": str, "role": str, "state": str, "time": str}
_SOMETIMES = {
    "turn": int, "turns": int, "steps": int, "epoch": int, "epochs": int, "history": list, "journal_bytes": int,
    "peer": str, "waiting_seconds": int, "why": str, "reason": str, "pid": int, "mode": str, "part": str, "done": int,
    "total": int, "certificate": dict, "release": dict,
}  # fmt: skip
_TOGETHER = (("turn", "turns", "epoch", "epochs"), ("why", "peer", "waiting_seconds"), ("part", "done", "total"))


@dataclass
class _Flood:
    """Refusals of one peer about one field, since the first of them."""

    since: float
    written: int = 0
    counted: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # of those that were only counted


class Status:
    """The status file and the log of one run, for its owner alone.

    The file is replaced as a whole, so that a reader sees one state or the next; the log is only added to. A peer that
    is refused again and again does not fill the disk: after a few lines of one minute its refusals are counted into a
    single one, and a log that has become large is kept once and then let go. No run depends on any of it: what can't be
    written, on a disk that is full or without a file left to open, is tried again at the next change.

    Args:
        folder: of the run.
        now: a clock that never goes back.
        fixed: what stays the same during a run.
    """

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.monotonic, **fixed: Any) -> None:
        self._folder = folder
        self._clock = now
        self._now: dict[str, Any] = {**fixed, "pid": os.getpid()}
        self._written = float("-inf")
        self._floods: dict[tuple[str, str], _Flood] = {}
        self._unwritten: deque[dict[str, Any]] = deque(maxlen=_WAITING)
        self._pace = Pace(folder)

    def update(self, *, at_once: bool = False, **changes: Any) -> None:
        """Change some fields; the file follows at once, or when a second has passed since it was written."""
        self._now.update(changes)
        self._count(everything=changes.get("state") == "finished")
        where = {"turn": self._now.get("turn", 0), "journal_bytes": self._now.get("journal_bytes", 0)}
        with suppress(StorageError):
            self._pace.note(self._now.get("state", "preparing"), **where)
        if at_once or self._clock() - self._written >= _PAUSE:
            self._now["time"], self._written = _time(), float("-inf")
            told = json.dumps(self._now, indent=2) + "\n"
            with suppress(StorageError):
                replaced(self._folder / _FILE, lambda file: file.write(told.encode()), durable=False)
                self._written = self._clock()

    def log(self, event: str, **details: Any) -> None:
        """Add a line about something that happened; of many refusals alike, one that says how many `times`."""
        self._count()
        line = {"time": _time(), "event": event, **details}
        if event == "refused":
            about = (str(details.get("peer")), str(details.get("field")))
            flood = self._floods.setdefault(about, _Flood(self._clock()))
            if flood.written >= _EACH:
                flood.counted += 1
                flood.last = line
                return
            flood.written += 1
        self._unwritten.append(line)
        self._append()

    def _count(self, *, everything: bool = False) -> None:
        """Write what was only counted, of floods that began more than a minute ago, or of all."""
        over = [about for about, flood in self._floods.items() if self._clock() - flood.since >= _MINUTE]
        for about in list(self._floods) if everything else over:
            flood = self._floods.pop(about)
            if flood.counted:
                self._unwritten.append({**flood.last, "times": flood.counted})
        self._append()

    def _append(self) -> None:
        """Write the lines that wait for it, as far as the disk takes them."""
        path = self._folder / _LOG
        with suppress(StorageError):
            while self._unwritten:
                line = self._unwritten[0]
                with storing(path):
                    if path.exists() and path.stat().st_size + len(json.dumps(line)) + 2 > _LARGEST:
                        path.replace(path.with_name(_OLDER))
                append_line(path, line)
                self._unwritten.popleft()


class Pace:
    """Notes of a run's pace. Two lines lie a thousandth of the run's age apart, so the file stays small for ever.

    Args:
        folder: of the run.
        now: seconds since 1970.
    """

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._path = folder / PACE
        self._now = now
        earlier = paces(self._path)
        self._began = earlier[0]["time"] if earlier else now()
        self._written = float("-inf")
        self._state = ""

    def note(self, state: str, *, turn: int, journal_bytes: int) -> None:
        """Tell where the run stands; it is written down if the state is another one, or some time has passed.

        Args:
            state: as in the status: "training", "waiting", "paused", "finished", ...
            turn: turns that are done.
            journal_bytes: that the journal takes on the disk.
        """
        now = self._now()
        passed = now - self._written
        due = passed >= max(_APART, (now - self._began) / _SHARE) or passed < 0  # a clock may be set back
        if not due and state == self._state:
            return
        line = {"time": round(now, 3), "turn": turn, "state": state, "journal_bytes": journal_bytes}
        append_line(self._path, line)
        self._written, self._state = now, state


@dataclass(frozen=True)
class Telling:
    """Where a run stands: for whoever started it, for its status file and for its log.

    Attributes:
        status: of the run.
        wait: told while a peer lets us wait.
        alarm: told of everything that was refused.
        trace: told of each point that the run passes.
    """

    status: Status
    wait: Waiting
    alarm: Alarm
    trace: Callable[[str], None]

    def waiting(self, peer: str, seconds: float, why: str) -> None:
        """Say that a peer lets us wait."""
        self.status.update(state="waiting", peer=peer, waiting_seconds=round(seconds), why=why, at_once=True)
        self.wait(peer, seconds, why)

    def refused(self, peer: str, about: str, reason: str) -> None:
        """Raise an alarm."""
        self.status.log("refused", peer=peer, field=about, reason=reason)
        self.alarm(peer, about, reason)


def read(folder: Folder | str | Path) -> list[dict[str, Any]]:
    """The status of every run in a party's folder, newest first; alarms are counted, and the last events are added.

    What can't be read is said under "problems" and does not stop the rest.
    """
    path = folder.path if isinstance(folder, Folder) else Path(folder)
    if not (path / "party.toml").exists():
        raise UsageError(f"{path} is no party's folder: make one with `tacit init`, or say which with --folder")
    found = [read_run(status.parent) for status in sorted((path / "runs").glob(f"*/{_FILE}"))]
    return sorted(found, key=lambda one: str(one["time"]), reverse=True)


def read_run(folder: Path, *, events: int = 5) -> dict[str, Any]:
    """One run's status; of a damaged one what is known all the same.

    Args:
        folder: of the run.
        events: how many of the last ones are wanted.
    """
    path, problems = folder / _FILE, list[str]()
    try:
        content = json.loads(path.read_bytes())
        wrong = _wrong(content)
    except (OSError, ValueError, RecursionError) as error:
        content, wrong = {}, str(error)
    if wrong:
        content = {"run": path.parent.name, "state": "unknown", "time": ""}
        problems.append(f"{path} can't be read ({wrong[:100]}): `tacit train` writes it anew when it goes on")
    told = _events(path.with_name(_OLDER), problems) + _events(path.with_name(_LOG), problems)
    times = [event.get("times", 1) for event in told if event["event"] == "refused"]
    content["alarms"] = sum(many if type(many) is int else 1 for many in times)
    content["events"] = told[-events:]
    if content.get("mode") == "one_shot":
        content["parts"] = [
            {"part": one["part"], "time": one["time"]}
            for one in told
            if one["event"] == "part" and type(one.get("part")) is str
        ]
        content["left"] = _left(told)
    content["gate"] = _gate(path.with_name("gate.jsonl"), problems)
    content["alive"] = alive(content.get("pid"))
    content["problems"] = problems
    return dict(content)


def paces(path: Path) -> list[dict[str, Any]]:
    """All lines of a run's pace, in their order; one that a crash cut short is left out."""
    kinds = {"time": (int, float), "turn": (int,), "state": (str,), "journal_bytes": (int,)}
    return [said for said in read_lines(path) if all(type(said.get(name)) in kind for name, kind in kinds.items())]


def _wrong(content: Any) -> str:
    """What is wrong with a status, in a few words; nothing where it can be shown."""
    if not isinstance(content, dict):
        return f"it is a {type(content).__name__}"
    kinds = {**_ALWAYS, **_SOMETIMES}
    missing = [name for name in _ALWAYS if name not in content]
    for first, *others in _TOGETHER:
        missing += [name for name in others if first in content and name not in content]
    odd = [name for name, kind in kinds.items() if name in content and type(content[name]) is not kind]
    if "turns" in content and "turns" not in odd and content["turns"] < 1:
        odd.append("turns")
    if "history" in content and "history" not in odd and not all(map(_shows, content["history"])):
        odd.append("history")
    told = (("missing", missing), ("of another kind", odd))
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in told if names)


def _shows(line: Any) -> bool:
    """Whether a line of the history is an epoch and its figures."""
    return isinstance(line, dict) and "epoch" in line and all(type(value) in (int, float) for value in line.values())


def _events(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The lines of a log; those that say nothing are counted among the problems."""
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        problems.append(f"{path} can't be read ({error.strerror})")
        return []
    events, lost = [], 0
    for line in filter(None, lines):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict) and type(event.get("event")) is type(event.get("time")) is str:
            events.append(event)
        else:
            lost += 1
    if lost:
        problems.append(f"{path}: {lost} of {len(events) + lost} lines can't be read; a crash cuts the last one short")
    return events


def _left(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What left this party in one exchange, each thing once: what, to whom, when, of how many rows, how many bytes."""
    kinds = {"time": str, "what": str, "to": str, "rows": int, "bytes": int}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in events:
        if one["event"] == "left" and all(type(one.get(name)) is kind for name, kind in kinds.items()):
            found.setdefault((one["what"], one["to"]), {name: one[name] for name in kinds})
    return list(found.values())


def _gate(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """The last decision about a limit; None where there was none."""
    try:
        told = sealed_log.read(path, shown=True)
    except (OSError, StorageError) as error:
        problems.append(str(error))
        return None
    return told[-1] if told else None


def alive(pid: Any) -> bool:
    """Whether the process that writes a run is there."""
    try:
        number = int(pid)
        if number > 0:  # others stand for whole groups of processes
            os.kill(number, 0)
    except (OSError, TypeError, ValueError, OverflowError):
        return False
    return number > 0


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
