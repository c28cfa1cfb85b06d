"""How fast a run went, and when it stood still, from its lines of pace."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

_MOVING = ("training", "catching up")
_LATELY = 12  # lines of which the rate now is the mean
_STANDING = ("waiting", "paused")

Line = tuple[float, int, str, int]
"""Time in seconds since 1970, turns done, state, bytes of the journal."""


def seconds(text: str) -> float | None:
    """Seconds since 1970 of a time as it stands in files."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):  # a date at the end of all dates is one here, and none in another zone
        return None


def rate_now(lines: Sequence[Line]) -> float | None:
    """Turns in a second lately, waiting included; None where a run does not move."""
    lately: list[Line] = []  # since the run was last started and had prepared
    for line in lines[-_LATELY:]:
        lately = [] if line[2] == "preparing" else [*lately, line]
    if len(lately) < 2 or lately[-1][2] not in (*_MOVING, "waiting"):
        return None
    took = lately[-1][0] - lately[0][0]
    return (lately[-1][1] - lately[0][1]) / took if took > 0 else None


def pace_of(lines: Sequence[Line], events: Sequence[dict[str, Any]], points: int) -> dict[str, Any]:
    """The pace for a page: rates, stalls, reconnections, the journal."""
    every = max(1, -(-len(lines) // points))
    kept = list(lines[::every])
    if lines and kept[-1] != lines[-1]:
        kept.append(lines[-1])
    met = [seconds(event["time"]) for event in events if event["event"] == "connected"]
    rates: list[float | None] = [None] if kept else []
    for before, after in itertools.pairwise(kept):  # none over a standstill or a new start
        moved = after[2] != "preparing" and before[2] not in _STANDING and after[0] > before[0]
        rates.append(max(0.0, (after[1] - before[1]) / (after[0] - before[0])) if moved else None)
    return {
        "time": [line[0] for line in kept],
        "turn": [line[1] for line in kept],
        "rate": rates,
        "journal": [line[3] for line in kept],
        "stalls": _stalls(lines),
        "connected": [time for time in met if time is not None],
    }


def _stalls(lines: Sequence[Line]) -> list[tuple[float, float, str]]:
    """When nothing moved: waiting for a peer, held by a limit, or stopped until somebody started it again."""
    stalls: list[tuple[float, float, str]] = []
    for before, after in itertools.pairwise(lines):
        why = "stopped" if after[2] == "preparing" and before[2] != "preparing" else before[2]
        if why not in (*_STANDING, "stopped"):
            continue
        if stalls and stalls[-1][1:] == (before[0], why):
            stalls[-1] = (stalls[-1][0], after[0], why)
        else:
            stalls.append((before[0], after[0], why))
    return stalls
