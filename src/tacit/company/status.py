"""What a run says about itself in its folder: where it stands, and what happened. `tacit.report.status` reads it."""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit.disk import append_line, known_json, read_lines, storing, write_json
from tacit.errors import StorageError, TacitError
from tacit.wire.line import Alarm, Waiting

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
    """

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.monotonic, **fixed: Any) -> None:
        self._folder = folder
        self._clock = now
        before = known_json(folder / _FILE)
        self._finished = isinstance(before, dict) and before.get("state") == "finished"
        self._now: dict[str, Any] = {**(before if self._finished else {}), **fixed, "pid": os.getpid()}
        self._written = float("-inf")
        self._floods: dict[tuple[str, str], _Flood] = {}
        self._unwritten: deque[dict[str, Any]] = deque(maxlen=_WAITING)
        self._pace = Pace(folder)

    def update(self, *, at_once: bool = False, **changes: Any) -> None:
        """Change some fields; the file follows at once, or when a second has passed since it was written.

        A run that is finished stays so, whatever becomes of starting it again.
        """
        if self._finished:
            changes = {name: value for name, value in changes.items() if name not in ("state", "reason")}
        self._now.update(changes)
        self._count(everything=changes.get("state") == "finished")
        where = {"turn": self._now.get("turn", 0), "journal_bytes": self._now.get("journal_bytes", 0)}
        with suppress(StorageError):
            self._pace.note(self._now.get("state", "preparing"), **where)
        if at_once or self._clock() - self._written >= _PAUSE:
            self._now["time"], self._written = _time(), float("-inf")
            with suppress(StorageError):
                write_json(self._folder / _FILE, self._now, durable=False)
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
    """Notes of a run's pace. Two lines lie a thousandth of the run's age apart, so the file stays small for ever."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._path = folder / PACE
        self._now = now
        earlier = paces(self._path)
        self._began = earlier[0]["time"] if earlier else now()
        self._written = float("-inf")
        self._state = ""

    def note(self, state: str, *, turn: int, journal_bytes: int) -> None:
        """Tell where the run stands; it is written down if the state is another one, or some time has passed."""
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
    """Where a run stands: for whoever started it, for its status file and for its log."""

    status: Status  # of the run
    wait: Waiting  # told while a peer lets us wait
    alarm: Alarm  # told of everything that was refused
    trace: Callable[[str], None]  # told of each point that the run passes
    patience: float = field(default=math.inf, kw_only=True)  # seconds for which a peer may be missing

    def waiting(self, peer: str, seconds: float, why: str) -> None:
        """Say that a peer lets us wait."""
        self.status.update(state="waiting", peer=peer, waiting_seconds=round(seconds), why=why, at_once=True)
        self.wait(peer, seconds, why)

    def refused(self, peer: str, about: str, reason: str) -> None:
        """Raise an alarm."""
        self.status.log("refused", peer=peer, field=about, reason=reason)
        self.alarm(peer, about, reason)

    def gone(self, rows: int) -> None:
        """Say how many aligned rows the table no longer has, to its owner alone."""
        if rows:
            self.status.log("gone", rows=rows)
            self.status.update(gone=rows, at_once=True)


def gone_before(folder: Path) -> dict[str, Any]:
    """How many rows the table no longer had when the run in a folder was begun, as its status says."""
    with suppress(OSError, ValueError):
        said = json.loads((folder / _FILE).read_bytes())
        return {name: said[name] for name in ("gone",) if name in said}
    return {}


def cause(error: Exception) -> str:
    """Why a run has stopped, for its owner alone."""
    if isinstance(error, TacitError):
        return str(error)
    return f"{type(error).__name__}: {error}: give the same command again, and report this where it comes again"


def paces(path: Path) -> list[dict[str, Any]]:
    """All lines of a run's pace, in their order; one that a crash cut short is left out."""
    kinds = {"time": (int, float), "turn": (int,), "state": (str,), "journal_bytes": (int,)}
    return [said for said in read_lines(path) if all(type(said.get(name)) in kind for name, kind in kinds.items())]


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
