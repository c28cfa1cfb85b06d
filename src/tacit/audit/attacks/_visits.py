"""Which rows of a transcript belong together, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.audit import views
from tacit.contracts import Attack, Guess, Known, Noise, View


@dataclass(frozen=True)
class Visits:
    """Rows of a view in groups: all visits of one example."""

    ids: Tensor  # the example of each group  (groups,)
    slot: Tensor  # for each row the place of its group  (steps, batch)
    count: Tensor  # how many rows each group has  (groups,)

    @classmethod
    def of(cls, view: View) -> Visits:
        """One group for each example."""
        return cls(*torch.unique(view.rows, return_inverse=True, return_counts=True))

    def mean(self, x: Tensor) -> Tensor:
        """Mean over the rows of each group.  (steps, batch, width) -> (groups, width)"""
        total = torch.zeros(self.ids.numel(), x.shape[-1], dtype=torch.float64, device=x.device)
        for part in views.slices(x.shape[0], x.shape[1] * x.shape[2]):
            total.index_add_(0, self.slot[part].flatten(), x[part].flatten(0, 1).double())
        return (total / self.count[:, None]).to(x.dtype)

    def spread(self, x: Tensor) -> Tensor:
        """Each row minus its group's mean, with the variance that one row's noise has; zero for groups of one."""
        factor = (self.count / (self.count - 1).clamp_min(1)).sqrt().to(x.dtype)  # (groups,)
        around = (x - self.mean(x)[self.slot]) * factor[self.slot][..., None]
        return around.masked_fill((self.count == 1)[self.slot][..., None], 0.0)

    def summed(self, score: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Standardized scores added over the rows that count, and which groups had one.  (1, groups) each"""
        rows = self.slot.flatten()
        total = torch.zeros(self.ids.numel(), dtype=torch.float64, device=score.device)
        total.index_add_(0, rows, views.standardized(score, counts).flatten())
        seen = torch.zeros_like(self.count).index_add_(0, rows, counts.flatten().to(self.count.dtype))
        return total[None], (seen > 0)[None]


def on_means(attack: Attack, view: View, visits: Visits, known: Known, noise: Noise, *, precise: bool = False) -> Guess:
    """An attack on one batch that holds each group once, with its mean gradient and embedding.

    Each batch is scaled to one root mean square first, so that early ones do not drown later ones; with `precise`,
    quieter batches weigh more: each by one over its root mean square.
    """
    received = views.gradient(view)
    size = views.batch_rms(received)  # (steps, 1, 1)
    weight = (size.mean() / size if precise else torch.ones_like(size)).to(received.dtype)
    told = visits.mean(weight * views.scaled(received))
    gradient = (told / visits.mean(weight.expand(*view.rows.shape, 1)))[None]
    embedding = None
    if "embedding" in view.crossed:
        embedding = visits.mean(views.embedding(view, attack.name))[None]
    one = View.of(gradient, rows=visits.ids[None], embedding=embedding, role=view.role)
    if known.positive_gradient is not None:
        clean = known.positive_gradient
        if clean.shape[0] == view.rows.shape[0]:
            clean = clean * (weight[:, 0] / size[:, 0]).to(clean.dtype)
        known = replace(known, positive_gradient=clean.mean(0, keepdim=True).to(gradient))
    return attack(one, known, noise)
