"""Class covariances as running averages, in all coordinates of a narrow cut or in the leading ones of a wide cut.

Everything is kept in units of each batch's own root mean square row norm, so that the averages follow at once when the
gradients shrink or grow, and batches of small gradients in between do not water them down.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.protect.gradient._base import Batch, fused
from tacit.protect.gradient._moments import DECAY, Moments, batch_moments

FULL_WIDTH = 256  # up to this width covariances are kept whole
RANK = 192  # of the leading coordinates of a wider cut
LEAST = 16  # times the resolution of the dtype: a variance below this, of the largest, is rounding and no direction


@dataclass(frozen=True)
class Covariances:
    """Decayed sums over the batches of a run, in float64.

    Attributes:
        count: rows of each class.  (stack, 2)
        freedom: the same, less one for each batch, as a covariance takes it.  (stack, 2)
        total: sums of rows.  (stack, 2, width)
        scatter: sums of outer products of centred rows, in the leading coordinates.  (stack, 2, rank, rank)
        rest: sums of the squared norms of centred rows outside the leading coordinates.  (stack, 2)
        basis: the leading coordinates as columns, in the batch's dtype; None where all are kept.  (stack, width, rank)
    """

    count: Tensor
    freedom: Tensor
    total: Tensor
    scatter: Tensor
    rest: Tensor
    basis: Tensor | None

    @classmethod
    def start(cls, batch: Batch) -> Covariances:
        """Nothing seen yet; a wide cut takes its first coordinates from this batch."""
        stack, _, width = batch.rows.shape
        rank = width if width <= FULL_WIDTH else RANK
        zeros = torch.zeros(stack, 2, 3 + width + rank * rank, dtype=torch.float64, device=batch.rows.device)
        count, freedom, rest, total, scatter = zeros.split([1, 1, 1, width, rank * rank], dim=-1)
        basis = None if rank == width else _leading(batch.rows, rank)
        return cls(
            count.squeeze(-1), freedom.squeeze(-1), total, scatter.unflatten(-1, (rank, rank)), rest.squeeze(-1), basis
        )

    def add(self, batch: Batch, unit: Tensor) -> tuple[Covariances, Moments]:
        """The sums after one more batch whose rows are measured in `unit`, and the batch's own moments.

        Bad input, and a batch of zeros (whose unit is 0), leaves the sums as they were.
        """
        seen, centred = batch_moments(batch)
        sums = _added(
            self.count, self.freedom, self.total, self.scatter, self.rest, self.basis,
            seen.packed, centred, batch.labels, batch.valid, unit,
        )  # fmt: skip
        return Covariances(*sums, self.basis), seen

    def to(self, device: torch.device) -> Covariances:
        """The same on another device."""
        return Covariances(
            self.count.to(device),
            self.freedom.to(device),
            self.total.to(device),
            self.scatter.to(device),
            self.rest.to(device),
            None if self.basis is None else self.basis.to(device),
        )

    @property
    def defined(self) -> Tensor:
        """Whether both classes had two rows in one batch.  (stack,)"""
        return (self.freedom > 0.5).all(-1)

    @property
    def share(self) -> Tensor:
        """The share of positives.  (stack,)"""
        return self.count[:, 1] / self.count.sum(-1).clamp(min=1)

    @property
    def mean(self) -> Tensor:
        """Class means in units of the batch.  (stack, 2, width)"""
        return self.total / self.count.clamp(min=1)[..., None]

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Both covariances in the leading coordinates and their variance in each other one, shrunk to what they share.

        A class of few rows has a covariance of low rank and much chance in it. It is drawn towards the other's shape
        at its own size, the more so the fewer rows it has for each coordinate.  (stack, 2, rank, rank), (stack, 2)
        """
        width, rank = self.total.shape[-1], self.scatter.shape[-1]
        freedom = self.freedom.clamp(min=1)
        own = self.scatter / freedom[..., None, None]
        pooled = self.scatter.sum(1, keepdim=True) / freedom.sum(1)[:, None, None, None]
        size = own.diagonal(dim1=-2, dim2=-1).sum(-1) / pooled.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)
        trust = (freedom / (freedom + rank))[..., None, None]
        rest = self.rest / freedom / max(width - rank, 1)
        return trust * own + (1 - trust) * size[..., None, None] * pooled, rest

    def renew(self, batch: Batch, unit: Tensor) -> Covariances:
        """New leading coordinates for a wide cut: those of what was seen so far and of this batch together."""
        if self.basis is None:
            return self
        pooled = self.scatter.sum(1) / self.count.sum(-1).clamp(min=1)[:, None, None]  # (stack, rank, rank)
        values, vectors = torch.linalg.eigh(pooled)
        known = (self.basis.double() @ (vectors * values.clamp(min=0).sqrt()[:, None, :])).mT.to(batch.rows.dtype)
        fresh = batch.rows / (torch.where(unit > 0, unit, 1.0) * batch.rows.shape[1] ** 0.5)[:, None, None]
        gap = (self.mean[:, 1:] - self.mean[:, :1]).to(batch.rows.dtype)
        basis = _leading(torch.cat([known, fresh * (1 - DECAY) ** 0.5, gap], dim=1), self.basis.shape[-1])
        turn = (basis.mT @ self.basis).double()[:, None]
        scatter = turn @ self.scatter @ turn.mT
        lost = (self.scatter - scatter).diagonal(dim1=-2, dim2=-1).sum(-1)
        return Covariances(self.count, self.freedom, self.total, scatter, (self.rest + lost).clamp(min=0), basis)


