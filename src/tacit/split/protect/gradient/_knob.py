"""One strength in several spellings, and what each says about the best attacker under the Gaussian model.

For two classes that differ by a shift of their means alone, sumKL = K leaves the best attacker an AUC of
Phi(sqrt(K/2)). Theorem 1 (Li 2022) bounds the AUC of any attacker by 1/2 + sqrt(K)/2 - K/8 for K < 4; its detection
error is at least 1/2 - sqrt(K)/4, so that a lower bound L on it stands for K = (2 - 4L)^2 (Li 2020, section 3.2). All
are statements under the isotropic Gaussian model of the gradients, not certificates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from tacit.errors import UsageError
from tacit.split.protect.facts import Option
from tacit.split.protect.gradient._base import GradientProtection, Strength, positive_number

LEAK_AUC = Option("leak_auc", above=0.5, below=1.0, stronger="less", sweep=(0.95, 0.52), spaced="normal")
SCALE = Option("scale", sweep=(0.01, 25.0))
SUM_KL = Option("sum_kl", stronger="less", sweep=(3.6, 0.01))
DETECTION_ERROR = Option("detection_error", below=0.5, sweep=(0.1, 0.45), spaced="linear")

PEAK_DECAY = 0.99  # how the largest row of a run is forgotten, for each batch


def sum_kl_for(knob: str, value: float) -> float:
    """The sumKL that a strength allows: of `scale`, `sum_kl`, `detection_error` or `leak_auc`.

    >>> round(sum_kl_for("leak_auc", 0.6), 3), round(sum_kl_for("detection_error", 0.4), 3), sum_kl_for("scale", 4.0)
    (0.128, 0.16, 0.25)
    """
    if knob == "scale":
        return 1 / positive_number("scale", value)
    if knob == "sum_kl":
        return positive_number("sum_kl", value)
    if knob == "detection_error":
        allowed = (2 - 4 * positive_number("detection_error", value, below=0.5)) ** 2
    else:
        allowed = 2 * NormalDist().inv_cdf(positive_number("leak_auc", value, above=0.5, below=1.0)) ** 2
    if allowed < 1e-12:
        raise UsageError(
            f"{knob} = {value!r} is out of range: so near to 0.5 it takes more noise than numbers can hold"
        )
    return allowed


@dataclass(frozen=True)
class Knobbed(GradientProtection):
    """A protection with one strength, in one of several spellings, and a public step counter in its state."""

    knob: str
    strength: Strength
    sum_kl: Strength  # what the strength allows

    strengths = ("strength", "sum_kl")

    def advanced(self, state: Any) -> Any:
        """The same averages and factors a step later."""
        return replace(state, step=state.step + 1)


def stateless_variance(squares: Tensor, scale: Tensor, peak: Tensor, sum_kl: Strength) -> tuple[Tensor, Tensor]:
    """The variance of isotropic noise that holds sumKL for any two rows, whatever their labels; and the next peak.

    Two rows are at most 2 max|g| apart, so N(0, v I) with v = (2 max|g|)^2 / K leaves a sumKL of at most K between
    them, and an AUC of at most Phi(sqrt(K/2)) between any two groups of rows. This needs no model of the gradients and
    no statistics of the classes: it is what a protection falls back to where its own formula is undefined. The maximum
    is over the recent past, not over the batch alone: noise as large as the one row of a batch would tell its size.

    Args:
        squares: squared norms of the rows, in units of the scale.  (stack, batch)
        scale: of the batch.  (stack,)
        peak: the largest squared norm of the recent past, in the gradient's units; 0 at first.  (stack,), float64
        sum_kl: what may be left.

    Returns:
        The variance in units of the scale, in the dtype of `squares`, and the peak with this batch.
    """
    unit = scale.double() ** 2
    largest = squares.amax(-1).double().clamp(min=1.0) * unit
    peak = torch.where(torch.isfinite(largest), torch.maximum(peak * PEAK_DECAY, largest), peak)  # (stack,)
    most = torch.finfo(squares.dtype).max / 1e8  # a zero batch after large ones: in its units they have no number
    return (4 / sum_kl * peak / unit).clamp(max=most).to(squares.dtype), peak
