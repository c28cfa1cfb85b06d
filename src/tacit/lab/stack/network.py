"""Which network a replica is: what to build for a data set's inputs, with the papers' sizes as defaults."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tacit.errors import UsageError
from tacit.lab.data.rows import Pictures, Table
from tacit.split.models import conv, wide_deep


@dataclass(frozen=True)
class Network:
    """The papers' network for a kind of inputs, cut after one of its layers."""

    inputs: Table | Pictures  # a table gets a Wide&Deep, pictures a convolutional network
    cut: int = 3  # layers (blocks) before the cut
    layers: int = 6  # layers (blocks) in all
    width: int = 128  # units of each layer, or channels of each block
    embedding: int = 4  # width of a row of the embedding table; tables only

    def build(self, seed: int) -> tuple[nn.Module, nn.Module]:
        """A bottom and a top with the first weights of this seed; tables have sparse gradients."""
        generator = torch.Generator().manual_seed(seed)
        if isinstance(self.inputs, Pictures):
            return conv(
                self.inputs.channels, self.inputs.size, self.cut, blocks=self.layers, width=self.width,
                generator=generator,
            )  # fmt: skip
        return wide_deep(
            self.inputs.cardinalities, self.inputs.numeric, own_cardinalities=self.inputs.own_cardinalities,
            own_numeric=self.inputs.own_numeric, cut=self.cut, layers=self.layers, width=self.width,
            embedding=self.embedding, sparse=True, generator=generator,
        )  # fmt: skip


def network_for(inputs: Table | Pictures, **sizes: int) -> Network:
    """The papers' network for these inputs; `cut`, `layers`, `width` and `embedding` may be given otherwise.

    Pictures too small to be halved by all of the papers' blocks get as many as halve them, cut two before the last.

    >>> network_for(Pictures(3, 84)).cut, network_for(Table((5,), 2), cut=4, layers=4).layers
    (4, 4)
    >>> network_for(Pictures(1, 28)).layers, network_for(Pictures(1, 28)).cut
    (4, 2)
    """
    usual: dict[str, int] = {}
    if isinstance(inputs, Pictures):
        blocks = min(6, inputs.size.bit_length() - 1)
        usual = {"cut": max(1, blocks - 2), "layers": blocks, "width": 64}
    unknown = set(sizes) - {"cut", "layers", "width", "embedding"}
    if unknown:
        raise UsageError(f"a network has no size {', '.join(sorted(unknown))}: give cut, layers, width or embedding")
    return Network(inputs, **{**usual, **sizes})
