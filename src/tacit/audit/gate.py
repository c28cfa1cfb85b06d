"""The gate: from what attacks reached, and what they would reach at other strengths, to what is done next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

Action = Literal["keep", "raise", "lower", "pause", "stop", "resume"]
OnLimit = Literal["raise noise", "pause", "stop"]

_NORMAL = NormalDist()
_ROOM = 0.01  # so far below the limit a weaker strength must lie to be taken: what just holds would be raised again


@dataclass(frozen=True)
class Figure:
    """What one attack reached, or would reach, in the measure of the limit."""

    attack: str  # its name
    on: Literal["batches", "visits"]  # single messages ("batches"), or all visits of an example together ("visits")
    value: float  # the estimate
    low: float  # where this is above the limit, the limit is broken beyond doubt
    upper: float  # what is held against the limit
    limit: float | None = None  # its own, where that is not the one of attacks: the budget of a ledger's worst case
    bound: float = 0.0  # what is certain, where it is no measurement at all

    def over(self, limit: float) -> float:
        """How far it is above its limit; below it, that is negative."""
        return self.upper - (limit if self.limit is None else self.limit)

    def __str__(self) -> str:
        over = "over all visits" if self.on == "visits" else "on single messages"
        return f"{self.attack} {over}: {self.value:.3f}, at most {self.upper:.3f}"


def grown(figures: Sequence[Figure], visits: int, planned: int, louder: float) -> list[Figure]:
    """What attacks on all visits will reach in the end, if each visit to come tells as much as one so far.

    Under the Gaussian model the squares of z = Phi^-1(AUC) add up over visits; in those to come the noise's power is
    `louder` times what it was. Figures on single messages are left out.

    >>> one = Figure("cosine", "visits", 0.55, 0.53, 0.57)
    >>> round(grown([one], 1, 3, 1.0)[0].value, 3), round(grown([one], 1, 3, 2.0)[0].value, 3)
    (0.586, 0.571)
    """
    more = (1 + (planned - visits) / (visits * louder)) ** 0.5
    found = []
    for one in figures:
        if one.on == "visits" and one.limit is None:
            value = _NORMAL.cdf(more * _NORMAL.inv_cdf(min(max(one.value, 0.5), 1 - 1e-9)))
            found.append(replace(one, value=value, low=0.5, upper=min(1.0, value + one.upper - one.value)))
    return found


@dataclass(frozen=True)
class Verdict:
    """What is done next."""

    action: Action  # "keep", "raise" or "lower" the strength, "pause" or "stop" the training
    level: int  # of the strength from now on
    reason: str  # for the owner alone
    broken: bool = False  # whether what was sent already has broken the limit beyond doubt
    worst: Figure | None = None  # of what was measured on what was sent; None before anything was
    foreseen: Figure | None = None  # the worst at the level that was chosen


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

    What was sent can't be taken back: where all visits of an example together have passed the limit, no strength helps,
    and what attacks say is the same at every level. So everything is decided by what is foreseen at a level, on
    messages like the last ones and over all visits that are planned, which includes what was sent. One level less,
    where it may be tried, needs some room below the limit.
    """
    worst = _worst(measured, limit)
    broken = any(one.low > limit for one in measured if one.limit is None)
    over = [one for one in measured if one.over(limit) > 0]
    first = level if not over else level + 1  # what was measured counts more than what is foreseen
    if may_lower and level > 0 and not over:
        below = _worst(foresee(level - 1), limit)
        if below is not None and below.over(limit) <= -_ROOM:
            return Verdict("lower", level - 1, f"there is room: {below}", broken, worst, below)
    most = highest if on_limit == "raise noise" else level
    seen, cause = None, _worst(over, limit)
    for one in range(first, most + 1):
        seen = _worst(foresee(one), limit)
        if seen is None:  # what could not be tried may leak everything
            break
        if seen.over(limit) <= 0:
            if one == level:
                return Verdict("keep", level, f"{_limit(seen, limit)} holds: {seen}", broken, worst, seen)
            reason = f"{_limit(cause, limit)} would be passed by {cause}; level {one} holds it: {seen}"
            return Verdict("raise", one, reason, broken, worst, seen)
        cause = cause or seen
    told = seen or cause or "no attack could be tried, as on batches of one class: agree on a larger batch_size"
    reason = f"{_limit(seen or cause, limit)} can't be held: {told}"
    return Verdict("stop" if on_limit == "stop" else "pause", level, reason, broken, worst, seen)


def _worst(figures: Sequence[Figure], limit: float) -> Figure | None:
    return max(figures, key=lambda one: one.over(limit), default=None)


def _limit(figure: Figure | None, limit: float) -> str:
    if figure is None or figure.limit is None:
        return f"the limit {limit:g}"
    return f"the budget {figure.limit:g}"
