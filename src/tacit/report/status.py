"""What a run says of itself in its folder: where it stands, what happened, what its gate decided."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import StorageError, UsageError
from tacit.report import seals

STATUS, LIVE, GATE, PACE, REPORT = "status.json", "live.jsonl", "gate.jsonl", "pace.jsonl", "report.json"
LOGS = ("log.older.jsonl", "log.jsonl")
"""The older one is what the log was when it had become too large."""

# What a status may hold, of which kind; the first ones are always there.
_ALWAYS = {"run": str, "party": str, "role": str, "state": str, "time": str}
_SOMETIMES = {
    "turn": int, "turns": int, "steps": int, "epoch": int, "epochs": int, "history": list, "journal_bytes": int,
    "peer": str, "waiting_seconds": int, "why": str, "reason": str, "pid": int, "mode": str, "part": str, "done": int,
    "total": int, "label_bound": dict, "release": dict, "limit": float, "gone": int, "unpaid": int,
}  # fmt: skip
_TOGETHER = (("turn", "turns", "epoch", "epochs"), ("why", "peer", "waiting_seconds"), ("part", "done", "total"))
_LEFT = {"time": str, "what": str, "to": str, "rows": int, "bytes": int}


def read(folder: str | Path) -> list[dict[str, Any]]:
    """The status of every run in a party's folder, newest first; alarms are counted, and the last events are added.

    What can't be read is said under "problems" and does not stop the rest.
    """
    path = Path(folder)
    if not (path / "party.toml").exists():
        raise UsageError(f"{path} is no party's folder: make one with `tacit init`, or say which with --folder")
    runs = [read_run(status.parent) for status in sorted((path / "runs").glob(f"*/{STATUS}"))]
    return sorted(runs, key=lambda run: str(run["time"]), reverse=True)


def read_run(folder: Path) -> dict[str, Any]:
    """A run's status, its last events and the gate's last decision; of a damaged one what is known all the same."""
    status, events, decisions = read_all(folder)
    return {**status, "events": events[-5:], "gate": decisions[-1] if decisions else None}


def read_all(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """One run's status, all events of its log, and all that its gate decided."""
    path, problems = folder / STATUS, list[str]()
    try:
        status = json.loads(path.read_bytes())
        wrong = _wrong(status)
    except (OSError, ValueError, RecursionError) as error:
        status, wrong = {}, str(error)
    if wrong:
        status = {"run": folder.name, "state": "unknown", "time": ""}
        problems.append(f"{path} can't be read ({wrong[:100]}): `tacit train` writes it anew when it goes on")
    events = [event for name in LOGS for event in _events(folder / name, problems)]
    times = [event.get("times", 1) for event in events if event["event"] == "refused"]
    status["alarms"] = sum(many if type(many) is int else 1 for many in times)
    if status.get("mode") == "one_shot":
        status["parts"] = [
            {"part": event["part"], "time": event["time"]}
            for event in events
            if event["event"] == "part" and type(event.get("part")) is str
        ]
    status["left"] = _left(events)
    try:
        decisions = seals.read(folder / GATE, shown=True)
    except (OSError, StorageError) as error:
        decisions = []
        problems.append(str(error))
    return {**status, "alive": alive(status.get("pid")), "problems": problems}, events, decisions


def alive(pid: Any) -> bool:
    """Whether the process that writes a run is there."""
    try:
        number = int(pid)
        if number > 0:  # others stand for whole groups of processes
            os.kill(number, 0)
    except (OSError, TypeError, ValueError, OverflowError):
        return False
    return number > 0


def _wrong(status: Any) -> str:
    """What is wrong with a status, in a few words; nothing where it can be shown."""
    if not isinstance(status, dict):
        return f"it is a {type(status).__name__}"
    kinds = {**_ALWAYS, **_SOMETIMES}
    missing = [name for name in _ALWAYS if name not in status]
    for first, *others in _TOGETHER:
        missing += [name for name in others if first in status and name not in status]
    odd = [name for name, kind in kinds.items() if name in status and type(status[name]) is not kind]
    if "turns" in status and "turns" not in odd and status["turns"] < 1:
        odd.append("turns")
    for line in status.get("history", []) if "history" not in odd else []:
        if not isinstance(line, dict) or "epoch" not in line or {type(value) for value in line.values()} - {int, float}:
            odd.append("history")
            break
    problems = (("missing", missing), ("of another kind", odd))
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in problems if names)


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
    """What left this party for a run, each thing once: what, to whom, when, of how many rows, how many bytes."""
    left: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        if event["event"] == "left" and all(type(event.get(name)) is kind for name, kind in _LEFT.items()):
            left.setdefault((event["what"], event["to"]), {name: event[name] for name in _LEFT})
    return list(left.values())


class Tail:
    """The lines of a file that have not been read yet.

    A line that is not finished is left for the next time. A file that was written anew, or is shorter than before, is
    read from its beginning; whoever keeps what was read before must forget it then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._inode = -1

    def anew(self) -> bool:
        """Whether all lines before are void, because the file is gone, another one, or shorter; then it starts over."""
        try:
            stat = self._path.stat()
            inode, size = stat.st_ino, stat.st_size
        except OSError:
            inode, size = -1, 0
        over = self._place > 0 and (inode != self._inode or size < self._place)
        if over:
            self._place = 0
        self._inode = inode
        return over

    def fresh(self) -> Iterator[dict[str, Any]]:
        """The new lines, a piece of the file at a time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                for text in file:
                    if not text.endswith(b"\n"):
                        return
                    self._place += len(text)
                    try:
                        line = json.loads(text)
                    except (ValueError, RecursionError):
                        continue
                    if isinstance(line, dict):
                        yield line
        except OSError:  # not there, or not for us: as if it were empty
            return
