"""The worst case over many visits: what a peer can tell of a label that knows everything but the label.

An example's own gradient hardly changes from epoch to epoch while the noise is fresh, so a peer compares its visits. In
the worst case the gradient is the same at every visit. What all visits say together is then in two parts. Their best
average has the covariance

    T_k = C_k + (sum over the visits of N_k,t^-1)^-1          for class k

and tells what two Gaussians tell whose means are the gap w apart: a sumKL of (tr(T0^-1 D T1^-1 D) + w' (T0^-1 + T1^-1)
w) / 2 with D = T1 - T0. And how the visits scatter about their average is the noise itself: where that differs between
the classes, E visits are as good as E - 1 draws of it, and tell E - 1 times the sumKL of N_0 and N_1. The two parts are
independent and add up; this is exact where the noise of the visits differs by its power alone.

The figure of a sumKL K is Phi(sqrt(K/2)), which was at or above the likelihood ratio's AUC in every family tried. It is
a statement under the full-covariance Gaussian model with the moments that were measured, not a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import NormalDist

import torch
from torch import Tensor

from tacit.errors import UsageError
from tacit.ledger.moments import Moments

__all__ = ["PRECISE", "auc_of", "enough", "forecast", "rows_needed", "sum_kl_of", "unseen", "worst_case"]

ROWS_PER_NUMBER = 4
"""Rows of each class that a covariance of width d needs at least, for each of its d numbers."""

PRECISE = 0.02
"""The standard error of a sumKL that is good enough: an AUC of 0.6 allows 0.128."""

_LARGE = 5.0  # standard errors: a sumKL beyond is large for certain, however many rows it is from
_NOTHING = 1e-12  # of the largest variance: below it a direction is empty
_CLEARLY = 2.0  # standard errors that the scatter's part must reach: below that it may be none


@dataclass(frozen=True)
class _Visits:
    """Visits that are judged together: what was measured of them, how many they are, and by how much louder."""

    moments: Moments
    visits: int
    louder: float = 1.0

    def noise(self, half: int | None) -> Tensor:
        """N_0 and N_1; more noise is added to both classes alike, less is less for each.  (2, width, width)"""
        noise = self.moments.noises_of(half)
        if self.louder <= 1:
            return noise * self.louder
        share = self.moments.rows(None) / self.moments.rows(None).sum()
        pooled = (self.moments.noises * share[:, None, None]).sum(0)
        return noise + (self.louder - 1) * pooled


def auc_of(sum_kl: float) -> float:
    """The figure for a sumKL: Phi(sqrt(K/2)).

    >>> round(auc_of(0.1284), 3), auc_of(math.inf)
    (0.6, 1.0)
    """
    return NormalDist().cdf(math.sqrt(max(0.0, sum_kl) / 2))


def sum_kl_of(auc: float) -> float:
    """The sumKL that a figure allows: 2 z^2 with z = Phi^-1(AUC).

    >>> round(sum_kl_of(0.6), 4), sum_kl_of(1.0)
    (0.1284, inf)
    """
    if not 0.5 <= auc <= 1.0:
        raise UsageError(f"a leak AUC of {auc!r}: it lies between 0.5, a coin flip, and 1")
    return math.inf if auc == 1.0 else 2 * NormalDist().inv_cdf(auc) ** 2


def enough(epochs: Sequence[Moments]) -> bool:
    """Whether so many rows were measured that the worst case is known: precisely, or as large for certain.

    A difference between two covariances of width d has d^2 / 2 numbers, each with an error of its own, so this takes
    about 140 rows for each of the d numbers where the classes have equally many, and more where one is rare.
    """
    if not _possible(epochs):
        return False
    error = _error(_Visits(_merged(epochs), 1))
    return error <= PRECISE or worst_case(epochs) >= _LARGE * error


def rows_needed(width: int, share: float) -> float:
    """Rows that have to be measured until the worst case is known precisely, however small it is.

    Args:
        width: numbers for each example.
        share: of positives among the rows.

    >>> round(rows_needed(128, 0.5)), round(rows_needed(128, 0.1))
    (36345, 100958)
    """
    return 2 / (share * (1 - share)) * math.sqrt(width * (width + 1) / 2) / PRECISE


def unseen(epochs: Sequence[Moments], visits: int) -> float:
    """The sumKL that the scatter of so many visits could tell without being seen in these moments."""
    return _CLEARLY * visits * _error(_Visits(_merged(epochs), 1))


def _possible(epochs: Sequence[Moments]) -> bool:
    return bool(epochs) and all(
        sum(one.counts[k] for one in epochs) >= ROWS_PER_NUMBER * epochs[0].width for k in (0, 1)
    )


def _merged(epochs: Sequence[Moments]) -> Moments:
    return reduce(Moments.merged, epochs)


def worst_case(epochs: Sequence[Moments], visits: int | None = None) -> float:
    """The sumKL that all visits of one example leave together; `auc_of` makes the figure of it.

    Where the gap or the classes' covariances change over the epochs, those of the worst epoch count, under the noise
    of all of them. Epochs with too few rows for a covariance are taken together with those after them. Several runs
    are independent trainings: their sumKL add up. With few rows the figure is rough: see `enough`.

    Args:
        epochs: what was measured in each epoch, in order.
        visits: how often the most visited example was answered; one for each epoch if not given. Visits beyond
            the last epoch that was measured have its noise.
    """
    _check(epochs)
    wanted = len(epochs) if visits is None else visits
    if wanted < 1:
        return 0.0
    groups = _grouped(epochs[:wanted])
    last = groups[-1]
    return _judged([*groups[:-1], replace(last, visits=last.visits + max(0, wanted - len(epochs)))])


def forecast(epochs: Sequence[Moments], epochs_left: int, factor: float = 1.0) -> float:
    """The sumKL at the end, if the epochs that are left go on like the last one.

    Args:
        epochs: what was measured so far.
        epochs_left: that are still to come.
        factor: what the power of their noise is multiplied by. More of it is taken to be added to both classes
            alike, as `matched` adds it.
    """
    _check(epochs)
    if epochs_left < 0 or not factor > 0:
        raise UsageError(f"forecast for {epochs_left} epochs with noise times {factor}: neither can be so")
    groups = _grouped(epochs)
    return _judged([*groups, _Visits(groups[-1].moments, epochs_left, factor)] if epochs_left else groups)


def _check(epochs: Sequence[Moments]) -> None:
    if not _possible(epochs):
        counts = [sum(one.counts[k] for one in epochs) for k in (0, 1)]
        width = epochs[0].width if epochs else 0
        raise UsageError(
            f"{counts[0]} negative and {counts[1]} positive rows of {width} numbers were measured, too few for their "
            f"covariances: measure at least {ROWS_PER_NUMBER * width} of each"
        )


def _grouped(epochs: Sequence[Moments]) -> list[_Visits]:
    """Epochs in order, those with few rows together with the next; what is left over goes with the last."""
    groups: list[_Visits] = []
    rest: _Visits | None = None
    for one in epochs:
        rest = _Visits(one, 1) if rest is None else _joined(rest, _Visits(one, 1))
        if _possible([rest.moments]) and _error(rest) <= PRECISE:
            groups.append(rest)
            rest = None
    if rest is not None:
        groups = [*groups[:-1], _joined(groups[-1], rest)] if groups else [rest]
    return groups


def _joined(one: _Visits, two: _Visits) -> _Visits:
    return _Visits(one.moments.merged(two.moments), one.visits + two.visits)


def _judged(groups: Sequence[_Visits]) -> float:
    """What the scatter tells, and the most that the average tells of any group's classes."""
    left = [_left(groups, half) for half in (0, 1, None)]
    return _scatter(groups) + max(_average(group.moments, left) for group in groups)


