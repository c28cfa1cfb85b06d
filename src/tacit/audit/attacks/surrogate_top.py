"""Gradient inversion with a surrogate top: guess the other half of the model, and labels to go with it."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.attacks._surrogate import fitted
from tacit.audit.attacks._visits import Visits
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View, noise_source
from tacit.errors import UsageError

FACTS = Facts(order=140, needs=("share", "embedding"), joined=("mean",))


def surrogate_top() -> Attack:
    """Scores an example by the label with which a made-up top would have sent the gradients that came.

    After ExPLoit (Kariyappa 2023). The attacker
    has the embeddings that it sent and the gradients that it got for them. It fits a small top network of its own
    and one soft label for each example, both at once, such that the gradient of the surrogate's loss with respect to
    the embedding is what was received. Two more terms pull the mean of the soft labels to the known share of positives
    and each of them away from the middle. No label is known. The first slope of the surrogate is the leading direction
    of the gradients, turned so that about the known share of rows lies on its positive side, and the first labels are
    those that go with it. The score is the label that explains all visits of an example best under the finished
    surrogate. Where embeddings are of another width than gradients, the way between them is fitted, too.

    Under noise what stays is what the surrogate has learned about embeddings; so the guess carries a baseline, which is
    what the finished model predicts where that is granted (known.prediction), else the surrogate's own logit.

    Knows: the party's own embeddings, the gradients and the row ids; known.share.
    Costs: a fixed number of updates of one small layer and of the labels in it, and one pass over all rows.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        z, gradient = views.embedding(view, "surrogate_top"), views.scaled(views.gradient(view)).float()
        if known.share is None:
            raise UsageError("the attack 'surrogate_top' needs known.share: grant it, or leave it out")
        z, gradient = _standardized(z.double().flatten(0, 1)), gradient.flatten(0, 1)
        visits = Visits.of(view)
        positive = min(max(known.share, 1e-3), 1 - 1e-3)
        with torch.enable_grad():
            top = fitted(z, gradient, visits.slot.flatten(), visits.ids.numel(), positive, noise_source(noise))
        explained, logit = top.explained(z, gradient)  # (rows,), (rows,)
        score, own = (visits.mean(one.reshape(*view.rows.shape, 1))[:, 0] for one in (explained, logit))
        baseline = own if known.prediction is None else known.prediction.to(visits.ids.device)[visits.ids].to(score)
        return Guess(visits.ids[None], score[None], baseline=baseline[None])

    return views.named(surrogate_top, guess)


def _standardized(z: Tensor) -> Tensor:
    """Rows around their mean, in units of their size: one number for all columns, so that no slope is turned."""
    z = z - z.mean(0)
    size = z.square().mean().sqrt()
    return (z / torch.where(size > 0, size, 1.0)).float()
