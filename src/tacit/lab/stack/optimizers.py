"""Embedding tables of many replicas, and Adam on the rows that a batch touched."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RowTable:
    """The embedding tables of all replicas, one row of all of them side by side, with Adam's averages.

    `tacit.models.RowwiseAdam` for a stack: rows that no example of the batch has stay as they are. Gradients of
    examples that share a row are added up in a buffer as large as the table, so that nothing has to be sorted and no
    shape depends on the data: a CUDA graph can hold it. On CUDA the work is done by the kernels of `table_kernels`,
    which read and write a row of all replicas at once.
    """

    def __init__(self, weight: Tensor, seed_of: Sequence[int]) -> None:
        self.weight = weight.contiguous()  # (rows, replicas, width)
        self.first, self.second, self._sum = (torch.zeros_like(self.weight) for _ in range(3))
        self._seed_of = torch.tensor(list(seed_of), device=weight.device)
        leaders = [replica for replica, seed in enumerate(seed_of) if seed not in seed_of[:replica]]
        self._leads = torch.zeros(len(seed_of), dtype=torch.bool, device=weight.device)
        self._leads[leaders] = True  # the first replica of each seed
        self._owner = torch.zeros(0, dtype=torch.int64, device=weight.device)
        if weight.is_cuda:
            self._owner = torch.full((len(weight), max(seed_of) + 1), -1, dtype=torch.int64, device=weight.device)

    def inputs(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """What the codes stand for, and the numbers beside it, as a leaf for autograd.

        Both are (seeds, batch, ...), or (1, batch, ...) where all replicas share them; what is returned is (replicas,
        batch, columns * width + numbers).
        """
        (_, batch, columns), (_, replicas, width) = codes.shape, self.weight.shape
        x = self.weight.new_empty(replicas, batch, columns * width + numbers.shape[-1])
        if numbers.shape[-1]:
            x[..., columns * width :] = self._by_replica(numbers)
        if self.weight.is_cuda:
            from tacit.lab.stack import table_kernels

            table_kernels.look_up(self.weight, codes, self._of(codes), x)
        else:
            found = self._flat(self.weight)[self._places(codes)]
            x[..., : columns * width] = found.reshape(replicas, batch, -1)
        return x.requires_grad_()

    @torch.no_grad()
    def update(
        self, codes: Tensor, gradient: Tensor, step: Tensor, *, rate: float, betas: tuple[float, float], eps: float
    ) -> None:
        """One step of Adam on the rows of these codes."""
        if self.weight.is_cuda:
            from tacit.lab.stack import table_kernels

            tables = (self.weight, self.first, self.second, self._sum, self._owner)
            table_kernels.update(tables, codes, self._of(codes), self._leads, gradient, step, rate, betas, eps)
            return
        at, step = self._places(codes), step.double()
        first, second, total, weight = (self._flat(x) for x in (self.first, self.second, self._sum, self.weight))
        touched = codes.shape[-1] * self.weight.shape[-1]
        total.index_add_(0, at, gradient[..., :touched].reshape(len(at), -1))
        g = total[at]
        mean = first[at].lerp_(g, 1 - betas[0])
        square = second[at].mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        first[at] = mean
        second[at] = square
        total[at] = 0.0  # a row that is named twice was read twice before it is written twice with one value
        scale = square.sqrt_().div_((1 - betas[1] ** step).sqrt()).add_(eps)
        weight[at] -= mean.div_(scale).mul_(rate / (1 - betas[0] ** step))

    def _places(self, codes: Tensor) -> Tensor:
        """Where the codes of every replica stand in the flat table.  (replicas * batch * columns,)"""
        replicas = self.weight.shape[1]
        number = torch.arange(replicas, device=codes.device)[:, None, None]
        return (self._by_replica(codes) * replicas + number).reshape(-1)

    def _by_replica(self, x: Tensor) -> Tensor:
        return x.expand(self.weight.shape[1], *x.shape[1:]) if len(x) == 1 else x[self._seed_of]

    def _of(self, codes: Tensor) -> Tensor:
        return self._seed_of if len(codes) > 1 else torch.zeros_like(self._seed_of)

    def _flat(self, x: Tensor) -> Tensor:
        return x.view(-1, x.shape[-1])
