"""A table of codes cut up over the processes that learn together: each has every n-th row of it.

Weights, gradients and moments of a code are at one process alone. Of a batch, all tell all which codes their rows have,
each adds up the weights that it has, and the sums come together: what crosses the wire does not grow with the table.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn

from tacit.models import Columns
from tacit.one_shot.workers import PATIENCE, Share, Workers


class CutTable(nn.Module):
    """The rows of a table that this process has; codes to the sum of their weights over all columns.

    All processes call it at the same time, each with its share of a batch.
    """

    share: Share  # what this process has of the batch

    def __init__(self, whole: Columns, workers: Workers) -> None:
        super().__init__()
        self.whole, self.workers = [whole], workers  # in a list: its weights are none of this module's
        mine = whole.table.weight.detach()[workers.rank :: workers.count]
        self.table = nn.Embedding.from_pretrained(mine.clone(), freeze=False)  # named as the whole one
        whole.table.weight = nn.Parameter(mine.new_empty(0))
        self.group = distributed.new_group(timeout=PATIENCE)  # so that gradients of other weights do not come between

    def forward(self, categorical: Tensor) -> Tensor:
        """Codes of one's rows (rows, columns) to sums (rows, width)."""
        whole = self.whole[0].to(categorical.device)
        whole.check_codes(categorical)
        sums: Tensor = _Summed.apply(self.table.weight, categorical + whole.offsets, self)  # type: ignore[no-untyped-call]
        return sums

    def all_rows(self, mine: Tensor) -> Tensor:
        """What all processes have of the batch, one after the other, each filled up to the same number of rows."""
        most = -(-self.share.batch // self.workers.count)
        filled = nn.functional.pad(mine.cpu(), (0, 0, 0, most - len(mine)))
        every = [torch.empty_like(filled) for _ in range(self.workers.count)]
        distributed.all_gather(every, filled.contiguous(), group=self.group)
        return torch.cat(every).to(mine.device)

    def joined(self) -> Columns:
        """The whole table again, at every process."""
        whole, mine = self.whole[0].cpu(), self.table.weight.detach().cpu()
        whole.table.weight = nn.Parameter(self.workers.whole_table(mine, sum(whole.cardinalities)))
        distributed.destroy_process_group(self.group)
        return whole


class _Summed(torch.autograd.Function):
    """Sums of the weights of codes, of which other processes have some."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, codes: Tensor, table: CutTable) -> Tensor:
        count, rank = table.workers.count, table.workers.rank
        every = table.all_rows(codes)
        here = every % count == rank
        rows, each = every[here] // count, here.sum(1)
        sums = nn.functional.embedding_bag(rows, weight, each.cumsum(0) - each, mode="sum").cpu()
        distributed.all_reduce(sums, group=table.group)
        ctx.table, ctx.each, ctx.shape = table, each, weight.shape
        ctx.save_for_backward(rows)
        most = len(every) // count
        return sums[rank * most :][: len(codes)].to(weight.device)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,), (rows,) = grads, ctx.saved_tensors
        every = ctx.table.all_rows(grad / ctx.table.workers.count)  # the mean over processes, as of all other weights
        each = every.repeat_interleave(ctx.each, dim=0)  # for every code that is here
        return grad.new_zeros(ctx.shape).index_add_(0, rows, each), None, None
