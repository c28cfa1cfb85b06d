"""Bottoms and tops of many replicas as one batched network: the same layers as `tacit.models`, one product for all.

A stacked tensor has the replicas in front: (replicas, batch, width). Pictures travel as (batch, replicas * channels,
height, width), because a grouped convolution is the batched form of many convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import UsageError
from tacit.lab.stack.optimizers import RowTable
from tacit.models.conv import ConvBottom, ConvTop
from tacit.models.layers import Columns, Layered
from tacit.models.wide_deep import WideDeepBottom, WideDeepTop
from tacit.protect.gradient import fused


class _Half:
    """What both halves share: every dense weight of all replicas in one tensor, and their way back into modules.

    `weights` are (replicas, *shape), by the name that a module's state has for them; those of a linear layer lie
    transposed, (replicas, inputs, outputs), as its gradient does, which spares Adam a copy.
    """

    def __init__(
        self, modules: Sequence[nn.Module], seed_of: Sequence[int], columns: str | None, device: torch.device
    ) -> None:
        self.replicas = len(modules)
        self.seed_of = torch.tensor(list(seed_of), device=device)  # of each replica, whose batches it trains on
        self.columns: Columns | None = None
        alike = list(dict.fromkeys(modules))  # replicas of one seed begin with one module's weights
        states, of = [module.state_dict() for module in alike], [alike.index(module) for module in modules]
        table = None if columns is None else f"{columns}.table.weight"
        self.weights = {
            name: _turned(torch.stack([state[name] for state in states]).to(device))[of].contiguous().requires_grad_()
            for name in states[0]
            if name != table
        }
        self._table_name = table if table in states[0] else None
        self.table = None
        if self._table_name is not None:
            first = torch.stack([state[self._table_name] for state in states], dim=1).to(device)
            self.table = RowTable(first[:, of], seed_of)

    def state_of(self, replica: int) -> dict[str, Tensor]:
        """One replica's weights, as `load_state_dict` of an ordinary module takes them."""
        state = {name: _turned(weight.detach())[replica].cpu().clone() for name, weight in self.weights.items()}
        if self.table is not None and self._table_name is not None:
            state[self._table_name] = self.table.weight[:, replica].detach().cpu().clone()
        return state

    def by_seed(self, x: Tensor) -> Tensor:
        """What each seed's batch holds, for each replica; what all share stays as it is, with a 1 in front."""
        return x if len(x) == 1 else x[self.seed_of]

    def inputs(self, features: Sequence[Tensor]) -> Tensor:
        """Rows of the table and numbers side by side.  (replicas, batch, inputs)"""
        codes, numbers = features
        if self.table is None or self.columns is None:
            return self.by_seed(numbers).expand(self.replicas, -1, -1)
        return self.table.inputs(codes + self.columns.offsets, numbers)

    def update_table(self, features: Sequence[Tensor], gradient: Tensor | None, step: Tensor, **adam: Any) -> None:
        """Adam on the rows of the table that the batch touched, with the gradient of what `start` returned."""
        if self.table is not None and self.columns is not None and gradient is not None:
            self.table.update(features[0] + self.columns.offsets, gradient, step, **adam)

    def linear(self, name: str, x: Tensor) -> Tensor:
        """One linear layer of all replicas.  (replicas, batch, inputs) -> (replicas, batch, outputs)"""
        return torch.baddbmm(self.weights[f"{name}.bias"][:, None], x, self.weights[f"{name}.weight"])

    def relu_linear(self, name: str, x: Tensor) -> Tensor:
        """The same and its ReLU; a training batch is worth a compiled kernel, other shapes come and go."""
        made = _trained if torch.is_grad_enabled() and x.shape[1] > 1 else _relu_linear
        return made(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def block(self, name: str, x: Tensor) -> Tensor:
        """One block of convolution, ReLU and pool.  (batch, replicas * channels, height, width)

        The first block of a batch that all replicas share is one plain convolution with the filters of all of them.
        """
        weight, bias = self.weights[f"{name}.conv.weight"], self.weights[f"{name}.conv.bias"]
        groups = x.shape[1] // weight.shape[2]
        x = functional.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=1, groups=groups)
        return functional.max_pool2d(functional.relu(x), 2)


