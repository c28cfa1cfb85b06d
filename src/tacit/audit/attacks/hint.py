"""The hint attack: a few positives are known in each batch, and rows like them are positive too."""

from __future__ import annotations

from typing import Literal

import torch

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

FACTS = Facts(order=40, needs=("labels",), steers=True, live=True, sweep="every batch")


def hint(k: int = 5, similarity: Literal["inner", "cosine"] = "inner") -> Attack:
    """Scores a row by its similarity to the nearest of k known positives in its batch: inner product, or cosine.

    The hint attack (Li 2021, section 5.3), which needs no imbalance of the classes. The hints are the first k rows of a
    batch that are known to be positive; they are not judged themselves. A batch with fewer uses what it has, and a
    batch with none is not judged at all. The papers' figures have five hints and the inner product, which is the
    default; by cosine, long gradients count no more than short ones.

    Knows: the gradients; of known.labels at most k positives in each batch.
    Costs: O(batch * width * k) for each step.
    """
    views.check_count("hint", "k", k, "known positive in a batch")
    if similarity not in ("inner", "cosine"):
        raise UsageError(f"hint(similarity={similarity!r}): choose 'inner' or 'cosine'")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        received = views.gradient(view)
        gradient = views.unit(received) if similarity == "cosine" else views.scaled(received)
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

    return views.named(hint, guess, k=k, similarity=similarity)
