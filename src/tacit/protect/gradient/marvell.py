"""Marvell: the Gaussian noise of least sumKL for its power ("Label leakage and protection", ICLR 2022, theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection, one_knob
from tacit.protect.gradient._knob import model_figures, stateless_variance, sum_kl_for
from tacit.protect.gradient._moments import Moments, Running, batch_moments, fill_in
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
        own, _ = batch_moments(batch)
        moments, usable = fill_in(own, running.moments(batch))
        if running.step < self.warmup:
            usable = torch.zeros_like(usable)
        variances, left = self._variances(batch, moments, usable)  # (stack, 2 along|across, 2 negative|positive)
        noise = _shaped_noise(batch, moments.gap, variances.sqrt(), source)

        width, share = batch.rows.shape[-1], batch.share[:, None]
        weights = torch.cat([1 - share, share], dim=1)
        power = ((variances[:, 0] + (width - 1) * variances[:, 1]) * weights).sum(-1)
        untouched = (batch.by_class((variances.sum(1) == 0).to(weights.dtype))).sum(-1)
        figures = {**model_figures(left), "stateless": 1 - usable.to(weights.dtype)}
        return Drawn(noise, running.add(own, batch), power, untouched, figures)

    def _variances(self, batch: Batch, moments: Moments, usable: Tensor) -> tuple[Tensor, Tensor]:
        """The noise's variances in scaled units, and the sumKL that they leave."""
        flat = stateless_variance(batch, self.sum_kl)
        if usable.device.type == "cpu" and usable.numel() == 1:
            if not bool(usable):
                return flat.expand(1, 2, 2), torch.full_like(flat, self.sum_kl)
            a = self._one(batch, moments)
            line = [[[a.along_neg, a.along_pos], [a.across_neg, a.across_pos]]]
            return batch.rows.new_tensor(line), batch.rows.new_tensor([a.sum_kl])
        b = self._stack(batch, moments, usable)
        solved = torch.stack([b.along_neg, b.along_pos, b.across_neg, b.across_pos], dim=-1).reshape(-1, 2, 2)
        return (
            torch.where(usable[:, None, None], solved, flat[:, None, None]).to(batch.rows.dtype),
            torch.where(usable, b.sum_kl, self.sum_kl).to(batch.rows.dtype),
        )

    def _one(self, batch: Batch, moments: Moments) -> Solution[float]:
        """One problem on a CPU: Python floats are faster than tensors of one element."""
        (u, v), gap = moments.spread[0].tolist(), float((moments.gap**2).sum())
        counts = moments.count[0].tolist()
        p = counts[1] / sum(counts)
        return solve(u, v, batch.rows.shape[-1], gap, p, **self._budget(gap))

    def _stack(self, batch: Batch, moments: Moments, usable: Tensor) -> Solution[Tensor]:
        """A stack of problems, or any device: nothing is read back; unusable problems are solved as any number."""
        safe = usable[:, None]
        u, v = torch.where(safe, moments.spread, 1.0).double().unbind(-1)
        gap = torch.where(usable, (moments.gap**2).sum(-1), 1.0).double()
        p = torch.where(usable, moments.count[:, 1] / moments.count.sum(-1), 0.5).double()
        return solve(u, v, batch.rows.shape[-1], gap, p, **self._budget(gap))

    def _budget(self, gap: Any) -> dict[str, Any]:
        return {"power": self.strength * gap} if self.knob == "scale" else {"sum_kl": self.sum_kl}


def _shaped_noise(batch: Batch, gap: Tensor, deviations: Tensor, source: NoiseSource) -> Tensor:
    """One draw, scaled along the gap and across it.  deviations: (stack, 2 along|across, 2 negative|positive)"""
    noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
    length = torch.linalg.vector_norm(gap, dim=-1, keepdim=True)
    e = gap / torch.where(length > 0, length, 1.0)  # (stack, width)
    along, across = batch.by_class(deviations).unbind(1)  # (stack, batch)
    extra = (noise @ e[..., None]) * (along - across)[..., None]  # (stack, batch, 1)
    return noise.mul_(across[..., None]).addcmul_(extra, e[:, None, :])


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
