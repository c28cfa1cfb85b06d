"""Matched: noise that gives both classes one and the same covariance, whatever shape their gradients have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.protect.gradient._base import (
    Batch,
    Drawn,
    GradientProtection,
    Strength,
    fused,
    one_knob,
    per_problem,
    positive_number,
    whole_number,
)
from tacit.protect.gradient._covariance import Covariances
from tacit.protect.gradient._knob import model_figures, stateless_variance, sum_kl_for
from tacit.protect.gradient._match import Classes, along_gap, plan
from tacit.protect.gradient._moments import DECAY, RESOLUTION, Moments

REFRESH = 16  # steps between two decompositions, once a run is on its way
FEW_ROWS = 16  # a batch of so many rows is measured half in its own size and half in the running one
FEW = 4  # a stack up to this size is decomposed on the CPU, which is faster for a few small matrices


@dataclass(frozen=True)
class Factors:
    """What the hot path needs of a plan, in units of the batch and in its dtype.

    Attributes:
        root: square roots of the noise's covariance, for rows of normal numbers to be multiplied with; the identity
            where the plan is not usable.  (stack, 2, rank, rank)
        rest: the deviation in each other coordinate.  (stack, 2)
        whiten: inverse square roots of what an attacker sees.  (stack, 2, rank, rank)
        whiten_rest: the same in each other coordinate.  (stack, 2)
        leak: the sumKL that the covariances alone leave over all visits.  (stack,)
        power: the expected squared norm of a row's noise, for each class, but for the part along the gap.  (stack, 2)
        usable: whether both classes were seen well enough to plan with.  (stack,)
    """

    root: Tensor
    rest: Tensor
    whiten: Tensor
    whiten_rest: Tensor
    leak: Tensor
    power: Tensor
    usable: Tensor


@dataclass(frozen=True)
class State:
    """What `matched` remembers of a run; `step` is public and an ordinary number."""

    step: int
    level: Tensor | None = None  # running root mean square of a row, in the gradient's units  (stack,)
    peak: Tensor | None = None  # the largest squared norm of a row in the recent past  (stack,)
    covariances: Covariances | None = None
    factors: Factors | None = None


@dataclass(frozen=True)
class Matched(GradientProtection):
    """See `matched`."""

    knob: str
    strength: Strength
    sum_kl: Strength  # what the strength allows over all visits; for `scale`, what it leaves of a pure shift in one
    visits: int
    smooth: float
    floor: float
    warmup: int

    strengths = ("strength", "sum_kl")

    def init(self) -> State:
        """Nothing seen yet."""
        return State(0)

    def fresh(self) -> State:
        """A batch on its own counts as the first one after the warm-up."""
        return State(self.warmup)

    def steps_to_change(self, state: State) -> int | None:
        """The steps to the next one at which the factors are made anew; 0 while there are none."""
        if state.factors is None:
            return 0
        return next(steps for steps in range(REFRESH) if _due(state.step - self.warmup + steps))

    def advanced(self, state: State, steps: int) -> State:
        """The same averages and factors so many steps later."""
        return replace(state, step=state.step + steps)

    def draw(self, batch: Batch, state: State, source: NoiseSource) -> Drawn:
        """Two products of a draw, and one number more for each row; every few steps the factors are made anew."""
        level, unit, size, flat, peak = _sizes(
            batch.scale, batch.squares, batch.valid, state.level, state.peak, self.sum_kl / self.visits
        )
        covariances, seen = (state.covariances or Covariances.start(batch)).add(batch, size)
        factors = state.factors
        if state.step >= self.warmup and (factors is None or _due(state.step - self.warmup)):
            covariances = covariances.renew(batch, size)
            factors = self._factors(covariances, batch.rows.dtype)
        noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        length = source.normal(batch.labels.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        usable = torch.zeros_like(batch.valid) if factors is None else factors.usable
        if factors is None:
            noise.mul_(flat.sqrt()[:, None, None])
            power, left = flat * noise.shape[-1], torch.ones_like(flat) * per_problem(self.sum_kl, flat)
        else:
            gap, extra, deviation, power, left = _along(
                seen.packed, covariances.total, covariances.count, covariances.basis, unit, batch.share, flat,
                factors.whiten, factors.whiten_rest, factors.leak, factors.power, usable,
                self.strength if self.knob == "scale" else None, self.visits, self.sum_kl,
            )  # fmt: skip
            noise = _shape(
                noise, length, batch.labels, factors.root, factors.rest, gap, extra, deviation, covariances.basis
            )
        following = State(state.step + 1, level, peak, covariances, factors)
        return Drawn(noise, following, power, model_figures(left, usable))

    def _factors(self, covariances: Covariances, dtype: torch.dtype) -> Factors:
        device = covariances.count.device
        if len(covariances.count) <= FEW:
            covariances = covariances.to(torch.device("cpu"))
        matrices, rest = covariances.matrices()
        mean = covariances.mean
        gap, basis = mean[:, 1] - mean[:, 0], covariances.basis
        inside = gap if basis is None else (gap[:, None, :] @ basis.double()).squeeze(1)
        size = (inside * inside).sum(-1) + matrices.diagonal(dim1=-2, dim2=-1).sum((-2, -1))
        usable = covariances.defined & (size > RESOLUTION)
        eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        classes = Classes(
            torch.where(usable[:, None, None, None], matrices, eye),
            torch.where(usable[:, None], rest, 1.0),
            gap.shape[-1] - inside.shape[-1],
            torch.where(usable[:, None], inside, 1.0),
            torch.where(usable, covariances.share, 0.5),
        )
        wanted = None if self.knob == "scale" else self.sum_kl
        wanted = wanted.to(matrices.device) if isinstance(wanted, Tensor) else wanted
        made = plan(classes, visits=self.visits, smooth=self.smooth, floor=self.floor, sum_kl=wanted)
        root, info = torch.linalg.cholesky_ex(made.covariance)
        seen, info_seen = torch.linalg.cholesky_ex(made.seen)
        usable = usable & ((info == 0) & (info_seen == 0)).all(-1)
        root = torch.where(usable[:, None, None, None], root, eye)
        whiten = torch.linalg.solve_triangular(seen, eye.expand_as(seen), upper=False)
        return Factors(
            root.mT.to(device, dtype),
            torch.where(usable[:, None], made.rest.sqrt(), 1.0).to(device, dtype),
            whiten.to(device, dtype),
            made.seen_rest.rsqrt().to(device, dtype),
            made.leak.to(device, dtype),
            made.power(classes.others).to(device, dtype),
            usable.to(device),
        )


@fused
def _along(
    packed: Tensor,  # the batch's own moments
    total: Tensor,  # of `Covariances`, as the next two
    count: Tensor,
    basis: Tensor | None,
    unit: Tensor,  # (stack,)
    share: Tensor,  # (stack,), of positives in the batch
    flat: Tensor,  # (stack,), the variance where there is no plan
    whiten: Tensor,  # of `Factors`, as the next four
    whiten_rest: Tensor,
    leak: Tensor,
    power: Tensor,
    usable: Tensor,
    scale: Strength | None,
    visits: int,
    sum_kl: Strength,
) -> tuple[Tensor, ...]:
    """How this batch's noise goes along its gap, how large it is, and what it costs and leaves.

    Returns:
        The gap in units of the batch, noise along it in multiples of its square, the unit that all noise is measured
        in, its power, and the sumKL that is left.

    It is this batch's gap and not a running one, because that is what separates the classes in this very batch; the
    running one serves where the batch lacks a class.
    """
    seen = Moments(packed)
    means = total / count.clamp(min=1)[..., None]
    before = (means[:, 1] - means[:, 0]).to(unit.dtype)
    gap = torch.where((seen.count > 0.5).all(-1, keepdim=True), seen.gap / unit[:, None], before)
    inside = gap[:, None, :] if basis is None else gap[:, None, :] @ basis
    white = (whiten @ inside.mT[:, None]).squeeze(-1)  # (stack, 2, rank)
    pull = (white * white).sum(-1)
    if basis is not None:
        outside = (gap * gap).sum(-1, keepdim=True) - (inside * inside).sum(-1)
        pull = pull + outside.clamp(min=0) * whiten_rest**2
    if scale is None:
        scale = along_gap(pull, leak, visits=visits, sum_kl=sum_kl)
    extra = torch.where(usable, per_problem(scale, leak), torch.zeros_like(leak))
    each = power[:, 0] * (1 - share) + power[:, 1] * share + extra * (gap * gap).sum(-1)
    shift = (pull / (1 + extra[:, None] * pull / visits)).mean(-1)
    size = torch.where(usable, unit, flat.sqrt())
    spent = torch.where(usable, each * unit.double() ** 2, flat * gap.shape[-1])
    return gap, extra, size, spent, torch.where(usable, leak + shift, per_problem(sum_kl, leak))


@fused
def _sizes(
    scale: Tensor, squares: Tensor, valid: Tensor, level: Tensor | None, peak: Tensor | None, sum_kl: Strength
) -> tuple[Tensor, ...]:
    """How large rows are.

    Returns:
        The running size of a row; the unit of this batch's noise; the size of its rows, 0 where all are zero; the
        variance of noise that needs no plan; the peak that it is made with.

    The size of a batch of many rows is its own; that of a batch of few rows is nearer to the running one, because one
    row, measured in its own size, would look like any other, and noise in its own size would tell it. Noise is not far
    below the running size either, whatever the batch.
    """
    wide = scale.double()
    own = squares.double().mean(-1).sqrt() * wide
    own = torch.where(valid, own, 0.0)
    level = own if level is None else torch.where(own > 0, DECAY * level + (1 - DECAY) * own, level)
    weight = squares.shape[-1] ** 2 / (squares.shape[-1] ** 2 + FEW_ROWS**2)
    size = torch.where(own > 0, own**weight * level ** (1 - weight), 0.0)
    unit = torch.maximum(torch.maximum(size, own / 4), level / 2) / wide
    flat, peak = stateless_variance(squares, scale, torch.zeros_like(wide) if peak is None else peak, sum_kl)
    return level, unit.clamp(min=1e-6).to(scale.dtype), (size / wide).to(scale.dtype), flat, peak


def _due(steps: int) -> bool:
    """Whether the factors are to be made anew: often at first, when they change fast, then every few steps."""
    return steps % REFRESH == 0 or steps in (1, 2, 4, 8)


@fused
def _shape(
    noise: Tensor,  # (stack, batch, width), standard normal
    length: Tensor,  # (stack, batch), likewise
    labels: Tensor,  # (stack, batch)
    root: Tensor,  # of `Factors`
    rest: Tensor,
    gap: Tensor,  # (stack, width)
    extra: Tensor,  # (stack,)
    size: Tensor,  # (stack,)
    basis: Tensor | None,
) -> Tensor:
    """Standard normal rows, each given the covariance of its class and noise along the gap."""
    positive = (labels > 0.5)[..., None]
    inside = noise if basis is None else noise @ basis
    shaped = torch.where(positive, inside @ root[:, 1], inside @ root[:, 0])
    if basis is not None:
        outside = torch.where(positive, rest[:, None, 1:], rest[:, None, :1])  # (stack, batch, 1)
        shaped = (noise * outside).baddbmm_(shaped - outside * inside, basis.mT)
    shaped.addcmul_((length * extra.sqrt()[:, None])[..., None], gap[:, None, :])
    return shaped.mul_(size[:, None, None])


def matched(
    *,
    leak_auc: float | None = None,
    scale: float | None = None,
    visits: int = 1,
    smooth: float | None = None,
    floor: float | None = None,
    warmup: int = 2,
) -> GradientProtection:
    """Noise that lifts both classes to one covariance, so that neither size nor shape nor energy tells them apart.

    One strength, in two spellings:

    Args:
        leak_auc: spend what leaves the best attacker this AUC under the model that both classes are Gaussian, each with
            a covariance of its own, over all visits of one example together.
        scale: spend this times the squared distance of the class means along the line of the means.
        visits: how often an example will be visited over the whole training (epochs, usually). Fresh noise at every
            visit averages out, so more visits take more noise.
        smooth: how much of the pooled covariance both classes get on top, for what the Gaussian model does not see; 4
            for each visit if not given.
        floor: how much noise both classes get in every direction, as a multiple of D/d; 1 for each visit if not given.
        warmup: the first steps of a run get isotropic noise whatever their labels are, so that running averages exist
            before they are needed.
    """
    knob, strength = one_knob("matched", leak_auc=leak_auc, scale=scale)
    whole_number("visits", visits, least=1)
    whole_number("warmup", warmup, least=0)
    smooth = 4.0 * visits if smooth is None else positive_number("smooth", smooth)
    floor = 1.0 * visits if floor is None else positive_number("floor", floor)
    allowed = sum_kl_for(knob, strength)
    return Matched(knob, float(strength), allowed, visits, smooth, floor, warmup)
