"""How rows spread, as a running average: in all coordinates of a narrow cut, in the leading ones of a wide cut.

Rows are measured in units of their own batch, so that the average follows at once when gradients shrink or grow, and
batches of small gradients in between do not water it down.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.protect.gradient._base import fused
from tacit.protect.gradient._moments import DECAY

FULL_WIDTH = 256  # up to this width the second moments are kept whole
RANK = 192  # of the leading coordinates of a wider cut
LEAST = 16  # times the resolution of the dtype: a variance below this, of the largest, is rounding and no direction


@dataclass(frozen=True)
class Spread:
    """Decayed sums over the batches of a run, in float64."""

    weight: Tensor  # of the batches behind them; 0 where there was none. (stack,)
    square: Tensor  # sums of the mean outer products of rows, in the leading coordinates. (stack, rank, rank)
    rest: Tensor  # sums of the mean squared lengths outside the leading coordinates. (stack,)
    # the leading coordinates as columns, in the rows' dtype; None where all are kept. (stack, width, rank)
    basis: Tensor | None

    @classmethod
    def start(cls, rows: Tensor) -> Spread:
        """Nothing seen yet; a wide cut takes its first coordinates from these rows."""
        stack, _, width = rows.shape
        rank = width if width <= FULL_WIDTH else RANK
        square = torch.zeros(stack, rank, rank, dtype=torch.float64, device=rows.device)
        basis = None if rank == width else _leading(rows, rank)
        return cls(square.new_zeros(stack), square, square.new_zeros(stack), basis)

    def add(self, rows: Tensor, size: Tensor, counts: Tensor) -> Spread:
        """The sums after one more batch.

        Args:
            rows: of the batch.  (stack, batch, width)
            size: their root mean square length.  (stack,)
            counts: False where the batch is bad, or all zero: the sums stay as they were.  (stack,)
        """
        return Spread(*_added(self.weight, self.square, self.rest, self.basis, rows, size, counts), self.basis)

    def to(self, device: torch.device) -> Spread:
        """The same on another device."""
        basis = None if self.basis is None else self.basis.to(device)
        return Spread(self.weight.to(device), self.square.to(device), self.rest.to(device), basis)

    def renew(self, rows: Tensor) -> Spread:
        """New leading coordinates for a wide cut: those of what was seen so far and of these rows together."""
        if self.basis is None:
            return self
        values, vectors = torch.linalg.eigh(self.square / self.weight.clamp(min=1e-9)[:, None, None])
        known = (self.basis.double() @ (vectors * values.clamp(min=0).sqrt()[:, None, :])).mT.to(rows.dtype)
        length = torch.linalg.vector_norm(rows, dim=(1, 2), keepdim=True)
        fresh = rows / torch.where(length > 0, length, 1.0) * (1 - DECAY) ** 0.5
        basis = _leading(torch.cat([known, fresh], dim=1), self.basis.shape[-1])
        turn = (basis.mT @ self.basis).double()
        square = turn @ self.square @ turn.mT
        lost = (self.square - square).diagonal(dim1=-2, dim2=-1).sum(-1)
        return Spread(self.weight, square, (self.rest + lost).clamp(min=0), basis)


@fused
def _added(
    weight: Tensor, square: Tensor, rest: Tensor, basis: Tensor | None, rows: Tensor, size: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of `Spread` after one more batch; see `Spread.add`."""
    new = torch.where(counts, 1.0, 0.0).double()
    decay = torch.where(counts, torch.full_like(new, DECAY), 1.0)
    own = rows / torch.where(counts, size, 1.0)[:, None, None]
    inside = own if basis is None else own @ basis  # (stack, batch, rank)
    many = rows.shape[1]
    second = (inside.mT @ inside).double() / many
    if basis is not None:
        outside = ((own * own).sum((1, 2)) - (inside * inside).sum((1, 2))).clamp(min=0)
        rest = decay * rest + new * torch.where(counts, outside, 0.0).double() / many
    second = torch.where(counts[:, None, None], second, 0.0)
    return decay * weight + new, decay[:, None, None] * square + second, rest


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
