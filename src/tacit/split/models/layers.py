"""What the networks are built from: layers with names that can be read, a table's columns, first weights, and checks.

First weights are Glorot uniform and biases are zero, as in the public code of the papers. They are drawn in the order
of the network, so the same seed gives the same network wherever it is cut.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from tacit.arguments import count, counts
from tacit.errors import TensorError, UsageError

_CODES = (torch.int32, torch.int64)

L = TypeVar("L", nn.Linear, nn.Conv2d)


class Layered(nn.Module):
    """A network whose layers are called `layer1`, `layer2`, ... in order, so that any of them can be hooked by name.

    Args:
        layers: the modules, first to last.
        first: the number of the first one; a top goes on counting where its bottom stopped.

    >>> net = Layered([nn.Linear(2, 3), nn.ReLU()], first=4)
    >>> net.layer_names(), net(torch.zeros(5, 2)).shape
    (['layer4', 'layer5'], torch.Size([5, 3]))
    """

    def __init__(self, layers: Iterable[nn.Module], *, first: int = 1) -> None:
        super().__init__()
        self._names: list[str] = []
        for number, layer in enumerate(layers, first):
            self._names.append(f"layer{number}")
            self.add_module(self._names[-1], layer)

    def layer_names(self) -> list[str]:
        """The names of the layers, in order; each is a name for `get_submodule`."""
        return list(self._names)

    def run(self, x: Tensor) -> Tensor:
        """Send a batch through all layers."""
        for name in self._names:
            x = self.get_submodule(name)(x)
        return x

    forward = run


def glorot_linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer with Glorot uniform weights and zero biases; without a generator, torch's own one is used."""
    return _glorot(nn.Linear(inputs, outputs, device="meta"), generator)


def glorot_conv(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Conv2d:
    """A 3x3 convolution of stride 1 that keeps the size, with Glorot uniform weights and zero biases."""
    return _glorot(nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, device="meta"), generator)


def _glorot(layer: L, generator: torch.Generator | None) -> L:
    layer.to_empty(device="cpu")  # it comes from the meta device, so that nothing was drawn for it yet
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def relu_layers(sizes: Sequence[int], generator: torch.Generator | None) -> Iterator[nn.Sequential]:
    """For each two neighbouring sizes a linear layer and its ReLU, named `linear` and `relu`."""
    for inputs, outputs in pairwise(sizes):
        yield nn.Sequential(OrderedDict(linear=glorot_linear(inputs, outputs, generator), relu=nn.ReLU()))


def one_or_many(logits: Tensor) -> Tensor:
    """Logits as a loss wants them: (batch, 1) becomes (batch,), several classes stay (batch, classes)."""
    return logits.squeeze(1) if logits.shape[1] == 1 else logits


# --- the columns of a table ------------------------------------------------------------------------------------------


