"""The papers' convolutional network for skin images (ISIC), cut after any of its blocks.

A block is a 3x3 convolution that keeps the size, a ReLU and a 2x2 max pool that halves it (rounding down): 84 pixels
become 42, 21, 10, 5, 2 and 1, so the cut after the fourth block is (64, 5, 5). After the last block follow a ReLU layer
of 64 units and the logit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from tacit.arguments import count
from tacit.errors import UsageError
from tacit.split.models.layers import Layered, glorot_conv, glorot_linear, one_or_many, relu_layers, shaped


class ConvBottom(Layered):
    """The feature party's half: the blocks `layer1` to the cut, each of `conv`, `relu` and `pool`.

    >>> ConvBottom()(torch.zeros(2, 3, 84, 84)).shape
    torch.Size([2, 64, 5, 5])
    """

    def __init__(
        self,
        channels: int = 3,
        size: int = 84,
        cut: int = 4,
        *,
        width: int = 64,
        generator: torch.Generator | None = None,
    ) -> None:
        _check_halvings(count("size", size), count("cut", cut))
        super().__init__(_blocks([count("channels", channels), *[count("width", width)] * cut], generator))
        self.shape = (channels, size, size)

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, channels, size, size) to the cut (batch, width, size / 2^cut, size / 2^cut)."""
        return self.run(shaped("images", images, self.shape))


class ConvTop(Layered):
    """The label party's half: the blocks after the cut, the ReLU layer `hidden` and `logit`.

    >>> ConvTop()(torch.zeros(2, 64, 5, 5)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        size: int = 84,
        cut: int = 4,
        *,
        blocks: int = 6,
        width: int = 64,
        hidden: int = 64,
        logits: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        count("cut", cut, high=count("blocks", blocks))
        _check_halvings(count("size", size), blocks)
        count("width", width)
        count("hidden", hidden)
        count("logits", logits)
        super().__init__(_blocks([width] * (blocks - cut + 1), generator), first=cut + 1)
        self.shape = (width, size >> cut, size >> cut)
        (self.hidden,) = relu_layers([width * (size >> blocks) ** 2, hidden], generator)
        self.logit = glorot_linear(hidden, logits, generator)

    def forward(self, z: Tensor) -> Tensor:
        """The cut (batch, width, s, s) to logits (batch,) or (batch, classes)."""
        last = self.run(shaped("z", z, self.shape))  # (batch, width, size / 2^blocks, size / 2^blocks)
        return one_or_many(self.logit(self.hidden(last.flatten(1))))


def conv(
    channels: int = 3,
    size: int = 84,
    cut: int = 4,
    logits: int = 1,
    *,
    blocks: int = 6,
    width: int = 64,
    hidden: int = 64,
    generator: torch.Generator | None = None,
) -> tuple[ConvBottom, ConvTop]:
    """Both halves of a convolutional network; the defaults are the papers' network for ISIC.

    With one generator the halves together are the same network for every `cut`. The arguments are those of
    `ConvBottom` and `ConvTop`.

    >>> bottom, top = conv(channels=1, size=28, cut=2, blocks=4, logits=10)
    >>> top(bottom(torch.zeros(5, 1, 28, 28))).shape
    torch.Size([5, 10])
    """
    count("cut", cut, high=count("blocks", blocks))
    _check_halvings(count("size", size), blocks)
    bottom = ConvBottom(channels, size, cut, width=width, generator=generator)
    top = ConvTop(size, cut, blocks=blocks, width=width, hidden=hidden, logits=logits, generator=generator)
    return bottom, top


def _check_halvings(size: int, blocks: int) -> None:
    if size >> blocks == 0:
        raise UsageError(f"size must be at least {1 << blocks} for {blocks} blocks that halve it, not {size}")


def _blocks(channels: Sequence[int], generator: torch.Generator | None) -> Iterator[nn.Sequential]:
    for inputs, outputs in pairwise(channels):
        layer = glorot_conv(inputs, outputs, generator)
        yield nn.Sequential(OrderedDict(conv=layer, relu=nn.ReLU(), pool=nn.MaxPool2d(2)))
