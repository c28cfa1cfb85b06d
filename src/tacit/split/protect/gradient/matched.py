"""Matched: one noise for both classes, in the shape of the gradients, and no row that stands out of it.

Whoever knows everything about a row but its label compares two vectors: the gradient that the row has with the one
label, and the one that it has with the other. Noise N(0, N) that is the same for both leaves a sumKL of d^T N^-1 d
between them, d being their difference, and an AUC of Phi(sqrt(sumKL / 2)). So a promise that is to hold for every row,
not for the mean of its class, bounds that length: in coordinates in which the noise is white, a row of the positive
class is cut to a length of q sqrt(k) and one of the negative class to p sqrt(k), with p + q = 1. Whatever a row is,
with the one label and with the other, the two are then at most sqrt(k) apart.

p is the share of positives, because a model that knows nothing yet gives positives gradients that are q/p times as long
as those of negatives: divided by q and p, both are the slope of the row's logit. For slopes with second moments S, the
noise that costs least power at a given mean length has the shape of the root of S; its size is such that most rows are
cut, but not by much.

Share, size and shape are those of the batches before: no label of a batch decides about the batch's own noise. Where
there were none, or zeros alone, zeros are sent and the batch is only learned from. Share, size and shape do come from
labels, as do the weights behind later gradients, and what these tell is not bounded here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.split.protect.facts import Facts, Option
from tacit.split.protect.gradient._base import (
    Batch,
    Drawn,
    GradientProtection,
    Strength,
    fused,
    model_figures,
    one_knob,
    per_problem,
    whole_number,
)
from tacit.split.protect.gradient._knob import LEAK_AUC, SCALE, Knobbed, sum_kl_for
from tacit.split.protect.gradient._moments import DECAY

REFRESH = 16  # steps between two decompositions, once a run is on its way
LENGTH = 2.0  # the mean squared length of a slope before rows are cut, over what they are cut to
FLOOR = 1e-2  # of the mean variance, in every direction: where rows never went there is noise as well
RAREST = 0.02  # share of a class that is counted at least: who is cut to nothing teaches nothing
FULL_WIDTH = 256  # up to this width the second moments are kept whole
RANK = 192  # of the leading coordinates of a wider cut
LEAST = 16  # times the resolution of the dtype: a variance below this, of the largest, is rounding and no direction


FACTS = Facts(strengths=(LEAK_AUC, SCALE), others=(Option("visits", int),), noise=True)


@dataclass(frozen=True)
class Factors:
    """What the hot path needs of a shape, for slopes in units of their running size, in the batch's dtype."""

    root: Tensor  # makes noise that leaves a sumKL of 1 of standard normal rows, symmetric. (stack, rank, rank)
    rest: Tensor  # the same in each other coordinate. (stack,)
    whiten: Tensor  # the inverses. (stack, rank, rank)
    whiten_rest: Tensor  # likewise. (stack,)
    power: Tensor  # the expected squared length of that noise. (stack,)
    basis: Tensor | None  # the coordinates that are meant, as `Spread` has them; None for all. (stack, width, rank)


@dataclass(frozen=True)
class State:
    """What `matched` remembers of a run; `step` is public and an ordinary number."""

    step: int
    size: Tensor | None = None  # running root mean square of a slope, in the gradient's units; 0 for none  (stack,)
    share: Tensor | None = None  # running share of positives  (stack,)
    spread: Spread | None = None
    factors: Factors | None = None


