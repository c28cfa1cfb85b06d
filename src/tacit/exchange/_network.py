"""Small networks for tables, and one way to fit them: on a part of the rows, stopped on the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.arguments import device_named
from tacit.errors import TensorError
from tacit.exchange._batches import drawn, placed, rows_a_step
from tacit.exchange._rows import Target, loss, using_threads
from tacit.progress import Progress
from tacit.same_bits import in_blocks

CPU = torch.device("cpu")
_BLOCK = 8192  # rows that are scored at once where the last bits do not count
_SMALL = 0.4  # times the usual size of the first weights
_FAR = 4.0  # deviations from a number's mean, beyond which it counts as so far


class Codes(nn.Module):
    """A vector for every code of every column, in one table; those of a row are added up."""

    offsets: Tensor  # (columns,) where each column's vectors start in the table

    def __init__(self, cardinalities: Sequence[int], width: int) -> None:
        super().__init__()
        starts = torch.tensor(cardinalities, dtype=torch.int64)
        self.register_buffer("offsets", starts.cumsum(0) - starts, persistent=False)
        bounds = [math.sqrt(6 / (size + width)) for size in cardinalities]  # Glorot's, as if each had its own table
        vectors = [torch.empty(size, width).uniform_(-b, b) for size, b in zip(cardinalities, bounds, strict=True)]
        self.table = nn.Embedding.from_pretrained(torch.cat(vectors), freeze=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Codes (batch, columns) to vectors (batch, width)."""
        if codes.shape[1:] != self.offsets.shape:
            raise TensorError(f"the rows have {codes.shape[1]} columns of codes, the network {len(self.offsets)}")
        vectors: Tensor = self.table(codes + self.offsets)
        return vectors.sum(1)


class TableTrunk(nn.Module):
    """The columns of a table to hidden units.

    Every code has a weight vector of its own in the first layer, small at first: one that few rows have shall not be a
    fingerprint before anything is learnt. Numbers far from their mean are drawn in.
    """

    def __init__(
        self, cardinalities: Sequence[int], numeric: int, width: int = 64, layers: int = 1, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.shape = {"cardinalities": list(cardinalities), "numeric": numeric, "width": width, "layers": layers}
        self.width, self.bare = width, not numeric  # without numbers there is one that is always 0
        self.codes = Codes(cardinalities, width) if len(cardinalities) else None
        self.numbers = nn.Linear(max(numeric, 1), width)
        with torch.no_grad():
            for weight in (*(self.codes.parameters() if self.codes else ()), self.numbers.weight):
                weight.mul_(_SMALL)
        rest: list[nn.Module] = [nn.ReLU(), nn.Dropout(dropout)]
        for _ in range(layers - 1):
            rest += [nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout)]
        self.rest = nn.Sequential(*rest)

    def forward(self, categorical: Tensor, numeric: Tensor) -> Tensor:
        """Codes (batch, c) and numbers (batch, m) to units (batch, width)."""
        first = self.numbers(numeric.new_zeros(len(numeric), 1) if self.bare else numeric.clamp(-_FAR, _FAR))
        if self.codes is not None:
            first = first + self.codes(categorical)
        units: Tensor = self.rest(first)
        return units