# --- the average -----------------------------------------------------------------------------------------------------


def _left(groups: Sequence[_Visits], half: int | None) -> Tensor:
    """(sum of N^-1)^-1 of each class: what the best average of all visits leaves of the noise.  (2, width, width)

    The inverse of an estimate is too large on average, so the sum comes out too small by about 1 - (1 - sum of q^2)
    (d + 1)/n, where q is each sample's share in it; classes have different n, and what differs between them would
    count as leak.
    """
    width = groups[0].moments.width
    precision = torch.zeros(2, width, width, dtype=torch.float64)
    shares: dict[int, float] = {}
    error, weight = torch.zeros(2, dtype=torch.float64), 0.0
    for group in groups:
        precision += group.visits * _inverse(group, half)
        own = group.visits / group.louder
        shares[id(group.moments)] = shares.get(id(group.moments), 0.0) + own
        error += own * (width + 1) / group.moments.rows(half)
        weight += own
    apart = 1 - sum((share / weight) ** 2 for share in shares.values())
    left: Tensor = torch.linalg.inv(precision) / (1 - apart * error / weight).clamp(min=0.1)[:, None, None]
    return left


def _inverse(group: _Visits, half: int | None, *, pooled: bool = False) -> Tensor:
    """N^-1 of each class, or of all rows; in a direction without noise it is very large, not infinite."""
    noise, spread = group.noise(half), group.moments.spreads(half)
    if pooled:
        share = group.moments.rows(half) / group.moments.rows(half).sum()
        noise, spread = ((each * share[:, None, None]).sum(0) for each in (noise, spread))
    floor = _NOTHING * (noise + spread).diagonal(dim1=-2, dim2=-1).mean(-1)
    inverse: Tensor = torch.linalg.inv(noise + floor[..., None, None] * torch.eye(noise.shape[-1], dtype=noise.dtype))
    return inverse