class StackedBottom(_Half):
    """The feature parties' halves of all replicas."""

    def __init__(self, modules: Sequence[nn.Module], seed_of: Sequence[int], device: torch.device) -> None:
        first = modules[0]
        if not isinstance(first, WideDeepBottom | ConvBottom):
            raise UsageError(f"a {type(first).__name__} can't be stacked: use the networks of wide_deep() or conv()")
        self.pictures = isinstance(first, ConvBottom)
        super().__init__(modules, seed_of, None if self.pictures else "inputs", device)
        self.names = first.layer_names()
        if isinstance(first, WideDeepBottom):
            self.columns = first.inputs.to(device)

    def start(self, features: Sequence[Tensor]) -> Tensor:
        """The input of the first layer; a leaf for autograd where a table is behind it."""
        if not self.pictures:
            return self.inputs(features)
        x = self.by_seed(features[0]).transpose(0, 1).flatten(1, 2)  # (batch, channels of all, height, width)
        return x.float() / 255 if x.dtype == torch.uint8 else x

    def run(self, x: Tensor, first: int = 0) -> list[Tensor]:
        """The output of each layer from `first` on, the cut's last."""
        outputs = []
        for name in self.names[first:]:
            x = self.block(name, x) if self.pictures else self.relu_linear(f"{name}.linear", x)
            outputs.append(x)
        return outputs

    def by_replica(self, x: Tensor) -> Tensor:
        """A layer's output or its gradient with the replicas in front.  (replicas, batch, *layer)"""
        return x.unflatten(1, (self.replicas, -1)).transpose(0, 1) if self.pictures else x

    def joined(self, x: Tensor) -> Tensor:
        """The way back: as the layers hand it on."""
        return x.transpose(0, 1).flatten(1, 2) if self.pictures else x

    def one_row(self, x: Tensor, rows: Tensor) -> Tensor:
        """Of a layer's output the row that each replica asks for, as a batch of one."""
        front = self.by_replica(x)
        picked = front[torch.arange(self.replicas, device=x.device), rows][:, None]  # (replicas, 1, *layer)
        return self.joined(picked)


class StackedTop(_Half):
    """The label parties' halves of all replicas."""

    def __init__(self, modules: Sequence[nn.Module], seed_of: Sequence[int], device: torch.device) -> None:
        first = modules[0]
        if not isinstance(first, WideDeepTop | ConvTop):
            raise UsageError(f"a {type(first).__name__} can't be stacked: use the networks of wide_deep() or conv()")
        wide = isinstance(first, WideDeepTop) and first.own is not None
        super().__init__(modules, seed_of, "own" if wide else None, device)
        self.pictures = isinstance(first, ConvTop)
        self.names = first.layer_names() if isinstance(first, Layered) else []
        if isinstance(first, WideDeepTop) and first.own is not None:
            self.columns = first.own.to(device)

    def start(self, own: Sequence[Tensor]) -> Tensor | None:
        """The input of the wide part, as `StackedBottom.start` gives that of the first layer; None if there is none."""
        return None if self.columns is None else self.inputs(own)

    def logits(self, z: Tensor, wide: Tensor | None) -> Tensor:
        """Embeddings (replicas, batch, *cut) and the input of the wide part to logits (replicas, batch)."""
        if self.pictures:
            return self._of_pictures(z)
        x = z
        for name in self.names:
            x = self.relu_linear(f"{name}.linear", x)
        logits = self.linear("logit", x)
        if wide is not None:
            logits = logits + self.linear("wide", wide)
        return logits.squeeze(-1)

    def _of_pictures(self, z: Tensor) -> Tensor:
        x = z.transpose(0, 1).flatten(1, 2)  # (batch, replicas * channels, height, width)
        for name in self.names:
            x = self.block(name, x)
        flat = x.unflatten(1, (self.replicas, -1)).transpose(0, 1).flatten(2)  # (replicas, batch, inputs)
        return self.linear("logit", self.relu_linear("hidden.linear", flat)).squeeze(-1)


def _relu_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.relu(torch.bmm(x, weight) + bias[:, None])  # baddbmm would first write the bias to every row


_trained = fused(_relu_linear)


def _turned(weights: Tensor) -> Tensor:
    """The weights of a stacked linear layer transposed; all others as they are."""
    return weights.mT if weights.ndim == 3 else weights
