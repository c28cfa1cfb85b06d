"""Without labels first: a trunk that learns what columns say about each other, or what two views of a picture share.

Tables: 40% of the cells are replaced by those of other rows, and the true ones are predicted. Pictures: two views of
one (shifted, mirrored, brighter) are to be told from views of others. All rows may be used, aligned or not.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.errors import UsageError
from tacit.models.layers import count
from tacit.one_shot._network import PictureTrunk, Scorer, TableTrunk, same_draws, shared
from tacit.one_shot._rows import Progress
from tacit.one_shot.workers import ALONE, Epochs, Workers

EPOCHS = 6
"""How often each row is seen."""
REPLACED = 0.4
"""The share of cells that are replaced."""
_BATCH = 512
_WARMTH = 0.2  # of the softmax over pictures


def trunk_for(inputs: Inputs | Tensor, width: int = 64) -> TableTrunk | PictureTrunk:
    """A trunk that has learnt nothing yet, for rows like these."""
    if isinstance(inputs, Inputs):
        return TableTrunk(inputs.cardinalities, inputs.numeric.shape[1], width)
    if inputs.ndim != 4:
        raise UsageError(f"pictures must be of shape (rows, channels, height, width), not {tuple(inputs.shape)}")
    return PictureTrunk(inputs.shape[1], width)


def pretrain(
    inputs: Inputs | Tensor,
    *,
    epochs: int = EPOCHS,
    replaced: float = REPLACED,
    width: int = 64,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = lambda *_: None,
    workers: Workers = ALONE,
) -> TableTrunk | PictureTrunk:
    """A trunk that has learnt from rows alone."""
    count("epochs", epochs)
    if not 0 < replaced < 1:
        raise UsageError(f"replaced must be a share between 0 and 1, not {replaced}")
    if len(inputs) < 2:
        raise UsageError("there is nothing to learn from fewer than two rows: skip pretraining")
    workers.check(len(inputs))
    with same_draws(seed, threads):
        trunk = trunk_for(inputs, width)
        if isinstance(inputs, Inputs):
            net = Scorer(trunk, width, sum(inputs.cardinalities) + inputs.numeric.shape[1])
            loss_of = partial(_masked_loss, inputs, replaced)
        else:
            net, loss_of = Scorer(trunk, width, width), partial(_views_loss, inputs)
        optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
        forward = workers.wrapped(net)
        net.train()
        for epoch in Epochs(net, optimizer, epochs, workers, "without labels"):
            for batch in torch.randperm(len(inputs)).split(_BATCH):
                if len(batch) > 1:  # one row alone has no other to take cells from
                    share = shared(net, workers, len(batch))
                    optimizer.zero_grad()
                    (loss_of(forward, batch, share.rows) * share.weight).backward()
                    optimizer.step()
            progress("learning without labels", epoch, epochs)
    return trunk.eval()


def _masked_loss(inputs: Inputs, replaced: float, predict: nn.Module, rows: Tensor, mine: slice) -> Tensor:
    """How far the true cells are from what is predicted for rows whose cells are partly those of others.

    Of all rows of a batch cells are replaced, of one's own they are predicted.
    """
    categorical, numeric = inputs.categorical[rows], inputs.numeric[rows]
    found = predict(_mixed(categorical, replaced)[mine], _mixed(numeric, replaced)[mine])
    categorical, numeric = categorical[mine], numeric[mine]
    *codes, numbers = found.split([*inputs.cardinalities, numeric.shape[1]], dim=1)
    losses = [nn.functional.cross_entropy(logits, categorical[:, place]) for place, logits in enumerate(codes)]
    losses += [nn.functional.smooth_l1_loss(numbers, numeric)] if numeric.shape[1] else []
    return torch.stack(losses).mean()


def _mixed(cells: Tensor, replaced: float) -> Tensor:
    """The cells, each replaced at this chance by the same column of another row."""
    others = cells.gather(0, torch.rand(cells.shape).argsort(dim=0))
    return torch.where(torch.rand(cells.shape) < replaced, others, cells)


def _views_loss(inputs: Tensor, predict: nn.Module, rows: Tensor, _: slice) -> Tensor:
    """Cross entropy of finding a picture's second view among the second views of all pictures of the batch."""
    pictures = inputs[rows]
    first, second = (nn.functional.normalize(predict(_view(pictures.float())), dim=1) for _ in range(2))
    alike = first @ second.T / _WARMTH  # (batch, batch)
    own = torch.arange(len(pictures))
    return (nn.functional.cross_entropy(alike, own) + nn.functional.cross_entropy(alike.T, own)) / 2


def _view(pictures: Tensor) -> Tensor:
    """Each picture shifted by up to an eighth, mirrored at random, with other brightness and contrast."""
    rows, _, height, width = pictures.shape
    shift = (torch.rand(rows, 2) * 2 - 1) / 4  # in units of half a picture
    mirror = torch.where(torch.rand(rows) < 0.5, -1.0, 1.0)
    turn = torch.zeros(rows, 2, 3)
    turn[:, 0, 0], turn[:, 1, 1], turn[:, :, 2] = mirror, 1.0, shift
    grid = nn.functional.affine_grid(turn, [rows, 1, height, width], align_corners=False)
    moved = nn.functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
    contrast, light = 0.7 + 0.6 * torch.rand(rows, 1, 1, 1), 0.4 * torch.rand(rows, 1, 1, 1) - 0.2
    return moved * contrast + light * pictures.std()
