"""The papers' Wide&Deep network for tables, cut after any layer of its deep part.

The feature party holds the embedding table and the first ReLU layers; the label party holds the other layers, the
logit and, if it has features of its own, the wide part: an embedding of width 1 for each category, joined with the
numbers, through one linear function with a bias. The two logits are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.models.layers import (
    Columns,
    Layered,
    columns,
    count,
    glorot_linear,
    one_or_many,
    relu_layers,
    same_rows,
    shaped,
)


class WideDeepBottom(Layered):
    """The feature party's half: `inputs` (the table and the numbers), then `layer1` to the cut.

    >>> bottom = WideDeepBottom([10, 7], 3)
    >>> bottom.layer_names()
    ['layer1', 'layer2', 'layer3']
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        numeric: int,
        *,
        cut: int = 3,
        width: int = 128,
        embedding: int = 4,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        count("cut", cut)
        count("width", width)
        inputs = Columns(cardinalities, numeric, embedding, sparse=sparse, generator=generator)
        super().__init__(relu_layers([inputs.width, *[width] * cut], generator))
        self.inputs = inputs

    def forward(self, categorical: Tensor | None = None, numeric: Tensor | None = None) -> Tensor:
        """Codes (batch, c) and numbers (batch, m) to the cut (batch, width); leave out what the table has not."""
        return self.run(self.inputs(categorical, numeric))


class WideDeepTop(Layered):
    """The label party's half: the layers after the cut, `logit`, and `wide` where it has features of its own.

    It needs to know nothing about the feature party's columns.

    >>> WideDeepTop(cut=6)(torch.zeros(2, 128)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        *,
        cut: int = 3,
        layers: int = 6,
        width: int = 128,
        own_cardinalities: Sequence[int] = (),
        own_numeric: int = 0,
        logits: int = 1,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        count("cut", cut, high=count("layers", layers))
        count("width", width)
        count("logits", logits)
        super().__init__(relu_layers([width] * (layers - cut + 1), generator), first=cut + 1)
        self.width = width
        self.logit = glorot_linear(width, logits, generator)
        self.own: Columns | None = None
        if len(own_cardinalities) or own_numeric:
            self.own = Columns(
                own_cardinalities, own_numeric, embedding=1, sparse=sparse, prefix="own_", generator=generator
            )
            self.wide = glorot_linear(self.own.width, logits, generator)

    def forward(self, z: Tensor, own_categorical: Tensor | None = None, own_numeric: Tensor | None = None) -> Tensor:
        """The cut (batch, width) and the label party's own columns to logits (batch,) or (batch, classes)."""
        logits = self.logit(self.run(shaped("z", z, (self.width,))))  # (batch, logits)
        if self.own is None:
            columns("own_categorical", own_categorical, 0)
            columns("own_numeric", own_numeric, 0)
        else:
            own = self.own(own_categorical, own_numeric)  # (batch, own columns)
            same_rows(z=z, own=own)
            logits = logits + self.wide(own)
        return one_or_many(logits)


def wide_deep(  # a public entry point: each setting of the network by name
    cardinalities: Sequence[int],
    numeric: int,
    *,
    own_cardinalities: Sequence[int] = (),
    own_numeric: int = 0,
    cut: int = 3,
    layers: int = 6,
    width: int = 128,
    embedding: int = 4,
    logits: int = 1,
    sparse: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[WideDeepBottom, WideDeepTop]:
    """Both halves of a Wide&Deep network; the defaults are the papers' network for Criteo and Avazu.

    The older papers' networks: `cut=4, layers=4` (the top's deep part is only a logit) and `cut=2, layers=4`. With one
    generator the halves together are the same network for every `cut`. The arguments are those of `WideDeepBottom` and
    `WideDeepTop`.

    >>> bottom, top = wide_deep([10, 7], 3, own_numeric=2)
    >>> z = bottom(torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, 3))
    >>> z.shape, top(z, None, torch.zeros(4, 2)).shape
    (torch.Size([4, 128]), torch.Size([4]))
    """
    count("cut", cut, high=count("layers", layers))
    bottom = WideDeepBottom(
        cardinalities, numeric, cut=cut, width=width, embedding=embedding, sparse=sparse, generator=generator
    )
    top = WideDeepTop(
        cut=cut, layers=layers, width=width, own_cardinalities=own_cardinalities, own_numeric=own_numeric,
        logits=logits, sparse=sparse, generator=generator,
    )  # fmt: skip
    return bottom, top
