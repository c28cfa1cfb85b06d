"""The squared distance correlation from all pairs of rows, and its gradient, in one function of our own for autograd.

Centring a matrix of distances is an orthogonal projection, so the squared correlation is the cosine of the angle
between two centred matrices, in the plain version and in the bias-corrected one alike; they differ in the projection
alone. That makes the gradient short as well: with A and B the centred matrices divided by their norms it is
(A - cos B) / |centred b| for the distances b of B's side.

All of it is in float64. It costs twice the time of float32 on a CPU, and distances from a product of matrices need it:
in hundreds of dimensions they differ little from each other, and a device may round float32 products to ten bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SAME = 1e-13  # two rows are equal where their squared distance is below this share of their squared norms
FLAT = 1e-10  # a centred matrix is zero where it is below this share of the one before centring


@dataclass(frozen=True)
class Side:
    """One set of rows, as seen by the other."""

    rows: Tensor  # centred, with a largest entry of 1; all zero where nothing varies. (stack, n, width), float64
    scale: Tensor  # what they were divided by; infinite where nothing varies. (stack, 1, 1)
    distances: Tensor  # of all pairs. (stack, n, n)
    unit: Tensor  # the distances, centred, with a norm of 1; all zero where nothing is left. (stack, n, n)
    norm: Tensor  # what they were divided by; infinite where nothing is left. (stack, 1, 1)


def squared_correlation(x: Tensor, z: Tensor, *, unbiased: bool) -> Tensor:
    """The cosine between the centred distances of both sides; 0, with gradient 0, where one side does not vary.

    Args:
        x: rows in any floating dtype.  (stack, n, p)
        z: as many rows.  (stack, n, q)
        unbiased: take the projection that leaves a mean of 0 where both are independent; n must be 4 or more.

    Returns:
        In float64.  (stack,)
    """
    value: Tensor = _Cosine.apply(x, z, unbiased)  # type: ignore[no-untyped-call]
    return value


def standardized(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in float64 around 0 with a largest entry of 1, and what they were divided by.

    Where rows vary by less than a gradient in their own dtype can say, they are all zero and the divisor is infinite.
    """
    limits = torch.finfo(rows.dtype)
    wide = rows.double()
    wide = wide - wide[:, :1]  # exactly zero where all rows are equal, which a mean may miss by its rounding
    wide = wide - wide.mean(1, keepdim=True)
    scale = wide.abs().amax((1, 2), keepdim=True)
    scale = scale.masked_fill(scale <= limits.tiny / limits.eps, torch.inf)
    return wide / scale, scale


def distances(rows: Tensor) -> Tensor:
    """Distances of all pairs, 0 for rows that are equal but for rounding.  (stack, n, width) -> (stack, n, n)"""
    products = rows @ rows.mT
    squares = products.diagonal(dim1=1, dim2=2)
    sums = squares[:, :, None] + squares[:, None, :]
    between = sums.sub(products, alpha=2)
    between.masked_fill_(between <= sums.mul_(SAME), 0.0)
    between.diagonal(dim1=1, dim2=2).zero_()
    return between.sqrt_()


def centred(matrix: Tensor, *, unbiased: bool) -> Tensor:
    """What a symmetric matrix of distances says beyond its row and column means.  (stack, n, n)

    With `unbiased` this is the U-centring of Szekely and Rizzo, "The distance correlation t-test of independence in
    high dimension" (2013), whose diagonal is 0.
    """
    n = matrix.shape[-1]
    sums = matrix.sum(-1)
    if not unbiased:
        means = sums / n
        return matrix - means[:, :, None] - (means - means.mean(-1, keepdim=True))[:, None, :]
    means = sums / (n - 2)
    whole = sums.sum(-1, keepdim=True) / ((n - 1) * (n - 2))
    result = matrix - means[:, :, None] - (means - whole)[:, None, :]
    result.diagonal(dim1=1, dim2=2).zero_()
    return result


def _side(rows: Tensor, unbiased: bool) -> Side:
    narrow, scale = standardized(rows)
    between = distances(narrow)
    unit = centred(between, unbiased=unbiased)
    norm = torch.linalg.matrix_norm(unit, keepdim=True)
    whole = torch.linalg.matrix_norm(between, keepdim=True)
    norm = norm.masked_fill(norm <= FLAT * whole, torch.inf)
    return Side(narrow, scale, between, unit.div_(norm), norm)


class _Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, unbiased: bool) -> Tensor:
        one, other = _side(x, unbiased), _side(z, unbiased)
        cosine = (one.unit * other.unit).sum((1, 2)).clamp(-1.0, 1.0)
        parts: list[Tensor | None] = [one.unit, other.unit, cosine]
        for side, needed in zip((one, other), ctx.needs_input_grad, strict=False):
            parts += [side.rows, side.scale, side.distances, side.norm] if needed else [None] * 4
        ctx.save_for_backward(*parts)
        ctx.dtypes = x.dtype, z.dtype
        return cosine

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        one, other, cosine, *sides = ctx.saved_tensors
        to_x = to_z = None
        if ctx.needs_input_grad[0]:
            to_x = _to_rows(one, other, cosine, grad, *sides[:4]).to(ctx.dtypes[0])
        if ctx.needs_input_grad[1]:
            to_z = _to_rows(other, one, cosine, grad, *sides[4:]).to(ctx.dtypes[1])
        return to_x, to_z, None


def _to_rows(
    own: Tensor, other: Tensor, cosine: Tensor, grad: Tensor, rows: Tensor, scale: Tensor, between: Tensor, norm: Tensor
) -> Tensor:
    """The gradient of the cosine in one side's rows.

    Both pairs (i, j) and (j, i) pull row i along (z_i - z_j) / d_ij; two equal rows do not pull at each other.
    """
    pull = torch.addcmul(other, own, cosine[:, None, None], value=-1).mul_(grad[:, None, None] / norm)
    pull.div_(between.masked_fill(between == 0, torch.inf))  # (stack, n, n)
    return (pull.sum(-1, keepdim=True) * rows).sub_(pull @ rows).mul_(2 / scale)
