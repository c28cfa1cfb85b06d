"""The majority attack: a gradient that points the way of most others is negative."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

FACTS = Facts(order=30, steers=True, live=True, sweep="some batches")


def majority() -> Attack:
    """Scores a row by how many other rows of the batch its gradient points against.

    The direction-based attack without an oracle (Li 2021, section 3.2; Li 2022, section 3.3): two gradients of one
    class have a positive cosine, two of different classes a negative one, and most rows are negative. The score is
    minus the mean sign of the cosines with the other rows.

    Knows: the gradients, and that positives are the smaller class.
    Costs: O(batch^2 * width) for each step; never more than a block of the batch x batch signs in memory.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        gradient = views.unit(views.gradient(view))
        steps, batch, _ = gradient.shape
        parts = [_disagreement(gradient[part]) for part in views.slices(steps, batch * batch)]
        return Guess(view.rows, torch.cat(parts))

    return views.named(majority, guess)


def _disagreement(rows: Tensor) -> Tensor:
    """Minus the mean sign of each row's cosine with the others.  (steps, batch, width) -> (steps, batch)"""
    steps, batch, _ = rows.shape
    agree = [
        (rows[:, block] @ rows.mT).sign_().sum(-1)  # (steps, block); in place, for new memory costs as much again
        for block in views.slices(batch, steps * batch)
    ]
    itself = (rows != 0).any(-1)  # a row agrees with itself; that says nothing
    return -(torch.cat(agree, dim=1) - itself.to(rows.dtype)) / max(1, batch - 1)
