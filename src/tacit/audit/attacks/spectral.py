"""The spectral attack: where the classes lie apart, the leading direction of a batch runs from one to the other."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

Of = Literal["embedding", "gradient"]

_GRADIENTS = {"of": "gradient"}
FACTS = Facts(order=100, needs=("embedding",), variants=({}, _GRADIENTS), on_gradients=_GRADIENTS, sweep="last batches")


def spectral(of: Of = "embedding") -> Attack:
    """Scores a row by its place along the leading direction of its centred batch.

    After Sun 2022: training itself pulls the embeddings of the two classes apart. The directions of all steps are
    turned the same way, and the longer tail counts as positive, because positives are the smaller class. What the
    party's own embeddings give away came to it through the weights it has learned, not through any one gradient: the
    honest baseline is what the finished model itself predicts, where that is granted (known.prediction); else they are
    their own.

    Knows: the party's own embeddings (or, with of="gradient", the gradients), and that positives are the smaller class.
    Costs: one singular value decomposition of each batch through a matrix of size min(batch, width), in float64.
    """
    if of not in ("embedding", "gradient"):
        raise UsageError(f"spectral looks at 'embedding' or 'gradient', not at {of!r}")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        x = views.gradient(view) if of == "gradient" else views.embedding(view, "spectral")
        steps, batch, width = x.shape
        each = batch * width + min(batch, width) ** 2
        found = [_leading(x[part]) for part in views.slices(steps, each)]
        score, direction = (torch.cat(part) for part in zip(*found, strict=True))
        turn = views.turns(direction)[:, None]
        tail = (score * turn).pow(3).sum().sign()
        score = score * turn * torch.where(tail == 0, 1.0, tail)
        return Guess(view.rows, score, baseline=views.baseline(score, view, known) if of == "embedding" else None)

    return views.named(spectral, guess, of=of)


def _leading(x: Tensor) -> tuple[Tensor, Tensor]:
    """Standardized projection of each row on its batch's leading direction, and that direction, of unit length."""
    x = x.double()
    x = x - x.mean(1, keepdim=True)
    x = x / views.batch_rms(x)
    direction = views.leading(x)
    return views.standardized((x @ direction[..., None]).squeeze(-1)), direction
