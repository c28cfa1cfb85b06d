"""Randomness that a test can repeat."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor


class Replay:
    """A noise source that hands out the given tensors, in order, and remembers what it was asked for."""

    def __init__(self, *draws: Tensor) -> None:
        self.draws = list(draws)
        self.asked: list[tuple[int, ...]] = []

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        self.asked.append(tuple(shape))
        draw = self.draws.pop(0)
        assert draw.numel() == torch.Size(shape).numel(), f"asked for {tuple(shape)}, have {tuple(draw.shape)}"
        return draw.reshape(tuple(shape)).to(dtype=dtype, device=device, copy=True)

    uniform = normal


@pytest.fixture(name="replay")
def _replay():
    return Replay
