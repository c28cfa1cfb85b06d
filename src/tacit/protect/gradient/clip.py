"""Clipping: a cap on the norm of each row, as a first link of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.contracts import NoiseSource
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection, positive_number


@dataclass(frozen=True)
class Clip(GradientProtection):
    """See `clip`."""

    norm: float

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """What is missing between each row and its clipped form; no randomness."""
        length = batch.squares.sqrt() * batch.scale[:, None]
        excess = (1 - self.norm / length.clamp(min=self.norm))[..., None]  # 0 for rows that are short enough
        removed = batch.rows * -excess
        untouched = (excess == 0).to(batch.rows.dtype).sum((-2, -1))
        return Drawn(removed, state, (removed * removed).sum(-1).mean(-1), untouched, {})


def clip(norm: float) -> GradientProtection:
    """Scale rows that are longer than `norm` down to it. Not a protection by itself, and not unbiased.

    It bounds what one outlier can do to a protection that follows: `chain(clip(0.1), marvell(leak_auc=0.6))`.
    """
    return Clip(positive_number("norm", norm))
