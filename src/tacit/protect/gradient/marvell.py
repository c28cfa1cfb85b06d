"""Marvell: the Gaussian noise of least sumKL for its power ("Label leakage and protection", ICLR 2022, theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.protect.facts import Facts
from tacit.protect.gradient._base import (
    Batch,
    Drawn,
    GradientProtection,
    Strength,
    fused,
    model_figures,
    one_knob,
    whole_number,
)
from tacit.protect.gradient._knob import (
    DETECTION_ERROR,
    LEAK_AUC,
    SCALE,
    SUM_KL,
    Knobbed,
    stateless_variance,
    sum_kl_for,
)
from tacit.protect.gradient._moments import Moments, Running, batch_moments
from tacit.protect.gradient._solver import Solution, solve

__all__ = ["Marvell", "Solution", "marvell", "solve"]

FACTS = Facts(strengths=(SCALE, SUM_KL, DETECTION_ERROR, LEAK_AUC), noise=True)


@dataclass(frozen=True)
class Marvell(Knobbed):
    """See `marvell`; for `scale`, `sum_kl` is what it leaves of a pure shift of the means."""

    warmup: int

    def fresh(self) -> int:
        """A batch on its own counts as the first one after the warm-up."""
        return self.warmup

    def form(self, state: Running | int | None) -> str | None:
        """After the warm-up every step is like the one before it."""
        return "usual" if isinstance(state, Running) and state.step >= self.warmup else None

    def draw(self, batch: Batch, state: Running | int | None, source: NoiseSource) -> Drawn:
        """Noise along and across the line of the means, of other variance for each class."""
        running = state if isinstance(state, Running) else Running.start(state or 0, batch)
        own = batch_moments(batch)[0]
        moments, usable, averages = running.fill_in(own, batch)
        if running.step < self.warmup:
            usable = torch.zeros_like(usable)
        variances, left = self._solved(batch, moments, usable)
        if batch.rows.device.type != "cpu" or bool((own.count < 1.5).any()):
            variances = _for_lacking(variances, own.count, moments.packed, batch.squares, batch.scale)
        noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        shaped, power, left, peak = _shaped(
            noise, batch, running.peak, moments.packed, usable, variances, left, self.sum_kl
        )
        following = Running(running.step + 1, averages, peak, running.exponents)
        return Drawn(shaped, following, power, model_figures(left, usable))

    def _solved(self, batch: Batch, moments: Moments, usable: Tensor) -> tuple[Tensor, Tensor]:
        """Variances (stack, 2 along|across, 2 negative|positive) and the sumKL they leave; any where not usable."""
        width = batch.rows.shape[-1]
        if usable.device.type == "cpu" and usable.numel() == 1:  # Python floats are faster than tensors of one element
            if not bool(usable):
                return torch.zeros(1, 2, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
            (u, v), (q, p), gap = moments.spread[0].tolist(), moments.count[0].tolist(), float((moments.gap**2).sum())
            a = solve(u, v, width, gap, p / (p + q), **self._budget(gap))
            variances = [[[a.along_neg, a.along_pos], [a.across_neg, a.across_pos]]]
            return torch.tensor(variances, dtype=torch.float64), torch.tensor([a.sum_kl], dtype=torch.float64)
        u, v, squared, share = _posed(moments.packed, usable)
        b = solve(u, v, width, squared, share, **self._budget(squared))
        solved = torch.stack([b.along_neg, b.along_pos, b.across_neg, b.across_pos], dim=-1)
        return solved.reshape(-1, 2, 2), b.sum_kl

    def _budget(self, gap: Any) -> dict[str, Any]:
        return {"power": self.strength * gap} if self.knob == "scale" else {"sum_kl": self.sum_kl}


@fused
def _posed(packed: Tensor, usable: Tensor) -> tuple[Tensor, ...]:
    """The constants of a stack of problems; those of an ordinary one where they are not usable."""
    moments = Moments(packed)
    u, v = torch.where(usable[:, None], moments.spread, 1.0).unbind(-1)
    gap = torch.where(usable, (moments.gap**2).sum(-1), 1.0)
    return u, v, gap, torch.where(usable, moments.count[:, 1] / moments.count.sum(-1), 0.5)


@fused
def _for_lacking(variances: Tensor, count: Tensor, packed: Tensor, squares: Tensor, scale: Tensor) -> Tensor:
    """Where a batch lacks a class, its rows get the larger noise of the two, and no less than fits their size.

    A class that exact Marvell gives no noise would go out bare, and which class it is would show; and running averages
    say little about a batch that is far larger than all before.
    """
    each = (packed[..., 2:] ** 2).sum(-1) + (packed.shape[-1] - 2) * packed[..., 1]  # (stack, 2), mean squared norms
    own = squares.double().mean(-1) * scale.double() ** 2
    growth = (own / (16 * each.amax(-1)).clamp(min=1e-300)).clamp(min=1.0)[:, None, None]
    return torch.where((count < 1.5).any(-1)[:, None, None], variances.amax(-1, keepdim=True) * growth, variances)


@fused
def _shaped(
    noise: Tensor,  # (stack, batch, width), standard normal
    batch: Batch,
    peak: Tensor,  # (stack,), the largest squared norm of a row in the recent past
    packed: Tensor,  # (stack, 2, 2 + width), the moments that were used
    usable: Tensor,  # (stack,), whether there is a solution
    variances: Tensor,  # (stack, 2 along|across, 2 negative|positive), in the gradient's units
    left: Tensor,  # (stack,), the sumKL that they leave
    sum_kl: Strength,
) -> tuple[Tensor, ...]:
    """One draw, scaled along the gap and across it; its power, the sumKL that is left, the next peak."""
    variances = variances / batch.scale.double()[:, None, None] ** 2
    flat, peak = stateless_variance(batch.squares, batch.scale, peak, sum_kl)
    variances = torch.where(usable[:, None, None], variances, flat[:, None, None]).to(noise.dtype)
    along, across = torch.where(batch.labels[:, None] > 0.5, variances[..., 1:], variances[..., :1]).unbind(1)
    gap = packed[:, 1, 2:] - packed[:, 0, 2:]
    e = (gap / torch.linalg.vector_norm(gap, dim=-1, keepdim=True).clamp(min=1e-300)).to(noise.dtype)  # (stack, width)
    extra = (noise @ e[..., None]) * (along.sqrt() - across.sqrt())[..., None]  # (stack, batch, 1)
    noise = noise.mul_(across.sqrt()[..., None]).addcmul_(extra, e[:, None, :])
    powers = torch.add(along, across, alpha=noise.shape[-1] - 1)  # (stack, batch), expected squared norms of the noise
    return noise, powers.mean(-1), torch.where(usable, left, sum_kl).to(noise.dtype), peak


def marvell(
    *,
    scale: float | None = None,
    sum_kl: float | None = None,
    detection_error: float | None = None,
    leak_auc: float | None = None,
    warmup: int = 2,
) -> GradientProtection:
    """The noise of least sumKL for its power, under the model that both classes are isotropic Gaussians.

    One strength, in four spellings: `scale`, `sum_kl`, `detection_error` or `leak_auc`.

    Args:
        scale: spend a noise power of this times the squared distance of the class means (the papers' s).
        sum_kl: spend what brings the sum of both KL divergences down to this.
        detection_error: spend what leaves any attacker this error (below 0.5) on balanced classes, by Pinsker's bound.
        leak_auc: spend what leaves the best attacker this AUC where the classes differ by a shift of their means.
        warmup: the first steps of a run get isotropic noise whatever their labels are, so that running averages exist
            before they are needed.

    In a cut of one or two coordinates the class that spreads more can get no noise at all: its rows then go out as they
    are (`untouched_rows`). Real gradients are not isotropic, and the energy outside their leading directions still
    tells the classes apart: see `matched`. File 002 of the papers says that a patent was applied for on this method.
    """
    knob, strength = one_knob("marvell", scale=scale, sum_kl=sum_kl, detection_error=detection_error, leak_auc=leak_auc)
    allowed = sum_kl_for(knob, strength)
    return Marvell(knob, float(strength), allowed, whole_number("warmup", warmup, least=0))