class Columns(nn.Module):
    """Categorical columns through **one** embedding table with offsets, then the numeric columns.

    One table for all columns is about twice as fast as one for each. Its rows start Glorot uniform column by column,
    as if each column had a table of its own.

    Args:
        cardinalities: the number of codes of each categorical column; column i holds codes from 0 to
            `cardinalities[i] - 1`.
        numeric: the number of numeric columns.
        embedding: the width of a row of the table.
        sparse: whether the table's gradient is sparse; for large tables, with `tacit.split.models.adam`.
        prefix: what stands before the names of the fields in messages, for example "own_".
        generator: where the first weights come from; torch's own generator if None.

    >>> net = Columns([3, 5], numeric=2, embedding=4)
    >>> net(torch.tensor([[0, 4], [2, 0]]), torch.zeros(2, 2)).shape
    torch.Size([2, 10])
    """

    offsets: Tensor  # (categorical columns,) where each column's rows start in the table
    limits: Tensor  # (categorical columns,) the cardinalities

    def __init__(
        self,
        cardinalities: Sequence[int],
        numeric: int,
        embedding: int,
        *,
        sparse: bool = False,
        prefix: str = "",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.cardinalities = counts(f"{prefix}cardinalities", cardinalities)
        self.numeric = count(f"{prefix}numeric", numeric, low=0)
        self.embedding = count("embedding", embedding)
        self.prefix = prefix
        self.width = len(self.cardinalities) * self.embedding + self.numeric
        if self.width == 0:
            raise UsageError(f"there is no input: give {prefix}cardinalities, {prefix}numeric or both")
        limits = torch.tensor(self.cardinalities, dtype=torch.int64)
        self.register_buffer("limits", limits, persistent=False)
        self.register_buffer("offsets", limits.cumsum(0) - limits, persistent=False)
        if self.cardinalities:
            self.table = _glorot_table(self.cardinalities, self.embedding, sparse, generator)

    def forward(self, categorical: Tensor | None = None, numeric: Tensor | None = None) -> Tensor:
        """Codes (batch, c) and numbers (batch, m) as vectors (batch, c * embedding + m)."""
        codes = columns(f"{self.prefix}categorical", categorical, len(self.cardinalities))
        numbers = columns(f"{self.prefix}numeric", numeric, self.numeric)
        parts = []
        if codes is not None:
            self.check_codes(codes)
            parts.append(self.table(codes + self.offsets).flatten(1))  # (batch, c * embedding)
        if numbers is not None:
            if not numbers.is_floating_point():
                raise TensorError(f"{self.prefix}numeric must be a floating point tensor, not {numbers.dtype}")
            parts.append(numbers)
        if codes is not None and numbers is not None:
            same_rows(**{f"{self.prefix}categorical": codes, f"{self.prefix}numeric": numbers})
        return torch.cat(parts, dim=1)

    def check_codes(self, codes: Tensor) -> None:
        """Refuse codes outside their own column: with offsets they would silently read another column's rows."""
        name = f"{self.prefix}categorical"
        if codes.dtype not in _CODES:
            raise TensorError(f"{name} must hold integer codes (int64 or int32), not {codes.dtype}")
        if codes.device.type == "cuda":  # asked on the device, so that nobody waits for the answer
            inside = ((codes >= 0) & (codes < self.limits)).all()
            torch._assert_async(inside, f"{name} holds a code outside its column: run on the CPU to see which column")
            return
        if codes.device.type != "cpu" or torch.compiler.is_compiling() or not len(codes):
            return
        low, high = torch.aminmax(codes, dim=0)
        outside = (low < 0) | (high >= self.limits)
        if outside.any():
            column = int(outside.nonzero()[0])
            code = int(low[column] if low[column] < 0 else high[column])
            size = self.cardinalities[column]
            raise TensorError(
                f"{name} column {column} holds the code {code}, but its codes run from 0 to {size - 1}: "
                f"map unknown categories to a code of their own, or raise {self.prefix}cardinalities[{column}]"
            )


def _glorot_table(
    cardinalities: Sequence[int], embedding: int, sparse: bool, generator: torch.Generator | None
) -> nn.Embedding:
    weight = torch.empty(sum(cardinalities), embedding)
    start = 0
    for size in cardinalities:
        bound = math.sqrt(6 / (size + embedding))
        weight[start : start + size].uniform_(-bound, bound, generator=generator)
        start += size
    table: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=False, sparse=sparse)
    return table


# --- checks of arguments and of input tensors, with messages that name the field -------------------------------------


def shaped(name: str, value: Tensor, shape: Sequence[int]) -> Tensor:
    """The value itself, if it holds floating point numbers of this shape behind the batch dimension."""
    if tuple(value.shape[1:]) != tuple(shape) or value.ndim != len(shape) + 1:
        wanted = ", ".join(["batch", *map(str, shape)])
        raise TensorError(f"{name} must be of shape ({wanted}), not {tuple(value.shape)}")
    if not value.is_floating_point():
        raise TensorError(f"{name} must be a floating point tensor, not {value.dtype}: convert it with .float()")
    return value


def columns(name: str, value: Tensor | None, width: int) -> Tensor | None:
    """The value itself, if it has one row for each example and `width` columns; None where no column is expected."""
    if value is None:
        if width:
            raise TensorError(f"{name} is missing: the model was built for a tensor of shape (batch, {width})")
        return None
    if value.ndim != 2 or value.shape[1] != width:
        raise TensorError(f"{name} must be of shape (batch, {width}), not {tuple(value.shape)}")
    return value if width else None


def same_rows(**values: Tensor) -> None:
    """Refuse tensors with different numbers of rows, which broadcasting would hide."""
    if len({len(value) for value in values.values()}) > 1:
        rows = ", ".join(f"{name} has {len(value)} rows" for name, value in values.items())
        raise TensorError(f"{rows}: they must hold the same examples in the same order")
