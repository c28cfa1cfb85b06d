"""The gate: from what attacks reached, and what they would reach at other strengths, to what is done next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Action", "Figure", "OnLimit", "Verdict", "decide"]

Action = Literal["keep", "raise", "lower", "pause", "stop", "resume"]
OnLimit = Literal["raise noise", "pause", "stop"]

_ROOM = 0.01  # so far below the limit a weaker strength must lie to be taken: what just holds would be raised again


@dataclass(frozen=True)
class Figure:
    """What one attack reached, or would reach, in the measure of the limit.

    Attributes:
        attack: its name.
        on: single messages ("batches"), or all visits of an example together ("visits").
        value: the estimate.
        low: where this is above the limit, the limit is broken beyond doubt.
        upper: what is held against the limit.
    """

    attack: str
    on: Literal["batches", "visits"]
    value: float
    low: float
    upper: float

    def __str__(self) -> str:
        over = "over all visits" if self.on == "visits" else "on single messages"
        return f"{self.attack} {over}: {self.value:.3f}, at most {self.upper:.3f}"


@dataclass(frozen=True)
class Verdict:
    """What is done next.

    Attributes:
        action: "keep", "raise" or "lower" the strength, "pause" or "stop" the training.
        level: of the strength from now on.
        reason: for the owner alone.
        broken: whether what was sent already has broken the limit beyond doubt.
        worst: of what was measured on what was sent; None before anything was.
        foreseen: the worst at the level that was chosen.
    """

    action: Action
    level: int
    reason: str
    broken: bool = False
    worst: Figure | None = None
    foreseen: Figure | None = None


def decide(
    measured: Sequence[Figure],
    foresee: Callable[[int], Sequence[Figure]],
    *,
    limit: float,
    on_limit: OnLimit,
    level: int,
    highest: int,
    may_lower: bool = False,
) -> Verdict:
    """The least strength that holds the limit, upwards first; or to send nothing more.

    What was sent can't be taken back: where all visits of an example together have passed the limit, no strength
    helps, and what attacks say is the same at every level. So everything is decided by what is foreseen, which includes
    what was sent.

    Args:
        measured: attacks on what was sent since the last decision, and on all visits so far.
        foresee: what attacks would reach at a level: on messages like the last ones, and over all visits that are
            planned, those so far included.
        limit: that no figure's upper end may pass.
        on_limit: whether the strength may be raised.
        level: of the strength so far.
        highest: level there is; 0 where the strength can't be raised.
        may_lower: whether one level less may be tried, which needs some room below the limit.
    """
    worst = _worst(measured)
    broken = any(one.low > limit for one in measured)
    over = [one for one in measured if one.upper > limit]
    first = level if not over else level + 1  # what was measured counts more than what is foreseen
    if may_lower and level > 0 and not over:
        below = _worst(foresee(level - 1))
        if below is not None and below.upper <= limit - _ROOM:
            return Verdict("lower", level - 1, f"there is room: {below}", broken, worst, below)
    most = highest if on_limit == "raise noise" else level
    seen, cause = None, _worst(over)
    for one in range(first, most + 1):
        seen = _worst(foresee(one))
        if seen is None or seen.upper <= limit:
            if one == level:
                return Verdict("keep", level, f"the limit {limit:g} holds: {seen or worst}", broken, worst, seen)
            reason = f"the limit {limit:g} would be passed by {cause}; level {one} holds it: {seen}"
            return Verdict("raise", one, reason, broken, worst, seen)
        cause = cause or seen
    reason = f"the limit {limit:g} can't be held: {seen or cause}"
    return Verdict("stop" if on_limit == "stop" else "pause", level, reason, broken, worst, seen)


def _worst(figures: Sequence[Figure]) -> Figure | None:
    return max(figures, key=lambda one: one.upper, default=None)
