"""What all embedding protections share: checks on the way in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.contracts import NoiseSource, Regularizer
from tacit.errors import TensorError
from tacit.protect.facts import Mechanism


class BaseProtection(Mechanism):
    """The two halves of an `EmbeddingProtection`, each of which may stay as it is."""

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        """The embedding itself: this protection only adds a loss."""
        return z

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer | None:
        """None: this protection only changes the embedding."""
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
