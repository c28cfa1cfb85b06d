"""A plain network of ReLU layers, cut after any of them; the label party's own inputs join at the cut."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.errors import UsageError
from tacit.models.layers import (
    Layered,
    columns,
    count,
    counts,
    glorot_linear,
    one_or_many,
    relu_layers,
    same_rows,
    shaped,
)


class MlpBottom(Layered):
    """The feature party's half: `layer1` to the cut.

    >>> MlpBottom(5, (8, 4))(torch.zeros(2, 5)).shape
    torch.Size([2, 4])
    """

    def __init__(self, inputs: int, widths: Sequence[int], *, generator: torch.Generator | None = None) -> None:
        super().__init__(relu_layers([count("inputs", inputs), *_some(widths)], generator))
        self.inputs = inputs

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (batch, inputs) to the cut (batch, widths[-1])."""
        return self.run(shaped("x", x, (self.inputs,)))


class MlpTop(Layered):
    """The label party's half: the layers after the cut and `logit`; its own inputs are appended to the cut.

    >>> MlpTop((8, 4), cut=1, own_inputs=3)(torch.zeros(2, 8), torch.zeros(2, 3)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        cut: int,
        own_inputs: int = 0,
        logits: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        widths = _some(widths)
        count("cut", cut, high=len(widths))
        count("logits", logits)
        sizes = [widths[cut - 1] + count("own_inputs", own_inputs, low=0), *widths[cut:]]
        super().__init__(relu_layers(sizes, generator), first=cut + 1)
        self.width = widths[cut - 1]
        self.own_inputs = own_inputs
        self.logit = glorot_linear(sizes[-1], logits, generator)

    def forward(self, z: Tensor, own: Tensor | None = None) -> Tensor:
        """The cut (batch, width) and the label party's own inputs to logits (batch,) or (batch, classes)."""
        shaped("z", z, (self.width,))
        mine = columns("own", own, self.own_inputs)
        if mine is not None:
            same_rows(z=z, own=mine)
            z = torch.cat([z, mine], dim=1)  # (batch, width + own_inputs)
        return one_or_many(self.logit(self.run(z)))


def mlp(
    inputs: int,
    *,
    widths: Sequence[int] = (64, 64),
    cut: int = 1,
    own_inputs: int = 0,
    logits: int = 1,
    generator: torch.Generator | None = None,
) -> tuple[MlpBottom, MlpTop]:
    """Both halves of a network of ReLU layers with these widths, cut after layer `cut`, and a logit.

    The arguments are those of `MlpBottom` and `MlpTop`.

    >>> bottom, top = mlp(5, widths=(8, 8, 4), cut=2)
    >>> bottom.layer_names(), top.layer_names()
    (['layer1', 'layer2'], ['layer3'])
    """
    widths = _some(widths)
    count("cut", cut, high=len(widths))
    bottom = MlpBottom(inputs, widths[:cut], generator=generator)
    top = MlpTop(widths, cut=cut, own_inputs=own_inputs, logits=logits, generator=generator)
    return bottom, top


def _some(widths: Sequence[int]) -> tuple[int, ...]:
    if not widths:
        raise UsageError("widths must name at least one layer")
    return counts("widths", widths)
