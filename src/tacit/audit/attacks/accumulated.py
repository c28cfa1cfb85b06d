"""The accumulated attack: an example comes again at every epoch, and what is said about it adds up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tacit.audit.attacks import _common
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

__all__ = ["accumulated"]

How = Literal["mean", "sum", "spread"]


def accumulated(attack: Attack | str = "residual", how: How = "mean", scale: bool = True) -> Attack:
    """Scores an example by another attack on all of its visits together.

    - "mean" averages the gradients of an example over its visits, which averages fresh noise away, and shows the other
      attack one large batch of averages.
    - "sum" lets the other attack look at every visit and adds its scores, each standardized within its batch.
    - "spread" shows the other attack each visit minus the example's mean: the example's own gradient drops out, what
      stays is bare noise, which may differ between the classes. Scores are added as in "sum"; examples that came only
      once are not judged.

    Visits are scaled to one root mean square for each batch before they are averaged, because noise shrinks together
    with the gradients and the first epoch would drown the others; `scale=False` leaves them as they are.

    Knows: the row ids; whatever the other attack knows, of known.positive_gradient (for "mean") its mean.
    Costs: one pass over the gradients, and the other attack.
    """
    if how not in ("mean", "sum", "spread"):
        raise UsageError(f"how is 'mean', 'sum' or 'spread', not {how!r}")
    return _Accumulated(_common.built(attack), how, scale)


@dataclass(frozen=True)
class _Accumulated:
    attack: Attack
    how: How
    scale: bool

    @property
    def name(self) -> str:
        options = ([] if self.how == "mean" else [self.how]) + ([] if self.scale else ["scale=False"])
        return f"accumulated({', '.join([self.attack.name, *options])})"

    def __call__(self, view: View, known: Known, noise: Noise) -> Guess:
        visits = _Visits.of(view)
        if self.how == "mean":
            return self._on_means(view, visits, known, noise)
        counted = torch.ones_like(view.rows, dtype=torch.bool)
        if self.how == "spread":
            counted = (visits.count > 1)[visits.slot]
            if not bool(counted.any()):
                raise UsageError(f"{self.name!r} needs examples that came twice, but every row id came once")
            view = _with_gradient(view, visits.spread(self._scaled(view)))
        guess = self.attack(view, known, noise)
        counted = counted if guess.counted is None else counted & guess.counted
        score, seen = visits.summed(guess.score, counted)
        baseline = None if guess.baseline is None else visits.summed(guess.baseline, counted)[0]
        return Guess(visits.ids[None], score, counted=seen, baseline=baseline)

    def _on_means(self, view: View, visits: _Visits, known: Known, noise: Noise) -> Guess:
        """The other attack on one batch that holds each example once, with its mean gradient."""
        gradient = visits.mean(self._scaled(view))[None]
        embedding = None
        if any(message.kind == "embedding" for message in view.messages):
            embedding = visits.mean(_common.embedding(view, self.name))[None]
        one = View.of(gradient, rows=visits.ids[None], embedding=embedding, role=view.role)
        if known.positive_gradient is not None:
            clean = known.positive_gradient
            if self.scale and clean.shape[0] == view.rows.shape[0]:
                clean = clean / _common.batch_rms(_common.gradient(view))[:, 0]
            known = replace(known, positive_gradient=clean.mean(0, keepdim=True).to(gradient))
        return self.attack(one, known, noise)

    def _scaled(self, view: View) -> Tensor:
        gradient = _common.gradient(view)
        return _common.scaled(gradient) if self.scale else gradient


@dataclass(frozen=True)
class _Visits:
    """Which rows of a view are the same example."""

    ids: Tensor  # each id once, sorted  (examples,)
    slot: Tensor  # for each row the place of its id  (steps, batch)
    count: Tensor  # how often each id came  (examples,)

    @classmethod
    def of(cls, view: View) -> _Visits:
        ids, slot = torch.unique(view.rows, return_inverse=True)
        count = torch.zeros_like(ids).index_add_(0, slot.flatten(), torch.ones_like(slot.flatten()))
        return cls(ids, slot, count)

    def mean(self, x: Tensor) -> Tensor:
        """Mean over the visits of each example.  (steps, batch, width) -> (examples, width)"""
        total = torch.zeros(self.ids.numel(), x.shape[-1], dtype=torch.float64, device=x.device)
        for part in _common.slices(x.shape[0], x.shape[1] * x.shape[2]):
            total.index_add_(0, self.slot[part].flatten(), x[part].flatten(0, 1).double())
        return (total / self.count[:, None]).to(x.dtype)

    def spread(self, x: Tensor) -> Tensor:
        """Each visit minus the example's mean, with the variance that one visit's noise has; zero for single visits."""
        factor = (self.count / (self.count - 1).clamp_min(1)).sqrt().to(x.dtype)  # (examples,)
        around = (x - self.mean(x)[self.slot]) * factor[self.slot][..., None]
        return around.masked_fill((self.count == 1)[self.slot][..., None], 0.0)

    def summed(self, score: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """Standardized scores added over the visits that count, and which examples had one.  (1, examples) each"""
        rows = self.slot.flatten()
        total = torch.zeros(self.ids.numel(), dtype=torch.float64, device=score.device)
        total.index_add_(0, rows, _common.standardized(score, counted).flatten())
        seen = torch.zeros_like(self.count).index_add_(0, rows, counted.flatten().to(self.count.dtype))
        return total[None], (seen > 0)[None]


def _with_gradient(view: View, gradient: Tensor) -> View:
    """The same view with other gradients in place of those received."""
    other = View.of(gradient, rows=view.rows, role=view.role)
    return View(view.role, [*(m for m in view.messages if m.kind != "gradient"), *other.messages], other.own)
