"""What may cross a wire at all, and what a receiver allows of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tacit.errors import UsageError

__all__ = ["DIMENSIONS", "DTYPES", "KINDS", "AtMost", "Limit", "short_name"]

KINDS = (
    "hello", "refusal", "commitment", "reveal", "points", "matches", "embedding", "gradient", "evaluation", "figures",
    "done", "flips", "acknowledgement", "groups", "sums",
)  # fmt: skip
"""The kinds of messages. The number on the wire is the place here, so new ones are added at the end."""

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64)
"""The dtypes that may cross a wire; the number on the wire is the place here."""

DIMENSIONS = 4
"""The most dimensions that a tensor on the wire may have."""


@dataclass(frozen=True)
class AtMost:
    """A dimension that may be anything up to `count`."""

    count: int


@dataclass(frozen=True)
class Limit:
    """What a message of a kind may be.

    Attributes:
        dtype: its one dtype.
        shape: its dimensions, each an exact number or `AtMost(n)`.
    """

    dtype: torch.dtype
    shape: tuple[int | AtMost, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or len(self.shape) > DIMENSIONS:
            raise UsageError(f"{self}: no such message can be sent: up to 4 dimensions of one of {DTYPES}")
        largest = [side.count if isinstance(side, AtMost) else side for side in self.shape]
        if min(largest, default=0) < 0 or math.prod(max(side, 1) for side in largest) >= 2**59:
            raise UsageError(f"{self}: no memory holds that: set each dimension to what a message really has at most")

    def fits(self, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this dtype and shape may come."""
        return (
            dtype is self.dtype
            and len(shape) == len(self.shape)
            and all(
                side <= most.count if isinstance(most, AtMost) else side == most
                for side, most in zip(shape, self.shape, strict=True)
            )
        )

    def __str__(self) -> str:
        sides = (f"<={side.count}" if isinstance(side, AtMost) else str(side) for side in self.shape)
        return f"{short_name(self.dtype)} ({', '.join(sides)})"


def short_name(dtype: torch.dtype) -> str:
    """A dtype's name as people say it.

    >>> short_name(torch.float32)
    'float32'
    """
    return str(dtype).removeprefix("torch.")
