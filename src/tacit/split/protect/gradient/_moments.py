"""Class means and variances of a batch, and their running averages over a run."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.split.protect.gradient._base import Batch, fused

DECAY = 0.95  # of the running averages, for each batch
LARGEST = 1e40  # times the resolution: beyond it a variance can't be written in single precision
RESOLUTION = 1e-10  # a squared distance of the means below this, of a largest entry of 1, is rounding and not a gap


@dataclass(frozen=True)
class Moments:
    """Means and variances of the two classes, negative first, with the number of rows behind them.

    They live in one tensor (stack, 2, 2 + width), so that choosing between two of them is one operation.
    """

    packed: Tensor

    @property
    def count(self) -> Tensor:
        """How many rows.  (stack, 2)"""
        return self.packed[..., 0]

    @property
    def spread(self) -> Tensor:
        """The average variance of a coordinate.  (stack, 2)"""
        return self.packed[..., 1]

    @property
    def mean(self) -> Tensor:
        """Class means.  (stack, 2, width)"""
        return self.packed[..., 2:]

    @property
    def gap(self) -> Tensor:
        """From the negative to the positive mean.  (stack, width)"""
        return self.mean[:, 1] - self.mean[:, 0]


def batch_moments(batch: Batch) -> tuple[Moments, Tensor]:
    """The moments of one batch, in its scaled units, and every row's distance from its class mean."""
    packed, centred = _packed(batch.rows, batch.labels)
    return Moments(packed), centred


@fused
def _packed(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.stack([1 - labels, labels], dim=1)  # (stack, 2, batch)
    count = weights.sum(-1, keepdim=True)
    mean = weights @ rows / count.clamp(min=1)  # (stack, 2, width)
    centred = (rows - mean[:, :1]).addcmul_(labels[..., None], mean[:, :1] - mean[:, 1:])
    squares = torch.linalg.vector_norm(centred, dim=2).square_()  # dim=-1: see `fused`
    spread = weights @ squares[..., None] / (count.clamp(min=1) * rows.shape[-1])
    return torch.cat([count, spread, mean], dim=-1), centred


@dataclass(frozen=True)
class Running:
    """Running averages over a run, in the units of the gradient, in float64: they outlive any one batch's scale."""

    step: int  # how many batches were seen; an ordinary number, because it is public and must not be waited for
    packed: Tensor  # decayed counts, and averages over rows, as `Moments` has them. (stack, 2, 2 + width)
    peak: Tensor  # the largest squared norm of a row in the recent past. (stack,)
    exponents: Tensor  # the power of the gradient's unit that each entry is measured in: 0, 2, 1, 1, ...

    @classmethod
    def start(cls, step: int, batch: Batch) -> Running:
        """Nothing seen yet."""
        stack, _, width = batch.rows.shape
        exponents = torch.ones(2 + width, dtype=torch.float64, device=batch.rows.device)
        exponents[:1], exponents[1:2] = 0.0, 2.0
        zeros = torch.zeros(stack, 2, 2 + width, dtype=torch.float64, device=batch.rows.device)
        return cls(step, zeros, zeros.new_zeros(stack), exponents)

    def fill_in(self, own: Moments, batch: Batch) -> tuple[Moments, Tensor, Tensor]:
        """The moments to use, in the units of the gradient, whether they will do, and `packed` after this batch.

        They are the batch's own where they are defined: a class of fewer than two rows takes its running moments; where
        the means coincide, both classes do. Bad input does not enter `packed`.
        """
        packed, usable, averages = _filled(own.packed, self.packed, self.exponents, batch.scale, batch.valid)
        return Moments(packed), usable, averages


@fused
def _filled(
    own: Tensor, running: Tensor, exponents: Tensor, scale: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    unit = scale.double()[:, None, None]
    here = own.double() * unit**exponents
    least = RESOLUTION * unit.reshape(-1) ** 2
    mixed = torch.where(own[..., :1] > 1.5, here, running)
    apart = _squared(mixed[:, 1, 2:] - mixed[:, 0, 2:]) > least
    chosen = torch.where(apart[:, None, None], mixed, running)
    size = _squared(chosen[:, 1, 2:] - chosen[:, 0, 2:])
    usable = (size > least) & (chosen[..., 0] > 1.5).all(-1)
    usable &= size + chosen[..., 1].sum(-1) < LARGEST * least  # a run's averages may be too large for a tiny batch

    count = torch.where(valid[:, None, None], here[..., :1], 0.0)
    total = DECAY * running[..., :1] + count
    averages = torch.where(count > 0, torch.lerp(running, here, count / total.clamp(min=1e-9)), running)
    averages[..., :1] = total
    return chosen, usable, averages


def _squared(vectors: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vecdot(vectors, vectors)
    return squares
