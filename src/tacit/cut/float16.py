"""What crosses the wire as float16, where the contract says so: half the bytes, rounded after all else was done to it.

Embeddings are rounded as they are. Gradients are too small for that: the loss is a mean over a batch. So those of one
message are multiplied by the power of two that brings the largest of them to 2**14 at least and below 2**15, and the
exponent goes behind the numbers. It is read off the protected gradients, in which it can be seen anyway: a receiver
learns nothing by it that they do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.errors import TensorError
from tacit.wire.codec import wrong_numbers

HIGHEST = 65504.0
"""The largest number of a float16."""

_PLACE = 15  # the largest number of a message lies below this power of two
_MOST = 200  # of an exponent; float32's own reach from -149 to 128


def rounded(z: Tensor, what: str) -> Tensor:
    """A protected embedding as it leaves; one that does not fit is refused."""
    largest = float(z.detach().abs().amax()) if z.numel() else 0.0
    if not math.isfinite(largest):
        raise TensorError(f"{what}: the embedding is not finite; nothing was sent: look at inputs and learning rates")
    if largest > HIGHEST:
        raise TensorError(
            f"{what}: the embedding has numbers up to {largest:g}, and float16 ends at {HIGHEST:.0f}; nothing was "
            'sent: end the bottom model with a normalization, or agree on dtype = "float32" in the contract\'s [cut]'
        )
    return z.detach().to(torch.float16)


def scaled(gradient: Tensor) -> Tensor:
    """Protected gradients as they leave.  (*shape) -> (numbers + 1,)"""
    largest = float(gradient.detach().abs().amax())  # not finite, it stays so, and the receiver refuses it
    power = min(_PLACE - math.frexp(largest)[1], _MOST)
    numbers = gradient.detach().double().flatten() * 2.0**power
    return torch.cat([numbers, numbers.new_tensor([power])]).to(torch.float16)


def unscaled(payload: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """The gradients that such a message carries.  (numbers + 1,) -> (*shape)"""
    power = float(payload[-1])
    if not power.is_integer() or abs(power) > _MOST:
        raise TensorError(f"its numbers are multiplied by 2 to the power of {power:g}: no party of ours does that")
    numbers: Tensor = payload[:-1].double() * 2.0**-power
    return numbers.to(dtype).reshape(tuple(shape))


def wrong_gradient(payload: Tensor, largest: float) -> str:
    """What is wrong with gradients that came as float16; nothing where they can be read and none is too large."""
    try:
        return wrong_numbers(unscaled(payload, (-1,)), largest)
    except TensorError as error:
        return str(error)
