"""The worst case over many visits: what a peer can tell of a label that knows everything but the label.

An example's own gradient hardly changes from epoch to epoch while the noise is fresh, so a peer averages. In the worst
case the gradient is the same at every visit; the best average then has the covariance

    T_k = C_k + (sum over the visits of N_k,t^-1)^-1          for class k

and what it tells is that of two Gaussians with means that are the gap apart, and these covariances: their sumKL is
K = (tr(T0^-1 D T1^-1 D) + w' (T0^-1 + T1^-1) w) / 2 with D = T1 - T0, and the figure is Phi(sqrt(K/2)), which was at or
above the likelihood ratio's AUC in every family tried. It is a statement under the full-covariance Gaussian model with
the moments that were measured, not a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from tacit.errors import UsageError
from tacit.ledger.moments import Moments

__all__ = ["auc_of", "enough", "forecast", "sum_kl_of", "worst_case"]

ROWS_PER_NUMBER = 4
"""Rows of each class that a covariance of width d needs, for each of its d numbers."""

_NOTHING = 1e-12  # of the largest variance: below it a direction is empty


@dataclass(frozen=True)
class _Visits:
    """Epochs that are judged together, because one alone has too few rows: their moments, and how many visits."""

    moments: Moments
    visits: float


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
    """Whether so many rows were measured that there is a worst case."""
    return bool(epochs) and all(
        sum(one.counts[k] for one in epochs) >= ROWS_PER_NUMBER * epochs[0].width for k in (0, 1)
    )


def worst_case(epochs: Sequence[Moments], visits: int | None = None) -> float:
    """The sumKL that all visits of one example leave together; `auc_of` makes the figure of it.

    Where the gap or the classes' covariances change over the epochs, those of the worst epoch count, under the noise
    of all of them. Epochs with too few rows for a covariance are taken together with those after them. Several runs
    are independent trainings: their sumKL add up.

    Args:
        epochs: what was measured in each epoch, in order.
        visits: how often the most visited example was answered; one for each epoch if not given. Visits beyond
            the last epoch that was measured have its noise.
    """
    _check(epochs)
    more = len(epochs) if visits is None else visits
    if more < 1:
        return 0.0
    return _judged(_grouped(epochs[:more], max(0, more - len(epochs))))


def forecast(epochs: Sequence[Moments], epochs_left: int, factor: float = 1.0) -> float:
    """The sumKL at the end, if the epochs that are left go on like the last one.

    Args:
        epochs: what was measured so far.
        epochs_left: that are still to come.
        factor: what the power of their noise is multiplied by.
    """
    _check(epochs)
    if epochs_left < 0 or not factor > 0:
        raise UsageError(f"forecast for {epochs_left} epochs with noise times {factor}: neither can be so")
    return _judged(_grouped(epochs, epochs_left / factor))  # f times the noise adds 1/f of a visit's precision


def _check(epochs: Sequence[Moments]) -> None:
    if not enough(epochs):
        counts = [sum(one.counts[k] for one in epochs) for k in (0, 1)]
        width = epochs[0].width if epochs else 0
        raise UsageError(
            f"{counts[0]} negative and {counts[1]} positive rows of {width} numbers were measured, too few for their "
            f"covariances: measure at least {ROWS_PER_NUMBER * width} of each"
        )


def _grouped(epochs: Sequence[Moments], extra: float) -> list[_Visits]:
    """Epochs in order, those with few rows together with the next; what is left over goes with the last.

    So many extra visits have the noise of the last ones.
    """
    groups: list[_Visits] = []
    open_group: _Visits | None = None
    for one in epochs:
        open_group = _Visits(one, 1) if open_group is None else _joined(open_group, _Visits(one, 1))
        if enough([open_group.moments]):
            groups.append(open_group)
            open_group = None
    if open_group is not None:
        groups = [*groups[:-1], _joined(groups[-1], open_group)] if groups else [open_group]
    last = groups[-1]
    return [*groups[:-1], _Visits(last.moments, last.visits + extra)]


def _joined(one: _Visits, two: _Visits) -> _Visits:
    return _Visits(one.moments.merged(two.moments), one.visits + two.visits)


def _judged(groups: Sequence[_Visits]) -> float:
    """The largest sumKL that any group's classes have under the noise that is left of all visits."""
    left = [_left(groups, half) for half in (0, 1, None)]
    return max(_sum_kl(group.moments, left) for group in groups)


def _left(groups: Sequence[_Visits], half: int | None) -> Tensor:
    """(sum of N^-1)^-1 of each class: what the best average of all visits leaves of the noise.  (2, width, width)

    The inverse of an estimate is too large on average, so what is left after m groups comes out too small by
    about 1 - (1 - 1/m) (d + 1)/n; classes have different n, and what differs between them would count as leak.
    """
    width = groups[0].moments.width
    precision = torch.zeros(2, width, width, dtype=torch.float64)
    error = torch.zeros(2, dtype=torch.float64)
    for group in groups:
        noise = group.moments.noises_of(half)
        floor = _NOTHING * (_mean_variance(noise) + _mean_variance(group.moments.spreads(half)))
        precision += group.visits * torch.linalg.inv(noise + floor[:, None, None] * torch.eye(width, dtype=noise.dtype))
        error += group.visits * (width + 1) / group.moments.rows(half)
    visits = sum(group.visits for group in groups)
    short = 1 - (1 - 1 / len(groups)) * error / visits
    left: Tensor = torch.linalg.inv(precision) / short.clamp(min=0.1)[:, None, None]
    return left


def _mean_variance(each: Tensor) -> Tensor:
    return each.diagonal(dim1=-2, dim2=-1).mean(-1)


def _sum_kl(moments: Moments, left: Sequence[Tensor]) -> float:
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
    return max(0.0, float(shape.clamp(min=0.0) + shift.clamp(min=0.0)) / 2)
