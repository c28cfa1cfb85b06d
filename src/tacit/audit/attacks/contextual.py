"""The contextual attack: the party looks at its own embeddings and at the gradients it got for them, together."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.attacks import _gaussian
from tacit.audit.attacks._network import learned_score
from tacit.audit.facts import Facts
from tacit.audit.metrics.leak_auc import auc
from tacit.contracts import Attack, Guess, Known, Noise, View, noise_source
from tacit.errors import UsageError

_RIDGES = (0.03, 0.3, 3.0)  # of the mean square of an input
_SLIGHT = 0.01  # the ridge of fits that take out what embeddings say by themselves
_NEIGHBOURS = 32  # rows that a row is compared with
_NETWORK = "contextual(network)"
_COMPONENTS = 256  # numbers of an embedding and of a gradient that the fit sees; wider ones are projected

FACTS = Facts(
    order=120, needs=("labels", "embedding"), variants=({}, {"fit": "network"}), joined=("mean",), steers=True,
    live=True, sweep="last batches",
)  # fmt: skip


def contextual(fit: Literal["slope", "network"] = "slope") -> Attack:
    """Scores a row by what its gradient says there, at its own embedding.

    With the one label and with the other a row's gradient differs by the slope of the top at that row's embedding,
    which the party that sent the embedding can model. What a gradient says depends on where it was taken.

    - "slope" fits gradients, in white coordinates, by ridge regression on the embedding and on the embedding times the
      label, where the label is known: the first gives what a gradient is like at an embedding, the second how it
      changes with the label. The score of a row is how well its gradient, less the former, agrees with the latter,
      beyond what that is for rows whose embeddings say as much about their labels: features tell something without any
      message, and that does not count. On the mean of all visits (`accumulated`) this reads labels that are hidden in
      noise made for class means alone.
    - "network" lets a small network see embedding and gradient. Features tell something about labels without any
      message, so this guess carries a baseline: the same network with the embedding alone. The leak is what lies above.

    Knows: the party's own embeddings and the gradients; known.labels.
    Costs: of "slope" three linear systems of twice the embedding's width; of "network" twice the learned attack.
    """
    if fit not in ("slope", "network"):
        raise UsageError(f"contextual(fit={fit!r}): fit is 'slope' or 'network'")
    return views.Named("contextual", _by_slope) if fit == "slope" else views.Named(_NETWORK, _by_network)


def _by_slope(view: View, known: Known, noise: Noise) -> Guess:
    label = views.labels(view, known, "contextual")
    gradient = views.scaled(views.gradient(view))
    context = _context(views.embedding(view, "contextual"), noise)
    white, _ = _gaussian.whitened(gradient, _COMPONENTS, noise)
    flat, there = label.flatten(), white.flatten(0, 1)
    bent = _bent(context, int((flat >= 0).sum()), noise)
    score = _slope_score(there - bent @ _ridge(bent, there, _SLIGHT), context, flat, noise)
    y = flat[flat >= 0].double()
    score = _beyond(score, bent @ _ridge(bent[flat >= 0], y - y.mean(), _SLIGHT))
    return Guess(view.rows, score.reshape(label.shape), counted=label < 0)


def _by_network(view: View, known: Known, noise: Noise) -> Guess:
    label = views.labels(view, known, _NETWORK)
    gradient, own = views.gradient(view), views.embedding(view, _NETWORK)
    score = learned_score([own, gradient], view, known, noise, _NETWORK)
    baseline = learned_score([own], view, known, noise, _NETWORK)
    return Guess(view.rows, score, counted=label < 0, baseline=baseline)


def _context(z: Tensor, noise: Noise) -> Tensor:
    """What the fit sees of an embedding: its numbers with a root mean square of one, and a constant.  (rows, inputs)"""
    z = z.flatten(0, 1).double()
    if z.shape[1] > _COMPONENTS:
        shape = (z.shape[1], _COMPONENTS)
        z = z @ noise_source(noise).normal(shape, dtype=z.dtype, device=z.device) / z.shape[1] ** 0.5
    size = z.square().mean().sqrt()
    return torch.cat([z / torch.where(size > 0, size, 1.0), torch.ones_like(z[:, :1])], dim=1)


def _slope_score(white: Tensor, context: Tensor, label: Tensor, noise: Noise) -> Tensor:
    """The score of each row, with the ridge that judges best those known rows that it was not fitted on."""
    known = (label >= 0).nonzero()[:, 0]
    few = min(int((label == kind).sum()) for kind in (0, 1))
    if few < 4:
        raise UsageError(f"the attack 'contextual' needs 4 known rows of each class, but has {few}: grant more labels")
    draw = noise_source(noise).uniform((len(known),), dtype=torch.float64, device=label.device)
    first, second = known[draw < 0.5], known[draw >= 0.5]

    def judged(ridge: float) -> float:
        found = [
            auc(_fitted(white, context, label, fit, ridge, on), label[on])
            for fit, on in ((first, second), (second, first))
        ]
        return sum(float(one.nan_to_num(0.5)) for one in found)

    best = max(_RIDGES, key=judged)
    return _fitted(white, context, label, known, best, None)


def _fitted(white: Tensor, context: Tensor, label: Tensor, known: Tensor, ridge: float, rows: Tensor | None) -> Tensor:
    """The score of some rows, or all, from a fit on the known ones."""
    y = label[known].double()
    inside = context[known]
    both = torch.cat([inside, (y - y.mean())[:, None] * inside], dim=1)
    usual, slope = _ridge(both, white[known], ridge).chunk(2)  # (inputs, white) each
    left = white[known] - both @ torch.cat([usual, slope])
    covariance = left.mT @ left / len(known)
    shrunk = 0.05 * covariance.diagonal().mean() + 1e-12
    covariance = covariance + shrunk * torch.eye(len(covariance), dtype=white.dtype, device=white.device)
    there, here = (white, context) if rows is None else (white[rows], context[rows])
    score: Tensor = ((there - here @ usual) * torch.linalg.solve(covariance, (here @ slope).mT).mT).sum(-1)
    return score


def _bent(context: Tensor, known: int, noise: Noise) -> Tensor:
    """A context and random bends of it, so that a linear fit sees more than lines.  (rows, inputs)"""
    shape = (context.shape[1], max(8, min(_COMPONENTS, known // 8)))
    bends = noise_source(noise).normal(shape, dtype=context.dtype, device=context.device) / shape[0] ** 0.5
    return torch.cat([context, (context @ bends).relu()], dim=1)


def _ridge(inputs: Tensor, outputs: Tensor, weight: float) -> Tensor:
    """What outputs are of inputs, by ridge regression; the weight is in units of the inputs' mean square."""
    normal = inputs.mT @ inputs / len(inputs)
    size = weight * normal.diagonal().mean() + 1e-12
    normal = normal + size * torch.eye(len(normal), dtype=normal.dtype, device=normal.device)
    found: Tensor = torch.linalg.solve(normal, inputs.mT @ outputs / len(inputs))
    return found


def _beyond(score: Tensor, predicted: Tensor) -> Tensor:
    """Scores less the mean of those of the rows whose prediction is nearest.  (rows,)"""
    order = predicted.argsort(stable=True)
    rows, side = len(order), min(_NEIGHBOURS // 2, (len(order) - 1) // 2)
    sums = torch.nn.functional.pad(score[order].cumsum(0), (1, 0))
    place = torch.arange(rows, device=score.device)
    first = (place - side).clamp(0, rows - 2 * side - 1)
    around = (sums[first + 2 * side + 1] - sums[first] - score[order]) / max(1, 2 * side)
    return score.scatter(0, order, score[order] - around)
