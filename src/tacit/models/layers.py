"""What the networks are built from: layers with names that can be read, and their first weights.

First weights are Glorot uniform and biases are zero, as in the public code of the papers. They are drawn in the order
of the network, so the same seed gives the same network wherever it is cut.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["Layered", "Unsplit"]

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

    def forward(self, x: Tensor) -> Tensor:
        """Send a batch through all layers."""
        return self.run(x)


class Unsplit(nn.Module):
    """A bottom and a top as the one network that they would be without a cut: the reference for split training.

    Args:
        bottom: the feature party's network.
        top: the label party's network.

    >>> from tacit.models import mlp
    >>> net = Unsplit(*mlp(5, widths=(8, 4), cut=1))
    >>> net(torch.zeros(3, 5)).shape
    torch.Size([3])
    """

    def __init__(self, bottom: nn.Module, top: nn.Module) -> None:
        super().__init__()
        self.bottom = bottom
        self.top = top

    def forward(self, features: Tensor | Iterable[Tensor | None], own: Iterable[Tensor | None] = ()) -> Tensor:
        """The logits for the feature party's inputs (one tensor, or several) and the label party's own ones."""
        inputs = (features,) if isinstance(features, Tensor) else features
        logits: Tensor = self.top(self.bottom(*inputs), *own)
        return logits


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
