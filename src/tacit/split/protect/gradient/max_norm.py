"""Norm alignment: every row is expected to be as long as the longest (Li 2021 and Li 2022, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tacit.contracts import NoiseSource
from tacit.split.protect.facts import Facts
from tacit.split.protect.gradient._base import Batch, Drawn, GradientProtection

FACTS = Facts()  # the largest row is sent as it is


@dataclass(frozen=True)
class MaxNorm(GradientProtection):
    """See `max_norm`."""

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """One normal number for each row, along the row itself; zero rows get a random direction."""
        dtype, device = batch.rows.dtype, batch.rows.device
        direction = source.normal(batch.rows.shape, dtype=dtype, device=device)
        direction = direction / torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
        length = source.normal(batch.squares.shape, dtype=dtype, device=device)
        missing = (batch.largest[:, None] - batch.squares).clamp(min=0)  # what the row's squared norm lacks
        missing = torch.where(batch.squares == batch.squares.amax(-1, keepdim=True), 0.0, missing)
        zero = batch.squares == 0
        missing = torch.where(zero, batch.largest[:, None], missing)
        own = batch.rows / torch.where(zero, 1.0, batch.squares.sqrt())[..., None]
        noise = torch.where(zero[..., None], direction, own) * (missing.sqrt() * length)[..., None]
        return Drawn(noise, state, missing.mean(-1), {})


def max_norm() -> GradientProtection:
    """Noise along each row so that its expected squared norm is the batch's largest; nothing to set.

    The longest row of each batch goes out as it is (`untouched_rows`), and the direction of every row up to its sign.
    A zero row, which has no direction, gets the same norm in a random one. Report 2020a says that a patent
    was applied for on this method.
    """
    return MaxNorm()
