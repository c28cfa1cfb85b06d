"""Bottoms and tops of many replicas as one batched network: the same layers as `tacit.models`, one product for all.

A stacked tensor has the replicas in front: (replicas, batch, width). Pictures travel as (batch, replicas * channels,
height, width), because a grouped convolution is the batched form of many convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import UsageError
from tacit.lab.stack.optimizers import RowTable
from tacit.models.columns import Columns
from tacit.models.conv import ConvBottom, ConvTop
from tacit.models.layers import Layered
from tacit.models.wide_deep import WideDeepBottom, WideDeepTop

__all__ = ["StackedBottom", "StackedTop"]


class _Half:
    """What both halves share: every dense weight of all replicas in one tensor, and their way back into modules.

    Attributes:
        replicas: how many there are.
        weights: by the name that the module's state has for it.  (replicas, *shape) each
        table: the embedding tables of all replicas; None where there is none.
    """

    def __init__(self, modules: Sequence[nn.Module], columns: str | None, device: torch.device) -> None:
        self.replicas = len(modules)
        states = [module.state_dict() for module in modules]
        table = None if columns is None else f"{columns}.table.weight"
        self.weights = {
            name: torch.stack([state[name] for state in states]).to(device).requires_grad_()
            for name in states[0]
            if name != table
        }
        self._table_name = table if table in states[0] else None
        self.table = None
        if self._table_name is not None:
            self.table = RowTable(torch.stack([state[self._table_name] for state in states], dim=1).to(device))

    def state_of(self, replica: int) -> dict[str, Tensor]:
        """One replica's weights, as `load_state_dict` of an ordinary module takes them."""
        state = {name: weight[replica].detach().cpu().clone() for name, weight in self.weights.items()}
        if self.table is not None and self._table_name is not None:
            state[self._table_name] = self.table.weight[:, replica].detach().cpu().clone()
        return state

    def linear(self, name: str, x: Tensor) -> Tensor:
        """One linear layer of all replicas.  (replicas, batch, inputs) -> (replicas, batch, outputs)"""
        return torch.baddbmm(self.weights[f"{name}.bias"][:, None], x, self.weights[f"{name}.weight"].mT)

    def block(self, name: str, x: Tensor) -> Tensor:
        """One block of convolution, ReLU and pool.  (batch, replicas * channels, height, width)

        The first block of a batch that all replicas share is one plain convolution with the filters of all of them.
        """
        weight, bias = self.weights[f"{name}.conv.weight"], self.weights[f"{name}.conv.bias"]
        groups = x.shape[1] // weight.shape[2]
        x = functional.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=1, groups=groups)
        return functional.max_pool2d(functional.relu(x), 2)


class StackedBottom(_Half):
    """The feature parties' halves of all replicas.

    Args:
        modules: one ordinary bottom for each replica.
        device: where to train them.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        first = modules[0]
        if not isinstance(first, WideDeepBottom | ConvBottom):
            raise UsageError(f"a {type(first).__name__} can't be stacked: use the networks of wide_deep() or conv()")
        self.pictures = isinstance(first, ConvBottom)
        super().__init__(modules, None if self.pictures else "inputs", device)
        self.names = first.layer_names()
        self.columns = first.inputs.to(device) if isinstance(first, WideDeepBottom) else None

    def look_up(self, features: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """Where the batch's codes stand in the table, and the rows there as a leaf; None twice where there are none.

        Args:
            features: of this batch, with the replicas in front or, where all share the batch, a 1.
        """
        if self.columns is None or self.table is None:
            return None, None
        return self.table.look_up(features[0] + self.columns.offsets)

    def start(self, features: Sequence[Tensor], looked_up: Tensor | None) -> Tensor:
        """The input of the first layer, from what `look_up` found and the other features."""
        if self.pictures:
            return _channels(features[0])
        return _inputs(looked_up, features, self.replicas)

    def run(self, x: Tensor, first: int = 0) -> list[Tensor]:
        """The output of each layer from `first` on, the cut's last."""
        outputs = []
        for name in self.names[first:]:
            x = self.block(name, x) if self.pictures else functional.relu(self.linear(f"{name}.linear", x))
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
    """The label parties' halves of all replicas.

    Args:
        modules: one ordinary top for each replica.
        device: where to train them.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        first = modules[0]
        if not isinstance(first, WideDeepTop | ConvTop):
            raise UsageError(f"a {type(first).__name__} can't be stacked: use the networks of wide_deep() or conv()")
        wide = isinstance(first, WideDeepTop) and first.own is not None
        super().__init__(modules, "own" if wide else None, device)
        self.pictures = isinstance(first, ConvTop)
        self.names = first.layer_names() if isinstance(first, Layered) else []
        self.columns: Columns | None = first.own if isinstance(first, WideDeepTop) else None
        if self.columns is not None:
            self.columns = self.columns.to(device)

    def look_up(self, own: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """As `StackedBottom.look_up`, of the label party's own codes."""
        if self.columns is None or self.table is None:
            return None, None
        return self.table.look_up(own[0] + self.columns.offsets)

    def logits(self, z: Tensor, own: Sequence[Tensor], looked_up: Tensor | None) -> Tensor:
        """Embeddings (replicas, batch, *cut) and the label party's own columns to logits (replicas, batch)."""
        if self.pictures:
            return self._of_pictures(z)
        x = z
        for name in self.names:
            x = functional.relu(self.linear(f"{name}.linear", x))
        logits = self.linear("logit", x)
        if self.columns is not None:
            logits = logits + self.linear("wide", _inputs(looked_up, own, self.replicas))
        return logits.squeeze(-1)

    def _of_pictures(self, z: Tensor) -> Tensor:
        x = z.transpose(0, 1).flatten(1, 2)  # (batch, replicas * channels, height, width)
        for name in self.names:
            x = self.block(name, x)
        flat = x.unflatten(1, (self.replicas, -1)).transpose(0, 1).flatten(2)  # (replicas, batch, inputs)
        return self.linear("logit", functional.relu(self.linear("hidden.linear", flat))).squeeze(-1)


def _inputs(looked_up: Tensor | None, features: Sequence[Tensor], replicas: int) -> Tensor:
    """Rows of the table and numbers side by side.  (replicas, batch, inputs)"""
    parts = [] if looked_up is None else [looked_up.flatten(2)]
    if features[1].shape[-1]:
        parts.append(features[1].expand(replicas, -1, -1))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def _channels(pictures: Tensor) -> Tensor:
    """Pictures (replicas or 1, batch, channels, height, width) as (batch, channels of all, height, width)."""
    x = pictures.transpose(0, 1).flatten(1, 2)
    return x.float() / 255 if x.dtype == torch.uint8 else x
