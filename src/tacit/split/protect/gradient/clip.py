"""Clipping: a cap on the norm of each row, as a first link of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tacit.contracts import NoiseSource
from tacit.split.protect.facts import Facts, Option
from tacit.split.protect.gradient._base import Batch, Drawn, GradientProtection, Strength, per_problem, positive_number

FACTS = Facts(strengths=(Option("norm", stronger="less"),), alone=False)


@dataclass(frozen=True)
class Clip(GradientProtection):
    """See `clip`."""

    norm: Strength

    strengths = ("norm",)
    noisy = False

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """No noise, and what is kept of each row."""
        length = batch.squares.sqrt()
        cap = batch.scale[:, None].reciprocal() * per_problem(self.norm, length)
        keep = torch.where(length > cap, cap / length, 1.0)
        removed = (1 - keep) * length
        return Drawn(torch.zeros_like(batch.rows), state, (removed**2).mean(-1), {}, keep)


def clip(norm: float) -> GradientProtection:
    """Scale rows that are longer than `norm` down to it. Not a protection by itself, and not unbiased.

    It bounds what one outlier can do to a protection that follows: `chain(clip(0.1), marvell(leak_auc=0.6))`.
    """
    return Clip(positive_number("norm", norm, above=0.0, below=float("inf")))