@fused
def _added(
    count: Tensor,
    freedom: Tensor,
    total: Tensor,
    scatter: Tensor,
    rest: Tensor,
    basis: Tensor | None,
    packed: Tensor,
    centred: Tensor,
    labels: Tensor,
    valid: Tensor,
    unit: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The sums of `Covariances` after one more batch; see `Covariances.add`."""
    seen = Moments(packed)
    counts = valid & (unit > 0)
    inverse = torch.where(counts, 1 / torch.where(counts, unit, 1.0), 0.0).double()
    squared = (inverse * inverse)[:, None]
    decay = torch.where(counts, torch.full_like(inverse, DECAY), 1.0)[:, None]
    weights = torch.stack([1 - labels, labels], dim=1)  # (stack, 2, batch)
    inside = centred if basis is None else centred @ basis  # (stack, batch, rank)
    negative = (inside * weights[:, 0, :, None]).mT @ inside
    both = inside.mT @ inside
    new = torch.stack([negative, both - negative], dim=1).double() * squared[..., None, None]
    if basis is not None:
        outside = (centred * centred).sum(-1) - (inside * inside).sum(-1)
        rest = decay * rest + (weights @ outside.clamp(min=0)[..., None]).squeeze(-1).double() * squared
    rows = torch.where(counts[:, None], seen.count.double(), 0.0)
    sums = (seen.mean * seen.count[..., None]).double() * inverse[:, None, None]
    return (
        decay * count + rows,
        decay * freedom + (rows - 1).clamp(min=0),
        decay[..., None] * total + sums,
        decay[..., None, None] * scatter + new,
        rest,
    )


def _leading(rows: Tensor, rank: int) -> Tensor:
    """The leading directions of some rows, through the Gram matrix of the rows.  -> (stack, width, rank)

    Where the rows have fewer directions than that, coordinates fill up: what rounding would put there is another for
    every size of a stack.
    """
    wide = torch.nn.functional.pad(rows, (0, 0, 0, max(0, rank - rows.shape[1]))).double()
    values, vectors = torch.linalg.eigh(wide @ wide.mT)
    values, vectors = values[:, -rank:].flip(-1), vectors[..., -rank:].flip(-1)  # the largest first
    found = values > LEAST * torch.finfo(rows.dtype).eps * values[:, :1]
    others = torch.eye(rows.shape[-1], rank, dtype=wide.dtype, device=wide.device)
    directions = torch.where(
        found[:, None, :], wide.mT @ vectors * values.clamp(min=1e-300).rsqrt()[:, None, :], others
    )
    basis: Tensor = torch.linalg.qr(directions)[0].to(rows.dtype)
    return basis
