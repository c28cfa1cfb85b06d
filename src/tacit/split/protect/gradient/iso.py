"""Isotropic Gaussian noise, the papers' baseline (Li 2022, section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.contracts import NoiseSource
from tacit.split.protect.facts import Facts, Option
from tacit.split.protect.gradient._base import Batch, Drawn, GradientProtection, Strength, per_problem, positive_number

FACTS = Facts(strengths=(Option("t", sweep=(0.0625, 625.0)),), noise=True)  # the papers' r from 0.25 to 25, squared


@dataclass(frozen=True)
class Iso(GradientProtection):
    """See `iso`."""

    t: Strength

    strengths = ("t",)

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """Noise of the same variance in every coordinate of every row."""
        width = batch.rows.shape[-1]
        power = per_problem(self.t, batch.largest) * batch.largest
        noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        noise.mul_((power / width).sqrt()[:, None, None])
        return Drawn(noise, state, power, {})


def iso(t: float) -> GradientProtection:
    """The same isotropic noise for every row: g + N(0, (t/d) max|g|^2 I), with d coordinates.

    The baseline of Li 2022 (section 5.2); t is the s of Li 2021 (section 5.1) and 25 in Li 2020 (section 4).

    Args:
        t: the noise power, as a multiple of the largest squared norm in the batch. The authors' released sweeps list
            its square root.
    """
    return Iso(positive_number("t", t))
