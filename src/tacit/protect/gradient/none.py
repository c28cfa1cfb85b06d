"""No protection, for comparison: the gradient as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import Noise, NoiseSource, Protected
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection


@dataclass(frozen=True)
class None_(GradientProtection):  # noqa: N801 (None is taken)
    """See `none`."""

    def update(
        self, grad: Tensor, labels: Tensor, state: Any, noise: Noise, embedding: Tensor | None = None
    ) -> Protected:
        """As for every protection, but labels of any kind will do: they are not looked at."""
        return super().update(grad, torch.zeros_like(labels), state, noise, embedding)

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """Zeros, and the report says that every row goes out as it is."""
        every = torch.full_like(batch.scale, batch.labels.shape[-1])
        nothing = torch.full_like(batch.rows, -0.0)  # adding 0.0 would turn -0.0 into 0.0
        return Drawn(nothing, state, torch.zeros_like(batch.scale), every, {})


def none() -> GradientProtection:
    """The bare gradient. The ledger counts it as infinite leakage.

    >>> protected = none()(torch.ones(2, 3), torch.tensor([0, 1]), torch.Generator())
    >>> protected.value.tolist(), protected.report["untouched_rows"].item()
    ([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], 2.0)
    """
    return None_()
