"""Ridge regression in closed form, in float64, its penalty chosen on examples that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Tensor

from tacit.audit import views

_PENALTIES = tuple(10.0 ** (power / 2) for power in range(-20, 7))  # times the largest eigenvalue
_FLAT = 1e-12  # directions with less than this share of the largest energy are rounding and are left out


@dataclass(frozen=True)
class Line:
    """A linear map with its offset: x = z @ weight + bias."""

    weight: Tensor  # (width, inputs), float64
    bias: Tensor  # (inputs,), float64

    def __call__(self, z: Tensor) -> Tensor:
        """The map of each row, in float32.  (rows, width) -> (rows, inputs)"""
        each = self.weight.shape[0] + self.weight.shape[1]
        parts = [z[part].double() @ self.weight + self.bias for part in views.slices(z.shape[0], each)]
        return torch.cat(parts).float()


def ridge(z: Tensor, x: Tensor, fit: Tensor, held: Tensor, *, refit: bool = True) -> Line:
    """The linear map of least squared error plus penalty.

    Its penalty is the one with which the rows to fit say most about those held out; an endless one, which is the mean,
    is among those tried. With `refit` the rows held out are fitted as well, once the penalty is chosen.
    """
    both = torch.cat([fit, held])
    basis = _span(z[both]) if z.shape[1] > both.numel() else None
    middle = x[both].mean(0, dtype=torch.float64)
    first, other = (_sums(z, x, rows, middle, basis) for rows in (fit, held))
    penalty = _chosen(first, other)
    whole = first + other if refit else first
    if penalty is None:
        weight = torch.zeros(z.shape[1], x.shape[1], dtype=torch.float64, device=z.device)
        return Line(weight, middle + whole.x / whole.count)
    energy, axes = torch.linalg.eigh(whole.zz_around(whole))
    share = whole.count / first.count  # as strong for each row as it was when it was chosen
    weight = axes @ ((axes.mT @ whole.zx_around(whole)) / (energy.clamp_min(0.0) + penalty * share)[:, None])
    bias = middle + (whole.x - whole.z @ weight) / whole.count
    return Line(weight if basis is None else basis @ weight, bias)


@dataclass(frozen=True)
class _Sums:
    """All that a regression needs of its rows; they add up, and the rows themselves are never in float64 at once."""

    count: float
    z: Tensor  # (width,)
    x: Tensor  # (inputs,)
    zz: Tensor  # (width, width)
    zx: Tensor  # (width, inputs)

    def __add__(self, other: _Sums) -> _Sums:
        mine, others = vars(self).values(), vars(other).values()
        return _Sums(*(a + b for a, b in zip(mine, others, strict=True)))

    def zz_around(self, centre: _Sums) -> Tensor:
        """Products of the embeddings with themselves, around the mean of these or of other rows."""
        mean = centre.z / centre.count
        cross = torch.outer(self.z, mean)
        return self.zz - cross - cross.mT + self.count * torch.outer(mean, mean)

    def zx_around(self, centre: _Sums) -> Tensor:
        """Products of embeddings and inputs, around the means of these or of other rows."""
        z, x = centre.z / centre.count, centre.x / centre.count
        return self.zx - torch.outer(self.z, x) - torch.outer(z, self.x) + self.count * torch.outer(z, x)


def _sums(z: Tensor, x: Tensor, rows: Tensor, middle: Tensor, basis: Tensor | None) -> _Sums:
    """The sums over some rows, inputs taken around `middle` so that nothing cancels."""

    def of(part: slice) -> _Sums:
        a, b = z[rows[part]].double(), x[rows[part]].double() - middle
        a = a if basis is None else a @ basis
        return _Sums(float(len(a)), a.sum(0), b.sum(0), a.mT @ a, a.mT @ b)

    return reduce(add, map(of, views.slices(rows.numel(), z.shape[1] + x.shape[1])))


def _span(z: Tensor) -> Tensor:
    """An orthonormal basis of few rows in a wide space: the best map has nothing outside it.  (width, rank)"""
    z = z.double()
    energy, turned = torch.linalg.eigh(z @ z.mT)
    kept = energy > _FLAT * energy[-1].clamp_min(torch.finfo(torch.float64).tiny)
    basis: Tensor = z.mT @ (turned[:, kept] / energy[kept].sqrt())
    return basis


def _chosen(fit: _Sums, held: _Sums) -> float | None:
    """The penalty with the least error on the rows held out; None where the mean is better than all.

    In the axes of the rows that are fitted every penalty costs a product of two small matrices and no pass over rows.
    """
    energy, axes = torch.linalg.eigh(fit.zz_around(fit))
    energy = energy.clamp_min(0.0)
    largest = float(energy[-1]) if energy.numel() else 0.0
    if largest == 0.0:
        return None
    pull = axes.mT @ fit.zx_around(fit)  # (width, inputs)
    straight = (pull * (axes.mT @ held.zx_around(fit))).sum(1)
    square = (pull @ pull.mT) * (axes.mT @ held.zz_around(fit) @ axes)
    best, least = None, 0.0  # what is compared is the error less that of the mean
    for penalty in _PENALTIES:
        shrunk = 1 / (energy + penalty * largest)
        error = float(shrunk @ square @ shrunk - 2 * shrunk @ straight)
        if error < least:
            best, least = penalty * largest, error
    return best
