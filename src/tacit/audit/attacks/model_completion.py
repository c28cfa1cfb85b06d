"""Model completion: a feature party that knows a few labels puts a top of its own on its bottom."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View, noise_source
from tacit.errors import LabelsError

_PENALTIES = 10.0 ** torch.arange(-4.0, 4.5, 0.5, dtype=torch.float64)  # in units of the mean squared length of a row

FACTS = Facts(order=130, needs=("labels", "embedding"))


def model_completion(k: int = 40) -> Attack:
    """Scores a row by a top that is fitted on the embeddings of k rows whose label is known.

    After Fu 2022. What training has taught the
    bottom about labels is in its embeddings; a few labels are enough to find it there. The top is a ridge regression
    whose penalty is the best one by leaving each of the k rows out, so that forty labels do not overfit a hundred
    columns. The gradients are not looked at: what this attack finds, the finished model gives away by itself, and the
    honest baseline is what that model predicts.

    Knows: the party's own embeddings, known.labels (k of them, half of each class where there are as many), and
        known.prediction as the baseline where it is granted.
    Costs: one decomposition of a k x k matrix, and one product with all embeddings.
    """
    views.check_count("model_completion", "k", k, "known label")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        label = views.labels(view, known, "model_completion")  # (steps, batch)
        z = views.embedding(view, "model_completion").double()
        flat = z.flatten(0, 1)
        spread, mean = torch.std_mean(flat, dim=0, correction=0)
        flat = (flat - mean) / torch.where(spread > 1e-9 * mean.abs(), spread, torch.inf)  # (rows, width)
        rows = _some(view.rows.flatten(), label.flatten(), k, noise)
        score = (flat @ _ridge(flat[rows], 2.0 * label.flatten()[rows].double() - 1)).reshape(label.shape)
        return Guess(view.rows, score, counted=label < 0, baseline=views.baseline(score, view, known))

    return views.named(model_completion, guess, k=k)


def _some(ids: Tensor, label: Tensor, k: int, noise: Noise) -> Tensor:
    """Places of k rows with a known label, of different examples, half of each class where there are as many."""
    draw = noise_source(noise).uniform((int(ids.max()) + 1,), dtype=torch.float64, device=ids.device)[ids]
    newest = torch.zeros_like(ids, dtype=torch.bool)
    order = ids.argsort(stable=True)
    ends = torch.ones_like(newest)
    ends[:-1] = ids[order][1:] != ids[order][:-1]
    newest[order[ends]] = True  # of several visits of an example the last one, when the bottom had learned most
    each = []
    for value in (0, 1):
        places = ((label == value) & newest).nonzero()[:, 0]
        each.append(places[draw[places].argsort()])
    if not min(len(one) for one in each):
        raise LabelsError("the attack 'model_completion' knows labels of one class alone: grant it some of both")
    positive = min(len(each[1]), max(k // 2, k - len(each[0]), 1))
    return torch.cat([each[0][: max(1, k - positive)], each[1][:positive]])


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    """Weights of the ridge regression whose leave-one-out error is least.  (k, width), (k,) -> (width,)"""
    y = y - y.mean()
    values, vectors = torch.linalg.eigh(x @ x.mT)
    values = values.clamp(min=0.0)
    penalties = _PENALTIES.to(x.device) * values.sum().clamp(min=1e-30) / len(values)
    shrink = 1 / (values[None, :] + penalties[:, None])  # (penalties, k)
    inverse = torch.einsum("ij,pj,kj->pik", vectors, shrink, vectors)  # (penalties, k, k)
    dual = inverse @ y
    errors = (dual / inverse.diagonal(dim1=1, dim2=2)).square().mean(1)  # of each row, predicted by all others
    return x.mT @ dual[errors.argmin()]
