"""The squared distance correlation from random projections: no pair of rows is looked at.

The mean over all directions u of |u.v| is the length of v but for a constant, so the distance covariance of two sets of
rows is the mean, over pairs of directions, of that of two columns of numbers, but for constants that cancel in the
correlation (Huang and Huo, "A statistically and numerically efficient independence test based on random projections and
distance covariance", 2017). For two columns it is found in n log n: it is linear in each column as long as no two
numbers of it change places, so it is the product of the column with its own slope.

Which two directions meet matters far more than which directions there are. So each pair that was looked at counts by
how much it differs from two normal columns of the same covariance, and to that comes the mean of what those would have
over all pairs, which one product of matrices gives. The mean stays what it was; the error is a quarter and less.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.dependence._exact import standardized

GRID = 2.0**-40  # projections are rounded to this share of the largest one, so that equal rows have equal projections
CHUNK = {"cpu": 2**16}  # numbers in the columns that are worked on together, so that they stay in a CPU's cache


def squared_correlation(x: Tensor, z: Tensor, one: Tensor, other: Tensor, *, unbiased: bool) -> Tensor:
    """An estimate of `_exact.squared_correlation`, differentiable; chance may take it above 1 or below 0.

    Args:
        x: rows in any floating dtype.  (stack, n, p)
        z: as many rows.  (stack, n, q)
        one: normal numbers that become directions for x, two or more of them.  (stack, p, projections)
        other: as many directions for z.  (stack, q, projections)
        unbiased: take the bias-corrected version; n must be 4 or more.

    Returns:
        In float64.  (stack,)
    """
    from_x, from_z = columns_of(x, one), columns_of(z, other)  # (stack, projections, n)
    covariance = between(from_x, from_z, unbiased=unbiased)
    of_x, of_z = (within(side, unbiased=unbiased) for side in (from_x, from_z))
    empty = (of_x <= 0) | (of_z <= 0)  # neither side varies, or chance says so
    product = torch.where(empty, 1.0, of_x * of_z)
    return torch.where(empty, 0.0, covariance / product.sqrt())


def between(x: Tensor, z: Tensor, *, unbiased: bool) -> Tensor:
    """The squared distance covariance of two sides, but for a constant, from columns of each.  (stack,)"""
    spread = _normal(x, z)  # (stack, projections, projections)
    looked_at = spread.diagonal(dim1=1, dim2=2)
    return (_covariance(x, z, unbiased) - looked_at).mean(-1) + spread.mean((1, 2))


def within(columns: Tensor, *, unbiased: bool) -> Tensor:
    """The squared distance variance of one side: each direction meets the next one, never itself.  (stack,)"""
    count = columns.shape[1]
    spread = _normal(columns, columns)
    looked_at = spread.roll(1, 2).diagonal(dim1=1, dim2=2)
    others = (spread.sum((1, 2)) - spread.diagonal(dim1=1, dim2=2).sum(-1)) / (count * (count - 1))
    return (_covariance(columns, columns.roll(1, 1), unbiased) - looked_at).mean(-1) + others


def _normal(x: Tensor, y: Tensor) -> Tensor:
    """What each pair of columns would have as squared distance covariance if they were normal, with many rows.

    Theorem 7 of Szekely, Rizzo and Bakirov, "Measuring and testing dependence by correlation of distances" (2007).
    Columns have mean 0.  (stack, projections, n) twice -> (stack, projections, projections)
    """
    of_x, of_y = (_deviation(side) for side in (x, y))  # (stack, projections, 1)
    r = (x / of_x) @ (y / of_y).mT / x.shape[-1]
    fixed = r.detach().clamp(-1.0, 1.0)
    half = fixed / 2
    value = fixed * fixed.asin() + (1 - fixed**2).sqrt() - fixed * half.asin() - (4 - fixed**2).sqrt() + 1
    tangent = fixed.asin() - half.asin()
    return 4 / math.pi * of_x * of_y.mT * (value + tangent * (r - r.detach()))


def _deviation(columns: Tensor) -> Tensor:
    """The standard deviation of columns with mean 0; 1 for one that does not vary, which is all 0."""
    variance = columns.square().mean(-1, keepdim=True)
    return torch.where(variance == 0, 1.0, variance).sqrt()


def columns_of(rows: Tensor, normals: Tensor) -> Tensor:
    """The rows along each direction, rounded a little.  (stack, projections, n)"""
    narrow = _scaled(rows)
    directions = normals / torch.linalg.vector_norm(normals, dim=1, keepdim=True)
    columns: Tensor = directions.mT @ narrow.mT
    fixed = columns.detach()
    step = fixed.abs().amax(-1, keepdim=True) * GRID
    return columns + ((fixed / step.masked_fill(step == 0, 1.0)).round() * step - fixed)


def _scaled(rows: Tensor) -> Tensor:
    """The rows as the exact version has them, with the gradient of their size alone: a shift changes nothing."""
    fixed, scale = standardized(rows.detach())
    if not rows.requires_grad:
        return fixed
    return fixed + (rows - rows.detach()).double() / scale


def _covariance(x: Tensor, y: Tensor, unbiased: bool) -> Tensor:
    """The squared distance covariance of columns, with its gradient in both.  (..., n) twice -> (...)"""
    shape, n = x.shape[:-1], x.shape[-1]
    flat, other = x.reshape(-1, n), y.reshape(-1, n)
    several = max(1, CHUNK.get(x.device.type, 2**22) // n)
    parts = [_linear(a, b, unbiased) for a, b in zip(flat.split(several), other.split(several), strict=True)]
    return torch.cat(parts).reshape(shape)


def _linear(x: Tensor, y: Tensor, unbiased: bool) -> Tensor:
    """The covariance as the product of a column and its slope, once for each column that has a gradient."""
    value = (y * slope(x.detach(), y.detach(), unbiased=unbiased)).sum(-1)
    if not x.requires_grad:
        return value
    pull = (x * slope(y.detach(), x.detach(), unbiased=unbiased)).sum(-1)
    return value + (pull - pull.detach())


def slope(x: Tensor, y: Tensor, *, unbiased: bool) -> Tensor:
    """The derivative in y of the squared distance covariance of each pair of columns; y times it is the covariance.

    With a_ij = |x_i - x_j| and s_ij the sign of y_i - y_j, it is made of the sums over j of a_ij s_ij, of s_ij, and of
    a_j s_ij where a_j is the sum of a column of a. Equal y have sign 0, as in the exact version.

    Args:
        x: columns of float64.  (columns, n)
        y: as many.  (columns, n)
        unbiased: of the bias-corrected covariance.
    """
    n = x.shape[-1]
    position = torch.arange(n, device=x.device)
    low, by_x = x.sort(dim=-1, stable=True)
    y, by_y = y.gather(-1, by_x).sort(dim=-1, stable=True)  # equal y are in the order of x
    rank = by_y  # the place in x's order of each row, rows in y's order; a permutation of 0..n-1
    x = low.gather(-1, rank)
    below = _below(low)  # sums of all smaller x
    total = below[:, -1:]
    a = (2 * position + 2 - n) * low + total - 2 * below[:, 1:]  # (2i - n) x_i + the sum of larger x - that of smaller
    a = a.gather(-1, rank)
    first, last = _ties(y)  # rows first..last-1 have this y
    balance = (first + last - n).double()  # rows with smaller y, less those with larger
    before, a_before = _below(x), _below(a)
    whole = a_before[:, -1:]
    weighted = a_before.gather(-1, first) + a_before.gather(-1, last) - whole
    # Sums over j of (x_i - x_j): of all, of those with smaller y, with smaller x, with both; the signs of the last
    # three make a_ij s_ij of them. Ties in y come out as x_i - x_j, because they lie in x's order: that is taken off.
    everything = n * x - total
    smaller_y = position * x - before[:, :-1]
    smaller_x = rank * x - below.gather(-1, rank)
    tied = (last - first) * x - (before.gather(-1, last) - before.gather(-1, first))
    signed = everything - 2 * (smaller_y + smaller_x) + 4 * _both_smaller(low, rank) - tied
    if unbiased:
        c = 1 / (n * (n - 3)), 1 / (n * (n - 2) * (n - 3)), 1 / (n * (n - 1) * (n - 2) * (n - 3))
    else:
        c = n**-2.0, n**-3.0, n**-4.0
    result = 2 * c[0] * signed - 2 * c[1] * (a * balance + weighted) + 2 * c[2] * whole * balance
    back = by_x.gather(-1, by_y)
    return torch.empty_like(result).scatter_(-1, back, result)


def _below(values: Tensor) -> Tensor:
    """Sums of all values before each place, and of all of them.  (columns, n) -> (columns, n + 1)"""
    return torch.nn.functional.pad(values.cumsum(-1), (1, 0))


def _ties(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """The first place of the run of equal values that each place is in, and the first place after it."""
    n = ordered.shape[-1]
    position = torch.arange(n, device=ordered.device).expand(ordered.shape)
    differs = ordered[:, 1:] != ordered[:, :-1]
    start = torch.nn.functional.pad(differs, (1, 0), value=True)
    end = torch.nn.functional.pad(differs, (0, 1), value=True)
    first = torch.where(start, position, 0).cummax(-1).values
    last = torch.where(end, position + 1, n).flip(-1).cummin(-1).values.flip(-1)
    return first, last


def _both_smaller(ordered: Tensor, rank: Tensor) -> Tensor:
    """For each place i, the sum of x_i - x_j over the places j before it whose rank is smaller.  (columns, n)

    Ranks are sorted bit by bit, the highest first, rows with equal higher bits staying in their order. Two ranks differ
    first at one bit, and at that bit's turn the sum over all earlier rows that have a 0 there is one cumulated sum.

    Args:
        ordered: x by rank, rising.
        rank: a permutation of 0..n-1 for each column.
    """
    n = rank.shape[-1]
    position = torch.arange(n, device=rank.device)
    result = torch.zeros_like(ordered)  # by rank
    key = rank
    for shift in reversed(range((n - 1).bit_length())):
        x = ordered.gather(-1, key)
        group = (key >> (shift + 1)) << (shift + 1)  # where the rows with the same higher bits begin
        one = (key >> shift) & 1
        zero = 1 - one
        zeros = zero.cumsum(-1).sub_(zero).sub_(group >> 1)  # earlier in the group; half of each whole group are 0
        ahead = x * zero
        sums = ahead.cumsum(-1).sub_(ahead)
        gained = (zeros * x).sub_(sums).add_(sums.gather(-1, group)).mul_(one)
        result.scatter_add_(-1, key, gained)
        to_zeros = group + zeros
        place = (position + (1 << shift) - zeros).sub_(to_zeros).mul_(one).add_(to_zeros)  # ones come after all zeros
        key = torch.empty_like(key).scatter_(-1, place, key)
    return result.gather(-1, rank)
