"""Batches for Marvell, and its noise by hand."""

import math

import torch
from scipy.stats import chi2
from torch import Tensor

from tacit.split.protect.gradient.marvell import Solution

ALARM = 1e-6  # chance that one statistical check fails though all is right; a few hundred are made in this file


def batch(
    seed: int, rows: int = 400, width: int = 6, *, share: float = 0.3, u: float = 1.0, v: float = 0.4, gap: float = 2.0
) -> tuple[Tensor, Tensor]:
    """Two isotropic Gaussian classes, in float64; the line of their means is the same for every seed."""
    g = torch.Generator().manual_seed(seed)
    labels = (torch.arange(rows) < round(share * rows)).double()[torch.randperm(rows, generator=g)]
    deviation = torch.where(labels > 0, math.sqrt(v), math.sqrt(u))
    line = torch.arange(1, width + 1, dtype=torch.float64).cos()
    grad = torch.randn(rows, width, generator=g, dtype=torch.float64) * deviation[:, None]
    return grad + labels[:, None] * math.sqrt(gap) * line / line.norm(), labels


def by_hand(grad: Tensor, labels: Tensor, s: Solution, e: Tensor, normal: Tensor) -> Tensor:
    """The perturbed gradient for given standard normals, row by row."""
    rows = []
    for g, y, n in zip(grad, labels, normal, strict=True):
        along, across = (s.along_pos, s.across_pos) if y == 1 else (s.along_neg, s.across_neg)
        rows.append(g + (n @ e) * e * math.sqrt(along) + (n - (n @ e) * e) * math.sqrt(across))
    return torch.stack(rows)


def chi_square(squares: Tensor, freedom: int) -> None:
    """A sum of squares of standard normals lies where it should, but for a chance of ALARM."""
    low, high = chi2.interval(1 - ALARM, freedom)
    assert low < float(squares) < high, f"{float(squares) / freedom} instead of 1"
