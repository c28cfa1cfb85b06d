"""Embedding tables of many replicas, and Adam on the rows that a batch touched."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["RowTable"]


class RowTable:
    """The embedding tables of all replicas, one row of all of them side by side, with Adam's averages.

    `tacit.models.RowwiseAdam` for a stack: rows that no example of the batch has stay as they are. Gradients of
    examples that share a row are added up in a buffer as large as the table, so that nothing has to be sorted and no
    shape depends on the data: a CUDA graph can hold it.

    Args:
        weight: (rows, replicas, width).
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.contiguous()
        self.first, self.second, self._sum = (torch.zeros_like(self.weight) for _ in range(3))
        self._replica = torch.arange(weight.shape[1], device=weight.device)[:, None, None]

    def look_up(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Places in the flat table, and what stands there, as a leaf for autograd.

        Args:
            codes: row numbers, (replicas, batch, columns), or (1, batch, columns) where all share them.

        Returns:
            (replicas, batch, columns) and (replicas, batch, columns, width)
        """
        places = codes * self.weight.shape[1] + self._replica
        found = self._flat(self.weight)[places.reshape(-1)].reshape(*places.shape, -1)
        return places, found.requires_grad_()

    @torch.no_grad()
    def update(
        self, places: Tensor, gradient: Tensor, step: Tensor, *, rate: float, betas: tuple[float, float], eps: float
    ) -> None:
        """One step of Adam on the rows at these places; a row that is named twice is written twice with one value.

        Args:
            places: as `look_up` gave them.
            gradient: of what it found.
            step: counted from 1, a tensor, so that a captured graph can move it.
            rate: the learning rate.
            betas: the decay of the first and of the second average.
            eps: what is added to the denominator.
        """
        at, step = places.reshape(-1), step.double()
        first, second, total, weight = (self._flat(x) for x in (self.first, self.second, self._sum, self.weight))
        total.index_add_(0, at, gradient.reshape(len(at), -1))
        g = total[at]
        mean = first[at].lerp_(g, 1 - betas[0])
        square = second[at].mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        first[at] = mean
        second[at] = square
        total[at] = 0.0
        scale = square.sqrt_().div_((1 - betas[1] ** step).sqrt()).add_(eps)
        weight[at] -= mean.div_(scale).mul_(rate / (1 - betas[0] ** step))

    def _flat(self, x: Tensor) -> Tensor:
        return x.view(-1, x.shape[-1])
