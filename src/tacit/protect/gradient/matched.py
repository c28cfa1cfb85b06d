"""Matched: noise that gives both classes one and the same covariance, whatever shape their gradients have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection, one_knob, positive_number
from tacit.protect.gradient._covariance import Covariances
from tacit.protect.gradient._knob import model_figures, stateless_variance, sum_kl_for
from tacit.protect.gradient._match import Classes, plan
from tacit.protect.gradient._moments import DECAY, RESOLUTION

REFRESH = 8  # steps between two decompositions, once a run is on its way


@dataclass(frozen=True)
class Factors:
    """What the hot path needs: square roots of the noise's covariances, in units of the batch.

    Attributes:
        root: of each class, in the leading coordinates; the identity where the plan is not usable.
            (stack, 2, rank, rank), transposed: a row of normal numbers times this is a row of noise
        rest: the deviation in each other coordinate.  (stack, 2)
        usable: whether both classes were seen well enough to plan with.  (stack,)
        power: the expected squared norm of a row's noise.  (stack,)
        sum_kl: what all visits leave under the model.  (stack,)
    """

    root: Tensor
    rest: Tensor
    usable: Tensor
    power: Tensor
    sum_kl: Tensor


@dataclass(frozen=True)
class State:
    """What `matched` remembers of a run; `step` is public and an ordinary number."""

    step: int
    level: Tensor | None = None  # running root mean square of a row, in the gradient's units  (stack,)
    covariances: Covariances | None = None
    factors: Factors | None = None


@dataclass(frozen=True)
class Matched(GradientProtection):
    """See `matched`."""

    knob: str
    strength: float
    sum_kl: float  # what the strength allows over all visits; for `scale`, what it leaves of a pure shift in one
    visits: int
    smooth: float
    floor: float
    warmup: int

    def init(self) -> State:
        """Nothing seen yet."""
        return State(0)

    def fresh(self) -> State:
        """A batch on its own counts as the first one after the warm-up."""
        return State(self.warmup)

    def draw(self, batch: Batch, state: State, source: NoiseSource) -> Drawn:
        """A draw and two products; every few steps the factors are made anew."""
        level, unit = _unit(batch, state.level)
        covariances = (state.covariances or Covariances.start(batch)).add(batch, unit)
        factors = state.factors
        if state.step >= self.warmup and (factors is None or _due(state.step - self.warmup)):
            covariances = covariances.renew(batch, unit)
            factors = self._factors(covariances)
        noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
        flat = stateless_variance(batch, self.sum_kl)
        power = flat * batch.rows.shape[-1]
        left = torch.full_like(flat, self.sum_kl)
        usable = torch.zeros_like(batch.valid)
        if factors is None:
            noise.mul_(flat.sqrt()[:, None, None])
        else:
            usable = factors.usable
            size = torch.where(usable, unit, flat.sqrt())
            noise = _shape(noise, batch, factors, covariances.basis).mul_(size[:, None, None])
            power = torch.where(usable, factors.power * unit**2, power)
            left = torch.where(usable, factors.sum_kl, left)
        figures = {**model_figures(left), "stateless": 1 - usable.to(left.dtype)}
        following = State(state.step + 1, level, covariances, factors)
        return Drawn(noise, following, power, torch.zeros_like(power), figures)

    def _factors(self, covariances: Covariances) -> Factors:
        matrices, rest = covariances.matrices()
        mean = covariances.mean
        gap, basis = mean[:, 1] - mean[:, 0], covariances.basis
        inside = gap if basis is None else (gap[:, None, :] @ basis.double()).squeeze(1)
        seen = (inside * inside).sum(-1) + matrices.diagonal(dim1=-2, dim2=-1).sum((-2, -1))
        usable = covariances.defined & (seen > RESOLUTION)
        eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        classes = Classes(
            torch.where(usable[:, None, None, None], matrices, eye),
            torch.where(usable[:, None], rest, 1.0),
            gap.shape[-1] - inside.shape[-1],
            torch.where(usable[:, None], inside, 1.0),
            torch.where(usable, covariances.share, 0.5),
        )
        made = plan(
            classes,
            visits=self.visits,
            smooth=self.smooth,
            floor=self.floor,
            scale=self.strength if self.knob == "scale" else None,
            sum_kl=None if self.knob == "scale" else self.sum_kl,
        )
        root, info = torch.linalg.cholesky_ex(made.covariance)
        usable = usable & (info == 0).all(-1)
        root = torch.where(usable[:, None, None, None], root, eye)
        deviation = torch.where(usable[:, None], made.rest.sqrt(), 1.0)
        power = made.power(classes.share, classes.others)
        dtype = torch.float64 if basis is None else basis.dtype
        return Factors(root.mT.to(dtype), deviation.to(dtype), usable, power, made.sum_kl)


def _unit(batch: Batch, level: Tensor | None) -> tuple[Tensor, Tensor]:
    """The running size of a row, and the unit of this batch: its own size, but not far below the running one."""
    scale = batch.scale.double()
    own = batch.squares.double().mean(-1).sqrt() * scale
    own = torch.where(batch.valid, own, 0.0)
    level = own if level is None else torch.where(own > 0, DECAY * level + (1 - DECAY) * own, level)
    unit = torch.maximum(own, level / 2) / scale
    return level, unit.clamp(min=1e-6).to(batch.rows.dtype)


def _due(steps: int) -> bool:
    """Whether the factors are to be made anew: often at first, when they change fast, then every few steps."""
    return steps % REFRESH == 0 or steps in (1, 2, 4)


def _shape(noise: Tensor, batch: Batch, factors: Factors, basis: Tensor | None) -> Tensor:
    """Standard normal rows, each given the covariance of its class."""
    positive = (batch.labels > 0.5)[..., None]
    root = factors.root.to(noise.dtype)
    inside = noise if basis is None else noise @ basis
    shaped = torch.where(positive, inside @ root[:, 1], inside @ root[:, 0])
    if basis is None:
        return shaped
    outside = batch.by_class(factors.rest.to(noise.dtype))[..., None]
    return (noise * outside).baddbmm_(shaped - outside * inside, basis.mT)


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
    for name, number, least in (("visits", visits, 1), ("warmup", warmup, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise UsageError(f"{name} = {number!r} is out of range: it is a whole number, {least} or more")
    smooth = 4.0 * visits if smooth is None else positive_number("smooth", smooth)
    floor = 1.0 * visits if floor is None else positive_number("floor", floor)
    return Matched(knob, float(strength), sum_kl_for(knob, strength), visits, smooth, floor, warmup)
