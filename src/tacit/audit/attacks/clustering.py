"""Clustering: rows fall into two heaps by themselves, and the smaller one is positive."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.attacks import _gaussian
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View, noise_source
from tacit.errors import UsageError

Of = Literal["embedding", "gradient"]

_RANDOM = 4  # starts along random directions, besides one along each coordinate
_MOVES = 25  # of the two centres, from each start

_GRADIENTS = {"of": "gradient"}
FACTS = Facts(order=110, needs=("embedding",), variants=({}, _GRADIENTS), on_gradients=_GRADIENTS, joined=("mean",))


def clustering(of: Of = "embedding", components: int = 8) -> Attack:
    """Scores a row by how far it lies on the smaller one's side between two clusters of all rows.

    Two means (k-means) in whitened coordinates: each batch is centred and scaled, all rows are seen along their leading
    `components` directions with the same variance in each, and where rows are wider than that, the energy outside them
    is one more coordinate. Whitening takes away what is merely loud, so that the split follows the direction in
    which rows really lie in two heaps. It starts once from a split along each coordinate and a few times along random
    directions, and keeps the tightest pair of clusters. What the party's own embeddings give away has come to it
    through the weights it has learned: the honest baseline is what the finished model itself predicts, where
    that is granted (known.prediction); else they are their own.

    Knows: the party's own embeddings (or, with of="gradient", the gradients), and that positives are the smaller class.
    Costs: one covariance of all rows, and a fixed number of passes over `components` numbers for each row.
    """
    if of not in ("embedding", "gradient"):
        raise UsageError(f"clustering looks at 'embedding' or 'gradient', not at {of!r}")
    views.check_count("clustering", "components", components, "component")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        own = of == "embedding"
        x = views.embedding(view, "clustering") if own else views.gradient(view)
        x = views.scaled(x - x.mean(1, keepdim=True)) if x.shape[1] > 1 else views.scaled(x)
        white, _ = _gaussian.whitened(x, components, noise)
        score = _side(white.flatten(0, 1), noise).reshape(view.rows.shape)
        return Guess(view.rows, score, baseline=views.baseline(score, view, known) if own else None)

    return views.named(clustering, guess, of=of, components=components)


def _side(x: Tensor, noise: Noise) -> Tensor:
    """Signed distance of each row from the border of two clusters, positive in the smaller one.  (rows,)"""
    width = x.shape[1]
    random = noise_source(noise).normal((width, _RANDOM), dtype=x.dtype, device=x.device)
    starts = torch.cat([torch.eye(width, dtype=x.dtype, device=x.device), random], dim=1)
    inside = (x @ starts) > 0  # (rows, starts)
    total, rows = x.sum(0), len(x)
    for _ in range(_MOVES):
        member = inside.to(x.dtype)
        size = member.sum(0)
        one = (member.mT @ x) / size.clamp_min(1.0)[:, None]  # (starts, width)
        other = (total - member.mT @ x) / (rows - size).clamp_min(1.0)[:, None]
        across = one - other
        inside = x @ across.mT > ((one + other) * across).sum(-1) / 2
    tightness = size * (rows - size) * across.square().sum(-1)  # the variance between the clusters, times rows squared
    best = tightness.argmax()
    distance = x @ across[best] - ((one + other)[best] @ across[best]) / 2
    return distance if int((distance > 0).sum()) * 2 <= rows else -distance