@dataclass(frozen=True)
class Matched(Knobbed):
    """See `matched`; `sum_kl` is what the strength allows over all visits, for `scale` in one."""

    visits: int
    warmup: int

    @property
    def row_kl(self) -> Strength:
        """What one visit leaves between a row's two labels, whichever row it is."""
        return self.sum_kl if self.knob == "scale" else self.sum_kl / self.visits

    def init(self) -> State:
        """Nothing seen yet."""
        return State(0)

    def fresh(self) -> State:
        """A batch on its own counts as the first one after the warm-up, measured by itself: no promise covers that."""
        return State(self.warmup)

    def form(self, state: State) -> str | None:
        """Whether the factors are made anew; None while there are none, and where a wide cut gets other coordinates."""
        if state.factors is None:
            return None
        if not _due(state.step - self.warmup):
            return "between"
        return "anew" if state.factors.basis is None else None

    def draw(self, batch: Batch, state: State, source: NoiseSource) -> Drawn:
        """A product of a draw and one of the rows; every few steps the factors are made anew."""
        slopes, own, unit, known = _measured(batch.rows, batch.labels, batch.scale, state.share, state.size)
        counts = batch.valid & (own > 0)
        spread = Spread.start(slopes) if state.spread is None else state.spread
        after = spread.add(slopes, own, counts)
        factors = state.factors
        if state.step >= self.warmup and (factors is None or _due(state.step - self.warmup)):
            factors = _factors(after if state.spread is None else spread, batch.rows.dtype)
            after = after.renew(slopes)
        if factors is None:
            known = torch.zeros_like(known)
            noise, keep, power = (torch.zeros_like(each) for each in (batch.rows, batch.labels, own))
        else:
            noise = source.normal(batch.rows.shape, dtype=batch.rows.dtype, device=batch.rows.device)
            noise, keep, power = _shaped(noise, slopes, unit, known, factors, self.row_kl)
        share, size = _followed(batch.labels, own, batch.scale, counts, state.share, state.size)
        following = State(state.step + 1, size, share, after, factors)
        told = known.double()
        figures = model_figures(told * per_problem(self.sum_kl, told), known)
        return Drawn(noise, following, power, {**figures, "row_kl": told * per_problem(self.row_kl, told)}, keep)


@fused
def _measured(
    rows: Tensor, labels: Tensor, scale: Tensor, share: Tensor | None, size: Tensor | None
) -> tuple[Tensor, ...]:
    """What a batch looks like, seen with what is known from the batches before, in units of the scale.

    Its slopes; their root mean square length; the unit of its noise, which is that length in the batches before; and
    whether there was one, other than zeros.
    """
    p = _share(labels) if share is None else share
    reach = torch.where(labels > 0.5, 1 - p[:, None], p[:, None]).to(rows.dtype)
    slopes = rows / reach[..., None]
    own = torch.linalg.vector_norm(slopes, dim=(1, 2)) / rows.shape[1] ** 0.5
    alone = own.double().clamp(min=1e-6)
    known = torch.ones_like(alone, dtype=torch.bool) if size is None else size > 0
    before = alone if size is None else torch.where(known, size / scale.double(), alone)
    most = torch.finfo(rows.dtype).max / 1e8  # a zero batch after large ones: in its units they have no number
    return slopes, own, before.clamp(min=1e-30, max=most).to(rows.dtype), known


