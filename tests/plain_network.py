"""A plain network of ReLU layers in two halves, for tests that any network will do for."""

import torch

from tacit.split.models.layers import Layered, glorot_linear, one_or_many, relu_layers, shaped


class MlpBottom(Layered):
    """Inputs (batch, inputs) to the cut (batch, widths[-1])."""

    def __init__(self, inputs, widths, *, generator=None):
        super().__init__(relu_layers([inputs, *widths], generator))
        self.inputs = inputs

    def forward(self, x):
        return self.run(shaped("x", x, (self.inputs,)))


class MlpTop(Layered):
    """The layers after the cut and `logit`; the label party's own inputs are appended to the cut."""

    def __init__(self, widths, *, cut, own_inputs=0, logits=1, generator=None):
        sizes = [widths[cut - 1] + own_inputs, *widths[cut:]]
        super().__init__(relu_layers(sizes, generator), first=cut + 1)
        self.logit = glorot_linear(sizes[-1], logits, generator)

    def forward(self, z, own=None):
        return one_or_many(self.logit(self.run(z if own is None else torch.cat([z, own], dim=1))))


def mlp(inputs, *, widths=(64, 64), cut=1, own_inputs=0, logits=1, generator=None):
    """Both halves of a network with these widths, cut after layer `cut`."""
    bottom = MlpBottom(inputs, widths[:cut], generator=generator)
    return bottom, MlpTop(widths, cut=cut, own_inputs=own_inputs, logits=logits, generator=generator)
