"""Marvell: the Gaussian noise of least sumKL for its power (Li 2022, theorem 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError
from tacit.split.protect.facts import Facts
from tacit.split.protect.gradient._base import (
    Batch,
    Drawn,
    GradientProtection,
    Strength,
    fused,
    model_figures,
    one_knob,
    whole_number,
)
from tacit.split.protect.gradient._knob import (
    DETECTION_ERROR,
    LEAK_AUC,
    SCALE,
    SUM_KL,
    Knobbed,
    stateless_variance,
    sum_kl_for,
)
from tacit.split.protect.gradient._moments import Moments, Running, batch_moments
from tacit.split.protect.gradient._solver import Solution, solve

__all__ = ["Marvell", "Solution", "marvell", "solve"]

GROWTH = 1.5
"""What the papers multiply a power with that is not enough yet."""

FACTS = Facts(strengths=(SCALE, SUM_KL, DETECTION_ERROR, LEAK_AUC), noise=True)


@dataclass(frozen=True)
class Marvell(Knobbed):
    """See `marvell`; for `scale`, `sum_kl` is what it leaves of a pure shift of the means."""

    warmup: int
    search: Literal["papers"] | None = None  # how the power is looked for, where that is not the exact way

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
        variances = _for_lacking(variances, own.count, moments.packed, batch.squares, batch.scale)
        noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        shaped, power, left, peak = _shaped(
            noise, batch, running.peak, moments.packed, usable, variances, left, self.sum_kl
        )
        following = Running(running.step + 1, averages, peak, running.exponents)
        return Drawn(shaped, following, power, model_figures(left, usable))

    def _solved(self, batch: Batch, moments: Moments, usable: Tensor) -> tuple[Tensor, Tensor]:
        """Variances (stack, 2 along|across, 2 negative|positive) and the sumKL they leave; any where not usable.

        What is not usable is solved all the same, with other numbers: when an answer comes would else tell of it.
        """
        width = batch.rows.shape[-1]
        if usable.device.type == "cpu" and usable.numel() == 1:  # Python floats are faster than tensors of one element
            (u, v), (q, p), gap = moments.spread[0].tolist(), moments.count[0].tolist(), float((moments.gap**2).sum())
            if not bool(usable):
                (u, v), (q, p), gap = (1.0, 2.0), (1.0, 1.0), 1.0
            a = solve(u, v, width, gap, p / (p + q), **self._budget(gap))
            if self.search == "papers":
                a = solve(u, v, width, gap, p / (p + q), power=papers_power(a.power, gap))
            variances = [[[a.along_neg, a.along_pos], [a.across_neg, a.across_pos]]]
            return torch.tensor(variances, dtype=torch.float64), torch.tensor([a.sum_kl], dtype=torch.float64)
        u, v, squared, share = _posed(moments.packed, usable)
        b = solve(u, v, width, squared, share, **self._budget(squared))
        if self.search == "papers":
            b = solve(u, v, width, squared, share, power=papers_power(b.power, squared))
        solved = torch.stack([b.along_neg, b.along_pos, b.across_neg, b.across_pos], dim=-1)
        return solved.reshape(-1, 2, 2), b.sum_kl

    def _budget(self, gap: Any) -> dict[str, Any]:
        return {"power": self.strength * gap} if self.knob == "scale" else {"sum_kl": self.sum_kl}


def papers_power(least: Any, gap: Any) -> Any:
    """The power at which the papers' search stops: the squared distance of the means, times 1.5 until it is enough.

    The least sumKL falls with the power, so the search stops at the first power that is at least the least one.

    >>> papers_power(0.3, 1.0), papers_power(1.2, 1.0), papers_power(3.0, 1.0)
    (1.0, 1.5, 3.375)
    """
    if isinstance(least, Tensor):
        return gap * GROWTH ** ((least / gap).log() / math.log(GROWTH)).ceil().clamp(min=0.0)
    return gap * GROWTH ** max(0, math.ceil(math.log(max(least / gap, 1e-300)) / math.log(GROWTH)))


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
    search: Literal["exact", "papers"] = "exact",
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
        search: how the power is found that `sum_kl`, `detection_error` or `leak_auc` takes. "exact" spends the least
            that does. "papers" begins with the squared distance of the class means and takes one and a half times as
            much until that does, so that it spends up to half as much again (Li 2020, section 3.2; Report 2020a); the
            papers' figures here are drawn with it.

    Theorem 2 and algorithm 1 of Li 2022, whose s is `scale`; Li 2020, Report 2020a and Li 2021 have sumKL and L. The
    four-variable problem is solved exactly, where the papers alternate line searches. In a cut of one or two
    coordinates the class that spreads more can get no noise at all: its rows then go out as they are
    (`untouched_rows`). Real gradients are not isotropic, and the energy outside their leading directions still tells
    the classes apart: see `matched`. Report 2020a says that a patent was applied for on this method.
    """
    knob, strength = one_knob("marvell", scale=scale, sum_kl=sum_kl, detection_error=detection_error, leak_auc=leak_auc)
    allowed = sum_kl_for(knob, strength)
    if search not in ("exact", "papers"):
        raise UsageError(f"search = {search!r}: choose 'exact' or 'papers'")
    if search == "papers" and knob == "scale":
        raise UsageError("scale says what is spent, so there is nothing to search: leave search='papers' out")
    steps = whole_number("warmup", warmup, least=0)
    return Marvell(knob, float(strength), allowed, steps, "papers" if search == "papers" else None)
