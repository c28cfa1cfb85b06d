"""What all embedding protections share: checks on the way in."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tacit.contracts import NoiseSource, Regularizer
from tacit.errors import TensorError
from tacit.split.protect.facts import Mechanism
from tacit.split.protect.gradient._base import largest


class BaseProtection(Mechanism):
    """The two halves of an `EmbeddingProtection`, each of which may stay as it is."""

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        """The embedding itself: this protection only adds a loss."""
        return z

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer | None:
        """None: this protection only changes the embedding."""
        return None


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
