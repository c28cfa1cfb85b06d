"""Marvell: the Gaussian noise of least sumKL for its power ("Label leakage and protection", ICLR 2022, theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection, fused, one_knob
from tacit.protect.gradient._knob import model_figures, stateless_variance, sum_kl_for
from tacit.protect.gradient._moments import Moments, Running, batch_moments
from tacit.protect.gradient._solver import Solution, solve

__all__ = ["Marvell", "Solution", "marvell", "solve"]


@dataclass(frozen=True)
class Marvell(GradientProtection):
    """See `marvell`."""

    knob: str
    strength: float
    sum_kl: float  # what the strength allows; for `scale`, what it leaves of a pure shift of the means
    warmup: int

    def fresh(self) -> int:
        """A batch on its own counts as the first one after the warm-up."""
        return self.warmup

    def draw(self, batch: Batch, state: Running | int | None, source: NoiseSource) -> Drawn:
        """Noise along and across the line of the means, of other variance for each class."""
        running = state if isinstance(state, Running) else Running.start(state or 0, batch)
        own = batch_moments(batch)[0]
        moments, usable = running.fill_in(own, batch)
        if running.step < self.warmup:
            usable = torch.zeros_like(usable)
        solved = self._solved(batch, moments, usable)
        noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        flat = stateless_variance(batch, self.sum_kl)
        shaped, power, untouched, left = _shaped(
            noise, batch.labels, moments.gap, own.defined.all(-1), usable, solved, flat, self.sum_kl
        )
        figures = {**model_figures(left), "stateless": 1 - usable.to(left.dtype)}
        return Drawn(shaped, running.add(own, batch), power, untouched, figures)

    def _solved(self, batch: Batch, moments: Moments, usable: Tensor) -> Tensor:
        """The first five figures of a `Solution`; any number where a problem is not usable.  (stack, 5)"""
        width = batch.rows.shape[-1]
        if usable.device.type == "cpu" and usable.numel() == 1:  # Python floats are faster than tensors of one element
            if not bool(usable):
                return torch.zeros(1, 5, dtype=torch.float64)
            (u, v), (q, p), gap = moments.spread[0].tolist(), moments.count[0].tolist(), float((moments.gap**2).sum())
            one = solve(u, v, width, gap, p / (p + q), **self._budget(gap))
            return torch.tensor([one[:5]], dtype=torch.float64)
        u, v, squared, share = _posed(moments.packed, usable)
        return torch.stack(solve(u, v, width, squared, share, **self._budget(squared))[:5], dim=-1)

    def _budget(self, gap: Any) -> dict[str, Any]:
        return {"power": self.strength * gap} if self.knob == "scale" else {"sum_kl": self.sum_kl}


@fused
def _posed(packed: Tensor, usable: Tensor) -> tuple[Tensor, ...]:
    """The constants of a stack of problems; those of an ordinary one where they are not usable."""
    moments = Moments(packed)
    u, v = torch.where(usable[:, None], moments.spread, 1.0).double().unbind(-1)
    gap = torch.where(usable, (moments.gap**2).sum(-1), 1.0).double()
    return u, v, gap, torch.where(usable, moments.count[:, 1] / moments.count.sum(-1), 0.5).double()


@fused
def _shaped(
    noise: Tensor,  # (stack, batch, width), standard normal
    labels: Tensor,  # (stack, batch)
    gap: Tensor,  # (stack, width)
    complete: Tensor,  # (stack,), whether the batch itself has enough rows of both classes
    usable: Tensor,  # (stack,), whether there is a solution
    solved: Tensor,  # (stack, 5), as `Solution` has them
    flat: Tensor,  # (stack,), the variance where there is none
    sum_kl: float,
) -> tuple[Tensor, ...]:
    """One draw, scaled along the gap and across it; its power, the rows it leaves untouched, the sumKL that is left."""
    along, across = solved[:, [0, 2]], solved[:, [1, 3]]  # (stack, 2), negative first
    variances = torch.stack([along, across], dim=1).to(noise.dtype)
    # Where a batch lacks a class, its rows get the larger noise of the two: a class that exact Marvell gives none
    # would go out bare, and which one it is would show.
    variances = torch.where(complete[:, None, None], variances, variances.amax(-1, keepdim=True))
    variances = torch.where(usable[:, None, None], variances, flat[:, None, None])
    deviations = variances.sqrt()[..., None]  # (stack, 2 along|across, 2 negative|positive, 1)
    by_row = torch.where(labels[:, None] > 0.5, deviations[:, :, 1], deviations[:, :, 0])  # (stack, 2, batch)
    length = torch.linalg.vector_norm(gap, dim=-1, keepdim=True)
    e = gap / torch.where(length > 0, length, 1.0)  # (stack, width)
    extra = (noise @ e[..., None]) * (by_row[:, 0] - by_row[:, 1])[..., None]  # (stack, batch, 1)

    width = noise.shape[-1]
    squares = by_row[:, 0] ** 2 + (width - 1) * by_row[:, 1] ** 2  # (stack, batch)
    left = torch.where(usable, solved[:, 4].to(noise.dtype), sum_kl)
    noise = noise.mul_(by_row[:, 1, :, None]).addcmul_(extra, e[:, None, :])
    return noise, squares.mean(-1), (squares == 0).to(noise.dtype).sum(-1), left


def marvell(
    *,
    scale: float | None = None,
    sum_kl: float | None = None,
    detection_error: float | None = None,
    leak_auc: float | None = None,
    warmup: int = 2,
) -> GradientProtection:
    """The noise of least sumKL for its power, under the model that both classes are isotropic Gaussians.

    One strength, in four spellings:

    Args:
        scale: spend a noise power of this times the squared distance of the class means (the papers' s).
        sum_kl: spend what brings the sum of both KL divergences down to this.
        detection_error: spend what leaves any attacker this error (below 0.5) on balanced classes, by Pinsker's bound.
        leak_auc: spend what leaves the best attacker this AUC where the classes differ by a shift of their means.
        warmup: the first steps of a run get isotropic noise whatever their labels are, so that running averages exist
            before they are needed.

    Real gradients are not isotropic, and the energy outside their leading directions still tells the classes apart:
    see `matched`. File 002 of the papers says that a patent was applied for on this method.
    """
    knob, strength = one_knob("marvell", scale=scale, sum_kl=sum_kl, detection_error=detection_error, leak_auc=leak_auc)
    allowed = sum_kl_for(knob, strength)
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise UsageError(f"warmup = {warmup!r} is out of range: it is a number of steps, 0 or more")
    return Marvell(knob, float(strength), allowed, warmup)
