"""The plan of `matched`: noise that gives both classes one covariance, and enough of it for a number of visits.

All of it is for Gaussian classes with full covariances C_0, C_1 and a gap w of their means; in float64, for a stack.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.protect.gradient._base import Strength, per_problem

DOUBLINGS = 12  # of the common noise, at most, while a plan for many visits looks for enough of it
COVARIANCE_SHARE = 1 / 8  # of the allowed sumKL; common noise is cheap beside noise along the gap


@dataclass(frozen=True)
class Classes:
    """What the noise has to hide.

    Attributes:
        covariance: of each class, in the leading coordinates.  (stack, 2, rank, rank)
        rest: its variance in each other coordinate.  (stack, 2)
        others: how many other coordinates there are.
        gap: from the negative to the positive mean, in the leading coordinates.  (stack, rank)
        share: of positives.  (stack,)
    """

    covariance: Tensor
    rest: Tensor
    others: int
    gap: Tensor
    share: Tensor

    @property
    def distance(self) -> Tensor:
        """The squared distance D of the means.  (stack,)"""
        return (self.gap * self.gap).sum(-1)

    @property
    def width(self) -> int:
        """How many coordinates there are in all."""
        return self.gap.shape[-1] + self.others


@dataclass(frozen=True)
class Plan:
    """Noise for each class, all but the part along the gap, which every batch adds for its own gap.

    Attributes:
        covariance: of the noise, in the leading coordinates.  (stack, 2, rank, rank)
        rest: its variance in each other coordinate.  (stack, 2)
        leak: the sumKL that the covariances alone leave over all visits.  (stack,)
        seen: the covariance of an example's mean over its visits, C_k + N_k / E.  (stack, 2, rank, rank)
        seen_rest: its variance in each other coordinate.  (stack, 2)
    """

    covariance: Tensor
    rest: Tensor
    leak: Tensor
    seen: Tensor
    seen_rest: Tensor

    def power(self, others: int) -> Tensor:
        """The expected squared norm of a row's noise, for each class.  (stack, 2)"""
        return _trace(self.covariance) + others * self.rest


def plan(classes: Classes, *, visits: int, smooth: float, floor: float, sum_kl: Strength | None) -> Plan:
    """Lift both classes to one covariance and add noise that is common to both.

    The common noise is `smooth` times the pooled covariance and `floor` times D/d in every direction. An attacker who
    averages several visits of one example sees less of the noise and, again, some of the classes' own covariances; so
    for a wanted sumKL over several visits there is a third part, in the directions in which the classes differ, of the
    least size that brings what the covariances alone give away down to a small share of the whole.
    """
    spread = classes.covariance[:, 1] - classes.covariance[:, 0]
    values, vectors = torch.linalg.eigh(spread)
    lift = torch.stack(  # what the negative and the positive class lack of their common covariance
        [_compose(vectors, values.clamp(min=0)), _compose(vectors, (-values).clamp(min=0))], dim=1
    )
    lift_rest = classes.rest.amax(1, keepdim=True) - classes.rest
    common, common_rest = _common(classes, smooth, floor)
    noise, rest = lift + common, lift_rest + common_rest
    if sum_kl is not None and visits > 1:
        noise, rest = _blur(classes, noise, rest, values, vectors, visits, sum_kl * COVARIANCE_SHARE)
    leak = _covariance_leak(classes, noise, rest, visits)
    return Plan(noise, rest, leak, classes.covariance + noise / visits, classes.rest + rest / visits)


