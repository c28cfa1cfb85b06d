"""Bottoms and tops of many replicas as one batched network: layers of `tacit.split.models`, one product for all.

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
from tacit.split.models.conv import ConvBottom, ConvTop
from tacit.split.models.layers import Columns, Layered
from tacit.split.models.wide_deep import WideDeepBottom, WideDeepTop
from tacit.split.protect.gradient import fused


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

    def relu_conv(self, name: str, x: Tensor) -> Tensor:
        """The convolution of a block and its ReLU.  (batch, replicas * channels, height, width)

        The first block of a batch that all replicas share is one plain convolution with the filters of all of them.
        """
        weight, bias = self.weights[f"{name}.conv.weight"], self.weights[f"{name}.conv.bias"]
        groups = x.shape[1] // weight.shape[2]
        return functional.relu(functional.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=1, groups=groups))


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
        """What comes out of the ReLU of each layer from `first` on, and last the cut.

        Of a table the cut is the output of the last ReLU, of pictures that of the pool behind it: the gradients that
        the papers look at are those of ReLU outputs (Li 2022, appendix A.7.3).

        Args:
            x: the input of the first layer, or what came out of the ReLU of the layer before `first`.
        """
        outputs = []
        if first and self.pictures:
            x = _pooled(x)
        for name in self.names[first:]:
            outputs.append(self.relu_conv(name, x) if self.pictures else self.relu_linear(f"{name}.linear", x))
            x = _pooled(outputs[-1]) if self.pictures else outputs[-1]
        return [*outputs, x]

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
            x = _pooled(self.relu_conv(name, x))
        flat = x.unflatten(1, (self.replicas, -1)).transpose(0, 1).flatten(2)  # (replicas, batch, inputs)
        return self.linear("logit", self.relu_linear("hidden.linear", flat)).squeeze(-1)


def _pooled(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 2)


def _relu_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.relu(torch.bmm(x, weight) + bias[:, None])  # baddbmm would first write the bias to every row


_trained = fused(_relu_linear)


def _turned(weights: Tensor) -> Tensor:
    """The weights of a stacked linear layer transposed; all others as they are."""
    return weights.mT if weights.ndim == 3 else weights


# --- embedding tables ------------------------------------------------------------------------------------------------


class RowTable:
    """The embedding tables of all replicas, one row of all of them side by side, with Adam's averages.

    `tacit.split.models.RowwiseAdam` for a stack: rows that no example of the batch has stay as they are. Gradients of
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
