"""Distance correlation between what a party hides and what it sends, on held-out rows, with its confidence interval."""

from __future__ import annotations

import math

import torch
from scipy.special import stdtrit
from torch import Tensor

from tacit.audit.dependence import distance_correlation as correlation
from tacit.contracts import Estimate, Noise, noise_source
from tacit.errors import TensorError, UsageError


def distance_correlation(
    x: Tensor, z: Tensor, *, batch_size: int = 512, noise: Noise, unbiased: bool = False
) -> Estimate:
    """The mean distance correlation of disjoint random batches, with a 95% interval from the spread between them.

    The plain one depends on the size of the batches (it is far above 0 for independent rows where they are small), so a
    figure belongs to its batch size, and to compare with a training that size is the training's; the bias-corrected one
    hardly does. Rows that do not fill a batch are left out. All pairs of a batch are looked at, however large it is.

    Args:
        x: what is hidden, one row for each example that took no part in training.  (rows, *)
        z: what is sent of the same examples, in the same order.  (rows, *)
        batch_size: rows in a batch; at least two batches are needed.
        noise: which rows meet in a batch.
        unbiased: take the bias-corrected correlation, with the sign of its square: around 0 for independent rows.
    """
    _check(x, z, batch_size, least=4 if unbiased else 2)
    source = noise_source(noise)
    order = source.uniform((len(x),), dtype=torch.float64, device=x.device).argsort()
    batches = [rows for rows in order.split(batch_size) if len(rows) == batch_size]
    with torch.no_grad():
        each = torch.stack([correlation(x[rows], z[rows], unbiased=unbiased) for rows in batches])
    if not unbiased:
        return Estimate(*_interval(each.double(), 0.0))
    value, low, high = _interval(each.double() * each.double().abs(), -1.0)  # the square is what has no bias
    return Estimate(*(math.copysign(math.sqrt(abs(square)), square) for square in (value, low, high)))


def _check(x: Tensor, z: Tensor, batch_size: int, least: int) -> None:
    """Refuse rows that do not belong together, are not finite, or are too few for two batches."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < least:
        raise UsageError(f"batch_size = {batch_size!r} is out of range: it is a whole number, {least} or more")
    if x.ndim < 2 or z.ndim < 2 or len(x) != len(z):
        raise TensorError(
            f"x is {tuple(x.shape)} and z is {tuple(z.shape)}: pass one row of each for every example, (rows, *)"
        )
    if len(x) < 2 * batch_size:
        raise TensorError(
            f"{len(x)} rows make fewer than two batches of {batch_size}: pass more held-out rows, or a batch_size of "
            f"{max(least, len(x) // 2)} or less"
        )
    for name, side in (("x", x), ("z", z)):
        whole = torch.isfinite(side.flatten(1)).all(1)
        if not bool(whole.all()):
            raise TensorError(f"row {int((~whole).nonzero()[0])} of {name} is not finite: look for overflow before it")


def _interval(each: Tensor, least: float) -> tuple[float, float, float]:
    """The mean, and the ends of its 95% interval between `least` and 1: Student's, for few batches say little."""
    mean, spread = each.mean().item(), each.std().item()
    half = float(stdtrit(len(each) - 1, 0.975)) * spread / len(each) ** 0.5
    return mean, max(least, mean - half), min(1.0, mean + half)
