"""Without labels first: a trunk that learns what columns say about each other.

40% of the cells are replaced by those of other rows, and the true ones are predicted. All rows may be used, aligned or
not.

Of a column with more than 1024 codes it is the code's remainder by 1024 that is predicted: a million outputs would take
all the time, and codes that few rows have are told apart from most others so, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.arguments import count
from tacit.errors import UsageError
from tacit.exchange._batches import drawn, placed, rows_a_step
from tacit.exchange._network import CPU, Scorer, TableTrunk, device_of, optimizer_of, same_draws
from tacit.progress import Progress

EPOCHS = 6  # how often each row is seen
MOST_CODES = 1024  # outputs of a column at most
_REPLACED = 0.4  # the share of cells
_BATCH = 512


def trunk_for(inputs: Inputs) -> TableTrunk:
    """A trunk that has learnt nothing yet, for rows like these."""
    return TableTrunk(inputs.cardinalities, inputs.numeric.shape[1])


def pretrain(
    inputs: Inputs,
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = lambda *_: None,
    device: str = "cpu",
) -> TableTrunk:
    """A trunk that has learnt from rows alone."""
    count("epochs", epochs)
    if len(inputs) < 2:
        raise UsageError("there is nothing to learn from fewer than two rows: skip pretraining")
    where, size = device_of(device), rows_a_step(len(inputs), _BATCH)
    with same_draws(seed, threads, where):
        trunk = trunk_for(inputs)
        sizes = [*(min(codes, MOST_CODES) for codes in inputs.cardinalities), inputs.numeric.shape[1]]
        net = Scorer(trunk, trunk.width, sum(sizes))
        optimizer = optimizer_of(net.to(where), where, 2e-3)
        rows = placed(inputs.tensors, where)
        net.train()
        for epoch in range(1, epochs + 1):
            batches = torch.randperm(len(inputs), device=rows[0].device).split(size)
            for batch in drawn(rows, batches, where):
                if len(batch[0]) > 1:  # one row alone has no other to take cells from
                    optimizer.zero_grad()
                    _masked_loss(sizes, net, batch).backward()
                    optimizer.step()
            progress("learning without labels", epoch, epochs)
    return trunk.to(CPU).eval()


def _masked_loss(sizes: Sequence[int], predict: nn.Module, rows: list[Tensor]) -> Tensor:
    """How far the true cells are from what is predicted for rows whose cells are partly those of others."""
    categorical, numeric = rows
    found = predict(_mixed(categorical), _mixed(numeric))
    categorical = categorical % MOST_CODES
    *codes, numbers = found.split(list(sizes), dim=1)
    losses = [nn.functional.cross_entropy(logits, categorical[:, place]) for place, logits in enumerate(codes)]
    losses += [nn.functional.smooth_l1_loss(numbers, numeric)] if numeric.shape[1] else []
    return torch.stack(losses).mean()


def _mixed(cells: Tensor) -> Tensor:
    """The cells, some of them replaced by the same column of another row."""
    others = cells.gather(0, torch.rand(cells.shape, device=cells.device).argsort(dim=0))
    return torch.where(torch.rand(cells.shape, device=cells.device) < _REPLACED, others, cells)
