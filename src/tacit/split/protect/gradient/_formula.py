"""Marvell's four-variable problem as a formula of one unknown, for Python floats and for tensors alike.

The class with the smaller variance is called the quiet one, the other the loud one. All unknowns are the increments x,
y, z of the variances, not the total variances, so that nothing cancels where the noise is far below the variance that
is there already. `_solver` looks for the unknown, the power t that is spent along the line of the means.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

TINY = 1e-290  # keeps a division by zero from happening where the quotient is discarded anyway


class Floats:
    """The handful of operations of the formula on Python floats."""

    sqrt = staticmethod(math.sqrt)
    log = staticmethod(math.log)
    exp = staticmethod(math.exp)
    maximum = staticmethod(max)

    @staticmethod
    def power_of_two(value: float) -> float:
        return value / (2 * math.frexp(value)[0])

    @staticmethod
    def where(condition: bool, yes: float, no: float) -> float:
        return yes if condition else no


class Tensors:
    """The same operations on tensors of float64."""

    sqrt = staticmethod(torch.sqrt)
    log = staticmethod(torch.log)
    exp = staticmethod(torch.exp)
    where = staticmethod(torch.where)

    @staticmethod
    def power_of_two(value: Tensor) -> Tensor:
        return value / (2 * torch.frexp(value).mantissa)

    @staticmethod
    def maximum(first: Tensor, second: Tensor | float) -> Tensor:
        return torch.clamp(first, min=second)


class Problem(NamedTuple):
    """One problem with the classes named quiet and loud, in units where the largest of u, v, D is from 1 to 2."""

    u: Any  # variance of the quiet class
    v: Any  # variance of the loud class
    q: Any  # share of the quiet class
    p: Any  # share of the loud class
    gap: Any  # D
    others: Any  # d - 1, the directions across
    base: Any  # qu + pv
    lift: Any  # v^2 - u^2
    keep: Any  # Z / X where the loud class gets no noise
    lose: Any  # 1 - keep, without cancellation
    ops: Any


def problem(u: Any, v: Any, p: Any, gap: Any, d: Any, ops: Any) -> Problem:
    swap = u > v
    u, v = ops.where(swap, v, u), ops.where(swap, u, v)
    q, p = ops.where(swap, p, 1 - p), ops.where(swap, 1 - p, p)
    total = ops.maximum(v + gap, TINY)
    keep = ops.sqrt(ops.where(v + gap > 0, v / total, 0.0 * v + 1.0))
    lose = gap / total / (1 + keep)
    return Problem(u, v, q, p, gap, d - 1, q * u + p * v, (v - u) * (v + u), keep, lose, ops)


def allocate(t: Any, a: Problem) -> tuple[Any, Any, Any, Any, Any]:
    """Noise x, y (along, quiet and loud) and z (across, quiet) where t = qx + py is spent along; and where it lies.

    The last two say whether the loud class (first) or the quiet class (second) gets nothing along the line.
    """
    ops = a.ops
    c = a.base + t
    loaded = ops.maximum(c + a.p * a.gap, TINY)
    E = ops.sqrt((c + a.q * a.gap) / loaded)  # Y / X where both classes get noise
    h = (a.lift * c + a.gap * (a.p * a.v * a.v - a.q * a.u * a.u)) / ops.maximum(loaded * (a.v + a.u * E), TINY)
    x_both = (t + a.p * h) / (a.q + a.p * E)
    y_both = (E * t - a.q * h) / (a.q + a.p * E)
    no_loud = y_both < 0
    no_quiet = x_both < 0
    x = ops.where(no_loud, t / a.q, ops.where(no_quiet, 0.0 * t, x_both))
    y = ops.where(no_loud, 0.0 * t, ops.where(no_quiet, t / a.p, y_both))

    X, Y = a.u + x, a.v + y
    price = a.q * a.v * a.gap * (X + Y + a.gap) / ops.maximum(Y * Y * loaded, TINY)
    root = ops.sqrt(1 + price)
    z_both = (a.lift - a.u * a.u * price) / ops.maximum(root * (a.v + a.u * root), TINY)
    z = ops.where(no_loud, x * a.keep - a.u * a.lose, ops.where(no_quiet, 0.0 * t, z_both))
    return x, y, ops.maximum(z, 0.0), no_loud, no_quiet


def spent(t: Any, a: Problem) -> Any:
    return t + a.others * a.q * allocate(t, a)[2]


def sum_kl_of(t: Any, a: Problem) -> Any:
    ops = a.ops
    x, y, z, _, _ = allocate(t, a)
    X, Y, Z = a.u + x, a.v + y, a.u + z
    across = a.others * (Z - a.v) ** 2 / ops.maximum(Z * a.v, TINY)
    along = ((a.v - a.u) + (y - x)) ** 2 / ops.maximum(X * Y, TINY)
    shift = a.gap / ops.maximum(X, TINY) + a.gap / ops.maximum(Y, TINY)
    return (across + along + shift) / 2
