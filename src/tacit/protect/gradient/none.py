"""No protection, for comparison: the gradient as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tacit.contracts import NoiseSource
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection


@dataclass(frozen=True)
class None_(GradientProtection):  # noqa: N801 (None is taken)
    """See `none`."""

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """Zeros, and the report says that every row goes out as it is."""
        every = torch.full_like(batch.scale, batch.labels.shape[-1])
        return Drawn(torch.zeros_like(batch.rows), state, torch.zeros_like(batch.scale), every, {})


def none() -> GradientProtection:
    """The bare gradient. The ledger counts it as infinite leakage.

    >>> protected = none()(torch.ones(2, 3), torch.tensor([0, 1]), torch.Generator())
    >>> protected.value.tolist(), protected.report["untouched_rows"].item()
    ([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], 2.0)
    """
    return None_()
