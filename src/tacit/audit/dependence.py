"""How much one set of rows says about another: distance correlation, which a protection lowers and a metric reports.

Centring a matrix of distances is an orthogonal projection, so the squared correlation is the cosine of the angle
between two centred matrices, in the plain version and in the bias-corrected one alike; they differ in the projection
alone. That makes the gradient short as well: with A and B the centred matrices divided by their norms it is
(A - cos B) / |centred b| for the distances b of B's side.

Report 2020b mentions estimators in O(n log n) for single columns and, for rows, in O(n K log n) through K random
projections. They are not here. A training's batch has some hundred rows, of which the exact figure and its gradient are
a few products of matrices; the estimator sorts both sides K times for each of three covariances, which takes longer up
to thousands of rows, and its answer scatters with the draw (at K = 50 by some hundredths). Of more than `EXACT_ROWS`
rows as many are drawn instead.

All of it is in float64. It costs twice the time of float32 on a CPU, and distances from a product of matrices need it:
in hundreds of dimensions they differ little from each other, and a device may round float32 products to ten bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import Noise, noise_source
from tacit.errors import TensorError

EXACT_ROWS = 4096
"""Of more rows than this as many are drawn where randomness is passed: time and memory grow with their square."""

_SMALL = 1e-12  # a squared correlation below this is taken for this one where its root or logarithm has a slope
_SAME = 1e-13  # two rows are equal where their squared distance is below this share of their squared norms
_FLAT = 1e-10  # a centred matrix is zero where it is below this share of the one before centring


def distance_correlation(x: Tensor, z: Tensor, *, unbiased: bool = False, noise: Noise | None = None) -> Tensor:
    """How much the rows of z say about those of x: 0 where they are independent, 1 where z is x moved, turned, scaled.

    The distance correlation of Szekely, Rizzo and Bakirov (2007): the root of dCov^2(x, z) over the root of
    dCov^2(x, x) dCov^2(z, z). The plain version lies in [0, 1] and is above 0 for independent rows too, the more so the
    fewer they are; compare it at one batch size only. Where one side does not vary it is 0, with gradient 0. It is
    computed in float64 whatever the dtype of the rows, and rows that are not finite give NaN.

    Args:
        x: one row for each example; detach it where only z is to learn.  (n, *)
        z: the other side, with the same examples in the same order.  (n, *)
        unbiased: the bias-corrected version (Szekely and Rizzo, 2013), whose square is centred at 0 for independent
            rows at every batch size. It may be negative: the root is that of the size, with the sign of the square.
            Its slope is held where the square is nearer to 0 than chance takes it (1/n), so that it serves as a loss.
        noise: randomness, with which of more than `EXACT_ROWS` rows only as many are looked at. Without it all pairs
            are, however many rows there are.

    Returns:
        One number, in z's dtype (float32 if that is narrower), differentiable in x and z.

    >>> line = torch.tensor([[0.0], [1.0], [3.0], [4.0]])
    >>> distance_correlation(line, 5 - 2 * line).item()
    1.0
    """
    square, least = _square(x, z, unbiased, noise)
    fixed = square.detach()
    root = fixed.sign() * fixed.abs().sqrt()
    slope = 0.5 / fixed.abs().clamp(min=least).sqrt()
    return _narrow(root + slope * (square - fixed), z)


def log_distance_correlation(x: Tensor, z: Tensor, *, unbiased: bool = False, noise: Noise | None = None) -> Tensor:
    """The logarithm of the distance correlation, as a loss: finite, with a finite gradient, at 0 too.

    Arguments are those of `distance_correlation`. The plain version stops at -13.8, a correlation of a millionth, with
    gradient 0 below. The bias-corrected square r, which chance takes below 0, enters as log(max(r, 0) + 1/n) / 2: there
    is nothing to gain below 0, and the slope just above is about that of the plain version at independence.

    >>> line = torch.tensor([[0.0], [1.0], [3.0], [4.0]])
    >>> log_distance_correlation(line, 5 - 2 * line).item()
    0.0
    """
    square, least = _square(x, z, unbiased, noise)
    whole = square.clamp(min=0.0) + least if unbiased else square.clamp(min=least)
    return _narrow(whole.log() / 2, z)


def _square(x: Tensor, z: Tensor, unbiased: bool, noise: Noise | None) -> tuple[Tensor, float]:
    """The squared correlation in float64, and what it is hardly told from 0 below."""
    _check(x, z, unbiased)
    one, other = (side.flatten(1)[None] for side in (x, z))
    if noise is not None and one.shape[1] > EXACT_ROWS:
        draw = noise_source(noise).normal((one.shape[1],), dtype=torch.float32, device=one.device)
        some = draw.argsort()[:EXACT_ROWS]
        one, other = one[:, some], other[:, some]
    square: Tensor = _Cosine.apply(one, other, unbiased)  # type: ignore[no-untyped-call]
    return square.squeeze(0), 1 / one.shape[1] if unbiased else _SMALL


def _narrow(value: Tensor, like: Tensor) -> Tensor:
    return value.to(torch.promote_types(like.dtype, torch.float32))


def _check(x: Tensor, z: Tensor, unbiased: bool) -> None:
    """Refuse what has no distance correlation."""
    shapes = f"x is {tuple(x.shape)} and z is {tuple(z.shape)}"
    if x.ndim < 2 or z.ndim < 2 or len(x) != len(z):
        raise TensorError(
            f"distance correlation: {shapes}: pass (rows, *) twice, with the same examples in the same order"
        )
    if x.numel() == 0 or z.numel() == 0:
        raise TensorError(f"distance correlation: {shapes}, and one of them is empty: pass rows of at least one number")
    for name, side in (("x", x), ("z", z)):
        if not side.is_floating_point():
            raise TensorError(f"distance correlation: {name} is of {side.dtype}: convert it, as {name}.float()")
    least = 4 if unbiased else 2
    if len(x) < least:
        how = "the unbiased version needs 4 rows or more" if unbiased else "a correlation needs 2 rows or more"
        raise TensorError(f"distance correlation: {shapes}: {how}: pass larger batches")


@dataclass(frozen=True)
class _Side:
    """One set of rows, as seen by the other."""

    rows: Tensor  # centred, with a largest entry of 1; all zero where nothing varies. (stack, n, width), float64
    scale: Tensor  # what they were divided by; infinite where nothing varies. (stack, 1, 1)
    distances: Tensor  # of all pairs. (stack, n, n)
    unit: Tensor  # the distances, centred, with a norm of 1; all zero where nothing is left. (stack, n, n)
    norm: Tensor  # what they were divided by; infinite where nothing is left. (stack, 1, 1)


def _standardized(rows: Tensor) -> tuple[Tensor, Tensor]:
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


def _distances(rows: Tensor) -> Tensor:
    """Distances of all pairs, 0 for rows that are equal but for rounding.  (stack, n, width) -> (stack, n, n)"""
    products = rows @ rows.mT
    squares = products.diagonal(dim1=1, dim2=2)
    sums = squares[:, :, None] + squares[:, None, :]
    between = sums.sub(products, alpha=2)
    between.masked_fill_(between <= sums.mul_(_SAME), 0.0)
    between.diagonal(dim1=1, dim2=2).zero_()
    return between.sqrt_()


def _centred(matrix: Tensor, *, unbiased: bool) -> Tensor:
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


def _side(rows: Tensor, unbiased: bool) -> _Side:
    narrow, scale = _standardized(rows)
    between = _distances(narrow)
    unit = _centred(between, unbiased=unbiased)
    norm = torch.linalg.matrix_norm(unit, keepdim=True)
    whole = torch.linalg.matrix_norm(between, keepdim=True)
    norm = norm.masked_fill(norm <= _FLAT * whole, torch.inf)
    return _Side(narrow, scale, between, unit.div_(norm), norm)


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
