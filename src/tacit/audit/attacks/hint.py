"""The hint attack: a few positives are known in each batch, and rows like them are positive too."""

from __future__ import annotations

import torch

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

FACTS = Facts(order=40, needs=("labels",), steers=True, live=True, sweep="every batch")


def hint(k: int = 5) -> Attack:
    """Scores a row by its inner product with the nearest of k known positives in its batch.

    The hint attack of "Label leakage and protection in federated learning". The hints are the first k rows of a batch
    that are known to be positive; they are not judged themselves. A batch with fewer uses what it has, and a batch with
    none is not judged at all.

    Knows: the gradients; of known.labels at most k positives in each batch.
    Costs: O(batch * width * k) for each step.
    """
    views.check_count("hint", "k", k, "known positive in a batch")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        gradient = views.scaled(views.gradient(view))
        positive = views.labels(view, known, "hint") == 1  # (steps, batch)
        seen = positive.cumsum(-1)
        is_hint = positive & (seen <= k)
        places = torch.arange(1, min(k, gradient.shape[1]) + 1, device=gradient.device)[:, None]
        first = (seen[:, None] == places).to(torch.int8).argmax(-1)  # (steps, k): that of a missing one is row 0
        real = is_hint.gather(-1, first)
        hints = gradient.gather(1, first[..., None].expand(-1, -1, gradient.shape[2]))  # (steps, k, width)
        near = (gradient @ hints.mT).masked_fill(~real[:, None], -torch.inf).amax(-1)
        any_hint = real.any(-1, keepdim=True)
        return Guess(view.rows, near.masked_fill(~any_hint, 0.0), counted=any_hint & ~is_hint)

    return views.named(hint, guess, k=k)