def _blur(
    classes: Classes, noise: Tensor, rest: Tensor, values: Tensor, vectors: Tensor, visits: int, allowed: Strength
) -> tuple[Tensor, Tensor]:
    """Noise with as much common to both classes as keeps the leak of their covariances at what is allowed.

    In a direction in which the variances differ by s, common noise n much larger than both leaves about
    E(E-1)/2 (s/n)^2 over E visits. The least power for a given sum of these has n proportional to s^(2/3); its size
    follows in closed form, and is then brought down to what is really needed.
    """
    gap_rest = (classes.rest[:, 1] - classes.rest[:, 0]).abs()
    weight = (values.abs() ** (2 / 3)).sum(-1) + classes.others * gap_rest ** (2 / 3)
    size = (visits * (visits - 1) * weight / (2 * allowed)).sqrt()
    shape = _compose(vectors, values.abs() ** (2 / 3))[:, None]
    shape_rest = (gap_rest ** (2 / 3))[:, None]

    def noise_at(amount: Tensor) -> tuple[Tensor, Tensor]:
        return noise + amount[:, None, None, None] * shape, rest + amount[:, None] * shape_rest

    def enough(amount: Tensor) -> Tensor:
        return _covariance_leak(classes, *noise_at(amount), visits) <= allowed

    low = high = size / 8
    for _ in range(DOUBLINGS):
        fine = enough(high)
        if bool(fine.all()):
            break
        low, high = torch.where(fine, low, high), torch.where(fine, high, 2 * high)
    for _ in range(2):
        middle = (low * high).sqrt()
        fine = enough(middle)
        low, high = torch.where(fine, low, middle), torch.where(fine, middle, high)
    return noise_at(high)


def along_gap(pull: Tensor, leak: Tensor, *, visits: int, sum_kl: Strength) -> Tensor:
    """How much noise along the gap w, in multiples of w w^T, brings all visits together down to `sum_kl`.

    With M the covariance that an attacker sees, pull = w^T M^-1 w is what the shift of the means gives away; noise of
    extra w w^T at each of E visits leaves pull / (1 + extra pull / E) of it.

    Args:
        pull: for each class, because M may still differ a little between them.  (stack, 2)
        leak: what the covariances have spent of the budget already.  (stack,)
        visits: how many there will be.
        sum_kl: what may be left after all of them.
    """
    allowed = per_problem(sum_kl, leak)
    budget = (allowed - leak).clamp(min=allowed / 4)
    return visits * (1 / budget - 1 / pull.amax(-1).clamp(min=1e-30)).clamp(min=0)


def _common(classes: Classes, smooth: float, floor: float) -> tuple[Tensor, Tensor]:
    """Noise that both classes get alike.  (stack, 1, rank, rank), (stack, 1)"""
    weights = torch.stack([1 - classes.share, classes.share], dim=-1)
    pooled = (classes.covariance * weights[..., None, None]).sum(1)
    pooled_rest = (classes.rest * weights).sum(-1)
    size = _trace(pooled) + classes.others * pooled_rest
    level = (floor * classes.distance + 1e-6 * size) / classes.width  # never quite zero: every direction gets some
    eye = torch.eye(pooled.shape[-1], dtype=pooled.dtype, device=pooled.device)
    return (smooth * pooled + level[:, None, None] * eye)[:, None], (smooth * pooled_rest + level)[:, None]


def _covariance_leak(classes: Classes, noise: Tensor, rest: Tensor, visits: int) -> Tensor:
    """The sumKL that the covariances alone leave when an example whose gradient does not change is visited often.

    The visits of one example are its gradient plus independent noise. Their mean has covariance C_k + N_k / E, and
    their differences, E - 1 independent ones, bare N_k; both are all that an attacker can use.
    """
    if visits == 1:
        return torch.zeros_like(classes.distance)
    mean = _divergence(classes.covariance + noise / visits) + classes.others * _ratio(classes.rest + rest / visits)
    return mean + (visits - 1) * (_divergence(noise) + classes.others * _ratio(rest))


def _divergence(covariance: Tensor) -> Tensor:
    """sumKL of two centred Gaussians A and B: tr(A^-1 (B-A) B^-1 (B-A)) / 2, exact also where B is near A."""
    difference = (covariance[:, 1] - covariance[:, 0])[:, None].expand(-1, 2, -1, -1)
    root, info = torch.linalg.cholesky_ex(covariance)
    solved = torch.cholesky_solve(difference, root)  # A^-1 (B-A) and B^-1 (B-A)
    leak = (solved[:, 0] * solved[:, 1].mT).sum((-2, -1)) / 2
    return torch.where((info == 0).all(-1), leak, torch.inf)


def _ratio(variance: Tensor) -> Tensor:
    """The same in one dimension.  (stack, 2) -> (stack,)"""
    a, b = variance.clamp(min=1e-300).unbind(-1)
    return (a - b) ** 2 / (2 * a * b)


def _compose(vectors: Tensor, values: Tensor) -> Tensor:
    return (vectors * values[:, None, :]) @ vectors.mT


def _trace(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
