"""The gate: from what attacks reached, and what they would reach in what is to come, to what is done next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

Action = Literal["keep", "pause", "stop", "resume"]
OnLimit = Literal["pause", "stop"]

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Figure:
    """What one attack reached, or would reach, in the measure of the limit."""

    attack: str  # its name
    on: Literal["batches", "visits"]  # single messages ("batches"), or all visits of an example together ("visits")
    value: float  # the estimate
    low: float  # where this is above the limit, the limit is broken beyond doubt
    upper: float  # what is held against the limit
    bound: float = 0.0  # what is certain, where it is no measurement at all

    def over(self, limit: float) -> float:
        """How far it is above a limit; below it, that is negative. What is no number may hide everything."""
        if any(math.isnan(each) for each in (self.value, self.low, self.upper)):
            return math.inf
        return self.upper - limit

    def __str__(self) -> str:
        over = "over all visits" if self.on == "visits" else "on single messages"
        return f"{self.attack} {over}: {self.value:.3f}, at most {self.upper:.3f}"


def grown(figures: Sequence[Figure], visits: int, planned: int) -> list[Figure]:
    """What attacks on all visits will reach in the end, if each visit to come tells as much as one so far.

    Under the Gaussian model the squares of z = Phi^-1(AUC) add up over visits. Figures on single messages are left out.

    >>> one = Figure("cosine", "visits", 0.55, 0.53, 0.57)
    >>> round(grown([one], 1, 3)[0].value, 3)
    0.586
    """
    more = (planned / visits) ** 0.5
    found = []
    for one in figures:
        if one.on == "visits":
            value = _NORMAL.cdf(more * _NORMAL.inv_cdf(min(max(one.value, 0.5), 1 - 1e-9)))
            found.append(replace(one, value=value, low=0.5, upper=min(1.0, value + one.upper - one.value)))
    return found


@dataclass(frozen=True)
class Verdict:
    """What is done next."""

    action: Action  # "keep" on, "pause" or "stop" the training
    reason: str  # for the owner alone
    broken: bool = False  # whether what was sent already has broken the limit beyond doubt
    worst: Figure | None = None  # of what was measured on what was sent; None before anything was
    foreseen: Figure | None = None  # the worst of what is to come


def decide(measured: Sequence[Figure], foreseen: Sequence[Figure], *, limit: float, on_limit: OnLimit) -> Verdict:
    """To go on, where the limit holds for what was sent and for all that is planned; or to send nothing more.

    What was sent can't be taken back, so messages like the last ones are attacked together with it, over all visits
    that are planned, before one more leaves. Where nothing could be foreseen, everything may leak.
    """
    worst, to_come = _worst(measured, limit), _worst(foreseen, limit)
    broken = any(one.low > limit for one in measured)
    over = _worst([one for one in measured if one.over(limit) > 0], limit)
    if over is None and to_come is not None and to_come.over(limit) <= 0:
        return Verdict("keep", f"the limit {limit:g} holds: {to_come}", broken, worst, to_come)
    cause = over or to_come
    told = cause or "no attack could be tried, as on batches of one class: agree on a larger batch_size"
    return Verdict(on_limit, f"the limit {limit:g} can't be held: {told}", broken, worst, to_come)


def _worst(figures: Sequence[Figure], limit: float) -> Figure | None:
    return max(figures, key=lambda one: one.over(limit), default=None)