class Members(nn.Module):
    """Several trunks of one shape side by side: all their units."""

    def __init__(self, trunks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.trunks = nn.ModuleList(trunks)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Rows to the units of all (batch, members x width)."""
        return torch.cat([trunk(*tensors) for trunk in self.trunks], dim=1)


class Scorer(nn.Module):
    """A trunk and a linear layer: units to scores."""

    def __init__(self, trunk: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.score = nn.Linear(width, outputs)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Rows to scores (batch, outputs)."""
        scores: Tensor = self.score(self.trunk(*tensors))
        return scores


@dataclass(frozen=True)
class Fitting:
    """How a network is fitted."""

    epochs: int = 12  # how often it sees all rows at most
    patience: int = 2  # after how many epochs without a better loss of the rows left out it ends
    # rows a step; fewer where there would be fewer than 64 steps an epoch, but 32 at least, and more where there would
    # be more than `MOST_STEPS`
    batch: int = 1024
    rate: float = 2e-3  # the size of a step
    decay: float = 1e-3  # how much weights are pulled to 0
    out: float = 0.1  # the share of rows that are left out, to stop on


def device_of(name: str) -> torch.device:
    """The device that a name stands for: "cpu", "cuda", or "auto" for CUDA where there is one."""
    return CPU if device_named(name) == "cpu" else torch.device("cuda", 0)  # as tensors there have it, with its number


@contextmanager
def same_draws(seed: int, threads: int, device: torch.device = CPU) -> Iterator[None]:
    """Draw from this seed and use this many threads inside, on this device too; what was before comes back."""
    with using_threads(threads), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def optimizer_of(net: nn.Module, device: torch.device, rate: float, decay: float = 0.01) -> torch.optim.Optimizer:
    """AdamW, on a GPU in one kernel."""
    fused = True if device.type == "cuda" else None
    return torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay, fused=fused)


def fit_scorer(
    net: nn.Module,
    tensors: Sequence[Tensor],
    target: Target,
    fitting: Fitting,
    *,
    link: Callable[[Tensor], Tensor] | None = None,
    progress: Progress = lambda *_: None,
    device: torch.device = CPU,
) -> None:
    """Fit a network of scores in place, and leave the weights that were best for the rows left out.

    It learns on the device, and is on the CPU again when it is done.
    """
    count = len(target.values)
    values = torch.from_numpy(target.values).float() if target.outputs == 1 else torch.from_numpy(target.values)
    rows = placed([values, *tensors], device)
    home = rows[0].device
    order = torch.randperm(count, device=home)
    out = order[: max(1, int(count * fitting.out))] if count > 1 else order
    kept = order[len(out) :] if count > 1 else order
    judge, size = _judge(target), rows_a_step(len(kept), max(32, min(fitting.batch, len(kept) // 64)))
    net.to(device)
    optimizer = optimizer_of(net, device, fitting.rate, fitting.decay)
    judging = out.split(_BLOCK)
    judged = Target(target.values[out.cpu().numpy()], target.classes)
    best, least, best_epoch = deepcopy(net.state_dict()), math.inf, 0
    for epoch in range(1, fitting.epochs + 1):
        net.train()
        batches = kept[torch.randperm(len(kept), device=home)].split(size)
        for truth, *some in drawn(rows, batches, device):
            scores = net(*some)
            optimizer.zero_grad()
            judge(scores if link is None else link(scores), truth).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            found = torch.cat([net(*some) for _, *some in drawn(rows, judging, device)]).cpu().double()
        scored = (found if link is None else link(found)).numpy()
        if (now := loss(scored, judged)) < least:
            best, least, best_epoch = deepcopy(net.state_dict()), now, epoch
        progress("fitting a network", epoch, fitting.epochs)
        if epoch - best_epoch >= fitting.patience:
            break
    net.load_state_dict(best)
    net.to(CPU).eval()
    progress("fitting a network", fitting.epochs, fitting.epochs)


def scores_of(net: nn.Module, tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """What a network gives for any rows, without learning.  (rows, outputs)"""
    net.eval()
    with torch.no_grad():
        return in_blocks(net, tensors).double().numpy()


def units_of(trunk: nn.Module, tensors: Sequence[Tensor]) -> int:
    """How many units a trunk makes of a row."""
    trunk.eval()
    with torch.no_grad():
        found = trunk(*(tensor[:2] for tensor in tensors))
    if not isinstance(found, Tensor) or found.ndim != 2:
        raise TensorError(
            f"{type(trunk).__name__} gives {tuple(getattr(found, 'shape', ()))} of 2 rows: a module makes hidden units "
            "of rows, (rows, units)"
        )
    return int(found.shape[1])


def _judge(target: Target) -> Callable[[Tensor, Tensor], Tensor]:
    if target.classes is None:
        return lambda scores, values: nn.functional.mse_loss(scores[:, 0], values)
    if target.outputs == 1:
        return lambda scores, values: nn.functional.binary_cross_entropy_with_logits(scores[:, 0], values)
    return nn.functional.cross_entropy
