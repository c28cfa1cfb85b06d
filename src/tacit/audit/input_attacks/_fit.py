"""Networks that guess inputs: one that begins as a linear map, and how they are trained and asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from tacit.audit.fitting import drawn, trained
from tacit.audit.input_attacks import _common
from tacit.audit.input_attacks._ridge import Line

__all__ = ["Straight", "answer", "drawn", "trained"]


class Straight(nn.Module):
    """Hidden layers beside a linear way from input to output; at first the hidden layers do not reach the output.

    Args:
        inputs: the width of the input.
        hidden: the units of each hidden layer.
        outputs: the width of the output.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([inputs, *hidden]):
            layers += [nn.Linear(before, after, device="meta"), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.out = nn.Linear([inputs, *hidden][-1], outputs, device="meta")
        self.straight = nn.Linear(inputs, outputs, bias=False, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        """(rows, inputs) -> (rows, outputs)"""
        out: Tensor = self.out(self.hidden(x)) + self.straight(x)
        return out

    def start(self, line: Line | None = None) -> None:
        """Begin as a linear map, or as zero."""
        with torch.no_grad():
            self.out.weight.zero_()
            self.straight.weight.zero_()
            if line is not None:
                self.straight.weight.copy_(line.weight.mT)
                self.out.bias.copy_(line.bias)


def answer(network: nn.Module, z: Tensor, each: int) -> Tensor:
    """What the network says about every row, in slices whose intermediate takes about `each` numbers a row."""
    with torch.no_grad():
        return torch.cat([network(z[part]) for part in _common.slices(z.shape[0], each)])
