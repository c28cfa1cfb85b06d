"""What an audit of an embedding found, and what may be said of the largest of many figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import ndtr

from tacit.contracts import Estimate

_ALARM = 0.05  # how often chance alone may trip what is said of all figures together
_RARE = 0.01  # of that, how often it may trip what is said of figures with few members
Z95 = 1.959963984540054  # the standard normal's 97.5% quantile: half of a 95% interval, in standard errors


@dataclass(frozen=True)
class Finding:
    """How well one question was answered."""

    column: str  # what it is about; of a conjunction its columns, with " & " between them
    # "variance", "lowest", "highest", "between 28% and 50%" (of the rows, from the lowest number on), "values told
    # apart", "category 'red'" (7 where nobody named it), "rare categories", "codes told apart" or "codes"
    question: str
    rows: str  # which rows were judged: "all", "train", "test", "outlying" or "matched"
    given: bool  # whether all other columns of the row were known; then what the embedding adds to them is counted
    decoder: str  # that answered best on known rows it had not learnt from
    members: int  # how many judged rows are in the tail, band or set, or of the category; of "variance" and "codes" all
    # from 0, nothing, to 1, everything, with a 95% interval: the share of the variance, 2 AUC - 1, or the share of the
    # codes that are right among those that the most common code is wrong about
    read: Estimate
    # whether the upper end is held against a limit. With few members it is wide whatever is read: then it counts once
    # something is surely read
    counted: bool


@dataclass(frozen=True)
class ReleaseAudit:
    """What can be read of the rows from an embedding.

    A limit is held against `worst`. The largest true figure lies above it in at most 2.5 of 100 audits, however many
    figures there are, because the upper end of that very figure is among those compared: no correction is needed. The
    price of many figures is paid in false alarms: `slack` says how far below a limit all true figures must lie, such
    that chance alone refuses at most 5 of 100 releases. "True" is what these decoders would read of endless rows like
    these, with these known rows; somebody who knows more rows, or a better decoder, may read more.
    """

    findings: tuple[Finding, ...]  # the figures, largest upper end first
    conjunction: Finding | None  # the one of these about several columns of which most may be read
    worst: float  # the largest upper end of those that count, or `sure` where that is higher
    sure: float  # that much is read of something, with a false-alarm rate of 5% over all figures together
    slack: float  # see above
    # how many rows decoders learnt from, how many were looked up, and on how many decoders were chosen
    known: dict[str, int]
    judged: dict[str, int]  # rows of each kind that were judged
    matched: float  # the share of judged rows whose embedding is that of some known row
    fingerprints: float  # the share whose embedding is that of at most four known rows
    # of pairs of rows that are equal in all columns, the share with equal embeddings; None without such pairs
    equal: float | None
    notes: tuple[str, ...]  # what was left out, and why

    def holds(self, limit: float) -> bool:
        """Whether nothing is read beyond a limit from 0 to 1."""
        return self.worst <= limit

    @property
    def numbers(self) -> float:
        """The mean share of the numbers' variance that is read: to compare embeddings with, never to decide by."""
        return self._mean("variance")

    @property
    def codes(self) -> float:
        """The mean share of the categories' codes that is read: to compare embeddings with, never to decide by."""
        return self._mean("codes")

    def _mean(self, question: str) -> float:
        found = [
            one.read.value for one in self.findings if one.question == question and one.rows == "all" and not one.given
        ]
        return float(np.mean(found)) if found else 0.0

    def columns(self) -> dict[str, Finding]:
        """The worst finding about each column, among those that count."""
        found: dict[str, Finding] = {}
        for one in self.findings:
            if one.counted:
                found.setdefault(one.column, one)
        return found

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {**asdict(self), "numbers": self.numbers, "codes": self.codes}


def estimate(value: float, error: float) -> Estimate:
    """A figure from 0 to 1 with its 95% interval."""
    ends = (value, value - Z95 * error, value + Z95 * error)
    return Estimate(*(float(min(1.0, max(0.0, end))) for end in ends))


def surely_read(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The figures with the largest upper end first; those with few members count if something is surely read of them.

    Whoever marks the rows of a rare category reads nearly all of it. Then few rows are enough to be sure that something
    is read, but not of how much: what is held against a limit is the upper end.
    """
    apart = NormalDist().inv_cdf(1 - _RARE / max(1, sum(not finding.counted for finding in found)))
    settled = (
        replace(finding, counted=finding.counted or finding.read.value > apart * _error(finding.read))
        for finding in found
    )
    return tuple(sorted(settled, key=lambda finding: -finding.read.high))


def largest(found: Sequence[Finding]) -> tuple[float, float, float]:
    """`worst`, `sure` and `slack` of a `ReleaseAudit` with these findings."""
    apart = NormalDist().inv_cdf(1 - _ALARM / max(1, len(found)))
    sure = max((finding.read.value - apart * _error(finding.read) for finding in found), default=0.0)
    counted = [finding.read for finding in found if finding.counted]
    highest = max((read.high for read in counted), default=1.0)
    return max(highest, sure), max(0.0, sure), _slack([_error(read) for read in counted])


def _error(read: Estimate) -> float:
    """The standard error behind an interval that may have been cut at 0 or 1."""
    return max(read.high - read.value, read.value - read.low) / Z95


def _slack(errors: list[float]) -> float:
    """How far above the truth the largest upper end lies at most, but for 5 of 100 audits."""
    units, low, high = 1 / np.maximum(errors, 1e-9), 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        alarms = ndtr(Z95 - middle * units).sum()
        low, high = (middle, high) if alarms > _ALARM - _RARE else (low, middle)
    return high
