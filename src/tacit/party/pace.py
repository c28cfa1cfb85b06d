"""How a run went, in time: when which turn was done, and when it waited. For pages that show it, a few lines a minute.

Unlike everything else in a run's folder it is not repeated after a kill: time does not come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.disk import append_line, read_lines

__all__ = ["PACE", "Pace", "paces"]

PACE = "pace.jsonl"
_LEAST = 2.0  # seconds between two lines
_SHARE = 1000  # of the run's whole time lies between two lines, so that a month has few thousand of them


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
        due = passed >= max(_LEAST, (now - self._began) / _SHARE) or passed < 0  # a clock may be set back
        if not due and state == self._state:
            return
        line = {"time": round(now, 3), "turn": turn, "state": state, "journal_bytes": journal_bytes}
        append_line(self._path, line)
        self._written, self._state = now, state


def paces(path: Path) -> list[dict[str, Any]]:
    """All lines of a run's pace, in their order; one that a crash cut short is left out."""
    kinds = {"time": (int, float), "turn": (int,), "state": (str,), "journal_bytes": (int,)}
    return [said for said in read_lines(path) if all(type(said.get(name)) in kind for name, kind in kinds.items())]