@fused
def _followed(
    labels: Tensor, own: Tensor, scale: Tensor, counts: Tensor, share: Tensor | None, size: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Running share and size after one more batch; bad input and zeros leave them as they were."""
    now = torch.where(counts, own.double() * scale.double(), 0.0)
    if share is None or size is None:
        return _share(labels), now
    share = torch.where(counts, DECAY * share + (1 - DECAY) * _share(labels), share)
    fresh = counts & (size == 0)
    return share, torch.where(fresh, now, torch.where(counts, DECAY * size + (1 - DECAY) * now, size))


def _share(labels: Tensor) -> Tensor:
    share: Tensor = labels.double().mean(-1).nan_to_num(0.5).clamp(RAREST, 1 - RAREST)
    return share


def _due(steps: int) -> bool:
    """Whether the factors are to be made anew: often at first, when they change fast, then every few steps."""
    return steps % REFRESH == 0 or steps in (1, 2, 4, 8)


def _factors(spread: Spread, dtype: torch.dtype) -> Factors:
    """The shape of the noise: the root of the slopes' second moments, at a size that cuts most rows a little."""
    weight = spread.weight.clamp(min=1e-9)
    width = spread.square.shape[-1] if spread.basis is None else spread.basis.shape[-2]
    others = width - spread.square.shape[-1]
    square, rest = spread.square / weight[:, None, None], spread.rest / weight / max(others, 1)
    level = FLOOR * (_trace(square) + others * rest).clamp(min=1e-9) / width
    roots = _roots_by_products if square.is_cuda else _roots
    total, root, inverse = roots(square, level, width)
    root_rest = (rest + level).sqrt()
    each = (total + others * root_rest) / LENGTH  # the noise's variance is this times the root of the second moments
    size = each.sqrt()
    return Factors(
        (root * size[:, None, None]).to(dtype),
        (size * root_rest.sqrt()).to(dtype),
        (inverse / size[:, None, None]).to(dtype),
        (size * root_rest.sqrt()).reciprocal().to(dtype),
        (each * (total + others * root_rest)).to(dtype),
        spread.basis,
    )


def _roots(square: Tensor, level: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the matrices with so much added to each eigenvalue: the root's trace, the fourth root, and its inverse."""
    values, vectors = torch.linalg.eigh(square)
    roots = (values.clamp(min=0) + level[:, None]).sqrt()[:, None, :]
    turned = (vectors * roots.sqrt()) @ vectors.mT, (vectors * roots.rsqrt()) @ vectors.mT
    return roots.sum((1, 2)), *turned


def _roots_by_products(square: Tensor, level: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same for CUDA, which decomposes one matrix after the other, waits for each, and multiplies all at once.

    Newton and Schulz's iteration, twice; the level bounds how many steps it takes.
    """
    eye = torch.eye(square.shape[-1], dtype=square.dtype, device=square.device)
    moments = square + level[:, None, None] * eye
    size = torch.linalg.vector_norm(moments, dim=(1, 2))  # no eigenvalue is larger, none smaller than FLOOR / 2 / width
    growing = math.log(2 * width / FLOOR) / math.log(1.5**2)  # of it: by so much a small one grows in each step
    half = _halved(moments / size[:, None, None], eye, math.ceil(growing) + 7)[0]
    root, inverse = _halved(half, eye, math.ceil(growing / 2) + 7)
    fourth = size.sqrt().sqrt()[:, None, None]
    return _trace(half) * size.sqrt(), root * fourth, inverse / fourth


def _halved(x: Tensor, eye: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The root of symmetric matrices and its inverse; no eigenvalue is above 1, and the smallest bounds the steps."""
    root, inverse, eye = x, eye.expand_as(x), 1.5 * eye.expand_as(x)
    for _ in range(steps):
        turn = torch.baddbmm(eye, inverse, root, alpha=-0.5)
        root, inverse = root @ turn, turn @ inverse
    return root, inverse


def _trace(square: Tensor) -> Tensor:
    return square.diagonal(dim1=-2, dim2=-1).sum(-1)


@fused
def _shaped(
    noise: Tensor,  # (stack, batch, width), standard normal
    slopes: Tensor,  # (stack, batch, width)
    unit: Tensor,  # (stack,)
    known: Tensor,  # (stack,)
    factors: Factors,
    row_kl: Strength,
) -> tuple[Tensor, Tensor, Tensor]:
    """Noise of the shape, what each row is multiplied by so that it does not stand out, and the noise's power.

    All zero where nothing was known before; the noise by choice and not by product, which would keep its signs.
    """
    basis = factors.basis
    inside = slopes if basis is None else slopes @ basis
    length = torch.linalg.vector_norm((inside / unit[:, None, None]) @ factors.whiten, dim=2).square()
    shaped = (noise if basis is None else noise @ basis) @ factors.root
    if basis is not None:
        outside = torch.linalg.vector_norm(slopes - inside @ basis.mT, dim=2) / unit[:, None]
        length = length + (outside * factors.whiten_rest[:, None]).square()
        across = noise - (noise @ basis) @ basis.mT
        shaped = shaped @ basis.mT + across * factors.rest[:, None, None]
    variance = 1 / (torch.ones_like(factors.power) * per_problem(row_kl, factors.power))
    size = unit * variance.sqrt()
    shaped = torch.where(known[:, None, None], shaped * size[:, None, None], 0.0)
    return shaped, length.clamp(min=1).rsqrt() * known[:, None], factors.power.double() * size.double() ** 2 * known


def matched(
    *, leak_auc: float | None = None, scale: float | None = None, visits: int = 1, warmup: int = 2
) -> GradientProtection:
    """One noise for both classes, and every row cut to where its label is hidden in it.

    One strength, in two spellings: `leak_auc` or `scale`.

    Args:
        leak_auc: the AUC with which the label of any row, whatever row it is, can be told from what the messages about
            that row add in all visits together, by whoever knows everything else. Not in it is what the model and later
            noise tell, which have seen the label too.
        scale: spend at least this times the squared distance between a row's gradients with the one label and with
            the other, in every direction, in each visit.
        visits: how often an example will be visited over the whole training (epochs, usually). Fresh noise at every
            visit averages out, so more visits take more noise.
        warmup: in the first steps of a run zeros are sent, whatever the gradients are, so that running averages exist
            before they are needed.
    """
    knob, strength = one_knob("matched", leak_auc=leak_auc, scale=scale)
    whole_number("visits", visits, least=1)
    whole_number("warmup", warmup, least=1)
    allowed = sum_kl_for(knob, strength)
    return Matched(knob, float(strength), allowed, visits, warmup)


# --- how rows spread, as a running average ---------------------------------------------------------------------------
#
# In all coordinates of a narrow cut, in the leading ones of a wide cut. Rows are measured in units of their own batch,
# so that the average follows at once when gradients shrink or grow, and batches of small gradients in between do not
# water it down.


@dataclass(frozen=True)
class Spread:
    """Decayed sums over the batches of a run, in float64."""

    weight: Tensor  # of the batches behind them; 0 where there was none. (stack,)
    square: Tensor  # sums of the mean outer products of rows, in the leading coordinates. (stack, rank, rank)
    rest: Tensor  # sums of the mean squared lengths outside the leading coordinates. (stack,)
    # the leading coordinates as columns, in the rows' dtype; None where all are kept. (stack, width, rank)
    basis: Tensor | None

    @classmethod
    def start(cls, rows: Tensor) -> Spread:
        """Nothing seen yet; a wide cut takes its first coordinates from these rows."""
        stack, _, width = rows.shape
        rank = width if width <= FULL_WIDTH else RANK
        square = torch.zeros(stack, rank, rank, dtype=torch.float64, device=rows.device)
        basis = None if rank == width else _leading(rows, rank)
        return cls(square.new_zeros(stack), square, square.new_zeros(stack), basis)

    def add(self, rows: Tensor, size: Tensor, counts: Tensor) -> Spread:
        """The sums after one more batch, of this root mean square length, or as they were where it does not count."""
        return Spread(*_added(self.weight, self.square, self.rest, self.basis, rows, size, counts), self.basis)

    def renew(self, rows: Tensor) -> Spread:
        """New leading coordinates for a wide cut: those of what was seen so far and of these rows together."""
        if self.basis is None:
            return self
        values, vectors = torch.linalg.eigh(self.square / self.weight.clamp(min=1e-9)[:, None, None])
        known = (self.basis.double() @ (vectors * values.clamp(min=0).sqrt()[:, None, :])).mT.to(rows.dtype)
        length = torch.linalg.vector_norm(rows, dim=(1, 2), keepdim=True)
        fresh = rows / torch.where(length > 0, length, 1.0) * (1 - DECAY) ** 0.5
        basis = _leading(torch.cat([known, fresh], dim=1), self.basis.shape[-1])
        turn = (basis.mT @ self.basis).double()
        square = turn @ self.square @ turn.mT
        lost = (self.square - square).diagonal(dim1=-2, dim2=-1).sum(-1)
        return Spread(self.weight, square, (self.rest + lost).clamp(min=0), basis)


@fused
def _added(
    weight: Tensor, square: Tensor, rest: Tensor, basis: Tensor | None, rows: Tensor, size: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of `Spread` after one more batch; see `Spread.add`."""
    new = torch.where(counts, 1.0, 0.0).double()
    decay = torch.where(counts, torch.full_like(new, DECAY), 1.0)
    own = rows / torch.where(counts, size, 1.0)[:, None, None]
    inside = own if basis is None else own @ basis  # (stack, batch, rank)
    many = rows.shape[1]
    second = (inside.mT @ inside).double() / many
    if basis is not None:
        outside = ((own * own).sum((1, 2)) - (inside * inside).sum((1, 2))).clamp(min=0)
        rest = decay * rest + new * torch.where(counts, outside, 0.0).double() / many
    second = torch.where(counts[:, None, None], second, 0.0)
    return decay * weight + new, decay[:, None, None] * square + second, rest


def _leading(rows: Tensor, rank: int) -> Tensor:
    """The leading directions of some rows, through the Gram matrix of the rows.  -> (stack, width, rank)

    Where the rows have fewer directions than that, coordinates fill up: what rounding would put there is another for
    every size of a stack.
    """
    wide = torch.nn.functional.pad(rows, (0, 0, 0, max(0, rank - rows.shape[1]))).double()
    values, vectors = torch.linalg.eigh(wide @ wide.mT)
    values, vectors = values[:, -rank:].flip(-1), vectors[..., -rank:].flip(-1)  # the largest first
    found = values > LEAST * torch.finfo(rows.dtype).eps * values[:, :1]
    others = torch.eye(rows.shape[-1], rank, dtype=wide.dtype, device=wide.device)
    directions = torch.where(
        found[:, None, :], wide.mT @ vectors * values.clamp(min=1e-300).rsqrt()[:, None, :], others
    )
    basis: Tensor = torch.linalg.qr(directions)[0].to(rows.dtype)
    return basis
