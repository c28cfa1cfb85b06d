"""A service's log."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

Log = Callable[..., None]
"""Told what happened, in a word, and more about it by name; never an id."""


def log_to_stderr(event: str, **details: object) -> None:
    """A line of JSON on the error stream."""
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **details}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()


class Seldom:
    """A log that no peer can flood: of each event so many lines a minute; the next one says how many had no place."""

    MOST = 60

    def __init__(self, log: Log, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._lines: dict[str, tuple[float, int]] = {}  # of each event: since when, how often
        self._lock = threading.Lock()

    def __call__(self, event: str, **details: object) -> None:
        """Log an event, or count it."""
        now = self._now()
        with self._lock:
            began, count = self._lines.get(event, (now, 0))
            left_out = 0
            if now - began >= 60:
                began, count, left_out = now, 0, max(0, count - self.MOST)
            self._lines[event] = began, count + 1
        if count < self.MOST:
            self._log(event, **details, **({"left_out": left_out} if left_out else {}))
