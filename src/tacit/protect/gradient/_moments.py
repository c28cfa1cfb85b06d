"""Class means and variances of a batch, and their running averages over a run."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.protect.gradient._base import Batch, fused

DECAY = 0.95  # of the running averages, for each batch
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

    @property
    def defined(self) -> Tensor:
        """Whether a class has the two rows that a variance takes.  (stack, 2)"""
        return self.count > 1.5


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
    squares = torch.linalg.vector_norm(centred, dim=-1).square_()
    spread = weights @ squares[..., None] / (count.clamp(min=1) * rows.shape[-1])
    return torch.cat([count, spread, mean], dim=-1), centred


@dataclass(frozen=True)
class Running:
    """Running averages over a run, in the units of the gradient, in float64: they outlive any one batch's scale.

    Attributes:
        step: how many batches were seen; an ordinary number, because it is public and must not be waited for.
        sums: decayed sums over rows of 1, of the variance, and of the row.  (stack, 2, 2 + width)
    """

    step: int
    sums: Tensor

    @classmethod
    def start(cls, step: int, batch: Batch) -> Running:
        """Nothing seen yet."""
        stack, _, width = batch.rows.shape
        return cls(step, torch.zeros(stack, 2, 2 + width, dtype=torch.float64, device=batch.rows.device))

    def add(self, seen: Moments, batch: Batch) -> Running:
        """The averages after one more batch; a problem with bad input leaves them as they were."""
        return Running(self.step + 1, _added(self.sums, seen.packed, batch.scale, batch.valid))

    def fill_in(self, own: Moments, batch: Batch) -> tuple[Moments, Tensor]:
        """The batch's own moments where they are defined, the running ones elsewhere; and whether either will do.

        A class of fewer than two rows takes its running moments; where the means coincide, both classes do.
        """
        packed, usable = _filled(own.packed, self.sums, batch.scale)
        return Moments(packed), usable


@fused
def _added(sums: Tensor, packed: Tensor, scale: Tensor, valid: Tensor) -> Tensor:
    count, spread, mean = packed.double().split([1, 1, packed.shape[-1] - 2], dim=-1)
    scale = scale.double()[:, None, None]
    new = torch.cat([count, count * spread * scale**2, count * mean * scale], dim=-1)
    return torch.where(valid[:, None, None], new, 0.0).add_(sums, alpha=DECAY)


@fused
def _filled(own: Tensor, sums: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    count, scatter, total = sums.split([1, 1, sums.shape[-1] - 2], dim=-1)
    each = count.clamp(min=1) * scale.double()[:, None, None]
    running = torch.cat([count, scatter / each / scale.double()[:, None, None], total / each], dim=-1).to(own.dtype)
    mixed = Moments(torch.where(Moments(own).defined[..., None], own, running))
    apart = _squared(mixed.gap) > RESOLUTION
    chosen = Moments(torch.where(apart[:, None, None], mixed.packed, running))
    gap = _squared(chosen.gap)
    fits = torch.isfinite(gap + chosen.spread.sum(-1))  # a run's averages may be too large for a tiny batch's units
    usable = chosen.defined.all(-1) & (gap > RESOLUTION) & fits
    return torch.where(usable[:, None, None], chosen.packed, own), usable


def _squared(vectors: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vecdot(vectors, vectors)
    return squares
