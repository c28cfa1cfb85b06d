"""What a run says about itself in its folder: where it stands, and what happened."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit.errors import UsageError
from tacit.party._files import replaced, storing
from tacit.party.folder import Folder

__all__ = ["Status", "read"]

_FILE, _LOG = "status.json", "log.jsonl"
_PAUSE = 1.0  # seconds between two writes of what changes at every step


class Status:
    """The status file and the log of one run, for its owner alone.

    The file is replaced as a whole, so that a reader sees one state or the next; the log is only added to.

    Args:
        folder: of the run.
        fixed: what stays the same during a run.
    """

    def __init__(self, folder: Path, **fixed: Any) -> None:
        self._folder = folder
        self._now: dict[str, Any] = {**fixed, "pid": os.getpid()}
        self._written = 0.0

    def update(self, *, at_once: bool = False, **changes: Any) -> None:
        """Change some fields; the file follows at once, or when a second has passed since it was written."""
        self._now.update(changes)
        if at_once or time.monotonic() - self._written >= _PAUSE:
            self._now["time"] = _time()
            told = json.dumps(self._now, indent=2) + "\n"
            replaced(self._folder / _FILE, lambda file: file.write(told.encode()), durable=False)
            self._written = time.monotonic()

    def log(self, event: str, **details: Any) -> None:
        """Add a line about something that happened."""
        path = self._folder / _LOG
        with storing(path), path.open("a") as file:
            file.write(json.dumps({"time": _time(), "event": event, **details}) + "\n")


def read(folder: Folder | str | Path) -> list[dict[str, Any]]:
    """The status of every run in a party's folder, newest first; alarms are counted, and the last events are added."""
    path = folder.path if isinstance(folder, Folder) else Path(folder)
    if not (path / "party.toml").exists():
        raise UsageError(f"{path} is no party's folder: make one with `tacit init`, or say which with --folder")
    found = []
    for status in sorted((path / "runs").glob(f"*/{_FILE}")):
        content: dict[str, Any] = json.loads(status.read_text())
        events = _events(status.with_name(_LOG))
        content["alarms"] = sum(event["event"] == "refused" for event in events)
        content["events"] = events[-5:]
        content["alive"] = _alive(content.get("pid"))
        found.append(content)
    return sorted(found, key=lambda one: str(one["time"]), reverse=True)


def _events(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # a line that a crash cut short says nothing
            continue
    return events


def _alive(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except (OSError, TypeError, ValueError):
        return False
    return True


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