def _average(moments: Moments, left: Sequence[Tensor]) -> float:
    """The sumKL of one group's classes; products of the two halves, so that errors of estimation do not add up."""
    first, second, whole = (moments.spreads(half) + noise for half, noise in zip((0, 1, None), left, strict=True))
    variances, axes = torch.linalg.eigh(whole.mean(0))
    used = variances > _NOTHING * variances[-1]
    basis = axes[:, used] / variances[used].sqrt()  # (width, rank): in it the classes' mean covariance is the unit

    def inside(value: Tensor) -> Tensor:
        seen: Tensor = basis.T @ value @ basis
        return seen

    small = _NOTHING * torch.eye(basis.shape[1], dtype=basis.dtype)
    inverse = [torch.linalg.inv(inside(each) + small) for each in whole]
    apart = [inside(each[1] - each[0]) for each in (first, second)]
    shape = torch.trace(inverse[0] @ apart[0] @ inverse[1] @ apart[1])
    gaps = [basis.T @ moments.gaps(half) for half in (0, 1)]
    shift = gaps[0] @ (inverse[0] + inverse[1]) @ gaps[1]
    return float(shape.clamp(min=0.0) + shift.clamp(min=0.0)) / 2


# --- the scatter -----------------------------------------------------------------------------------------------------


def _scatter(groups: Sequence[_Visits]) -> float:
    """What the differences between visits tell: nothing, as long as it is not clearly more than its own error.

    It is summed over all visits, and so is its error: at width 128 and a thousand positives that of fifteen visits
    would be many times the budget of an AUC of 0.6.

    Whether it is clearly more is asked in units of the noise of all rows. The inverse of a rare class's own noise comes
    from the very rows that are held against it, and finds a difference where there is none.
    """
    visits = sum(group.visits for group in groups)
    found, seen, error = 0.0, 0.0, {id(group.moments): 0.0 for group in groups}
    for group in groups:
        first, second = (noise[1] - noise[0] for noise in (group.noise(half) for half in (0, 1)))
        (zero, one), alike = _inverse(group, None), _inverse(group, None, pooled=True)
        found += group.visits * float(torch.trace(zero @ first @ one @ second)) / 2
        seen += group.visits * float(torch.trace(alike @ first @ alike @ second)) / 2
        error[id(group.moments)] += group.visits * _error(group)
    if seen < _CLEARLY * math.hypot(*error.values()):
        return 0.0
    return (1 - 1 / visits) * max(0.0, found)


def _error(group: _Visits) -> float:
    """The standard error of a sumKL of these moments, where the classes are alike and Gaussian."""
    width = group.moments.width
    halves = [float((1 / group.moments.rows(half)).sum()) for half in (0, 1)]
    return math.sqrt(halves[0] * halves[1] * width * (width + 1) / 2)
