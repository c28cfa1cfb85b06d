"""What all embedding protections share: a name, an event, and checks on the way in."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import fields
from typing import Self

import torch
from torch import Tensor, nn

from tacit.contracts import Event, NoiseSource, Regularizer
from tacit.errors import TensorError


class BaseProtection:
    """A frozen dataclass of options with the two halves of an `EmbeddingProtection`, each of which may stay as it is.

    Its repr shows every option and is the same in every process, so that a resumed run can compare it.
    """

    @property
    def name(self) -> str:
        """The protection's name in configs, reports and tables: the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    @functools.cached_property
    def event(self) -> Event:
        """What the ledger needs to know: the options that were given; of a module, what it shows of itself."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        shown = {key: repr(value) if isinstance(value, nn.Module) else value for key, value in options.items()}
        return Event(self.name, {key: value for key, value in shown.items() if value is not None})

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        """The embedding itself: this protection only adds a loss."""
        return z

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer | None:
        """None: this protection only changes the embedding."""
        return None

    def louder(self, factor: float) -> Self | None:
        """The same with so many times the noise's power; None where it adds none."""
        return None


def largest(what: str, rows: Tensor) -> Tensor:
    """The largest absolute entry, after checks of shape and dtype.

    What is not finite raises on a CPU. On another device nothing is read back: the answer is then not finite, and so
    is whatever is made with it.
    """
    if not isinstance(rows, Tensor) or rows.layout != torch.strided:
        raise TensorError(f"{what}: a dense torch tensor is needed, not {type(rows).__name__}: convert it first")
    if not rows.dtype.is_floating_point:
        raise TensorError(f"{what}: a floating dtype is needed, not {rows.dtype}: convert it first")
    if rows.ndim < 2 or rows.numel() == 0:
        raise TensorError(f"{what} has shape {tuple(rows.shape)}: pass (batch, *cut) with at least one row")
    low, high = torch.aminmax(rows.detach())
    peak = torch.maximum(-low, high)
    if rows.device.type == "cpu" and not bool(torch.isfinite(peak)):
        bad = ~torch.isfinite(rows.detach().flatten(start_dim=1)).all(-1)
        raise TensorError(
            f"{what}: row {int(bad.nonzero()[0])} is not finite: look at the features and at the learning rate"
        )
    return peak


def pair(x: Tensor, z: Tensor) -> Tensor:
    """What is hidden, checked against its embedding: flat rows in the dtype of z, without history.  (batch, inputs)"""
    largest("the embedding", z)
    inputs = x.detach().to(z.dtype)
    largest("the input of the bottom model", inputs)
    if len(inputs) != len(z) or inputs.device != z.device:
        raise TensorError(
            f"inputs {tuple(x.shape)} on {x.device} do not belong to an embedding {tuple(z.shape)} on {z.device}: "
            "pass the rows that the embedding was made of"
        )
    return inputs.flatten(start_dim=1)
