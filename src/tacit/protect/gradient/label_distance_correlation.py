"""A gradient that teaches the bottom to carry less of the label, as a first link of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.dependence import distance_correlation, log_distance_correlation
from tacit.errors import TensorError, UsageError
from tacit.protect.facts import Facts, Option
from tacit.protect.gradient._base import Batch, Drawn, GradientProtection, Strength, per_problem, positive_number

FACTS = Facts(strengths=(Option("weight"),), alone=False)


@dataclass(frozen=True)
class LabelDistanceCorrelation(GradientProtection):
    """See `label_distance_correlation`."""

    weight: Strength
    log: bool

    strengths = ("weight",)
    goes_first = True

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """The gradient of the weighted correlation in the place of noise; 0 where the batch has one class or one row.

        In float64, because embeddings that hardly vary have gradients far above those of the loss.
        """
        z = _embedding(batch)
        pull, value = torch.zeros_like(z, dtype=torch.float64), torch.zeros_like(batch.scale, dtype=torch.float64)
        if z.shape[1] > 1:
            measure = log_distance_correlation if self.log else distance_correlation
            with torch.enable_grad():
                leaf = z.double().requires_grad_()
                reached = measure(batch.labels[..., None].double(), leaf, noise=source, stacked=True)
                (pull,) = torch.autograd.grad(reached.sum(), leaf)
            pull = per_problem(self.weight, pull) * pull
            value = reached.detach().exp() if self.log else reached.detach()
        added = pull / batch.scale.double()[:, None, None]
        bare = torch.full_like(batch.scale, z.shape[1])  # what is added is no noise: every row is as readable as before
        figures = {"label_correlation": value, "untouched_rows": bare.to(torch.float32)}
        return Drawn(added, state, torch.zeros_like(batch.scale), figures)


def _embedding(batch: Batch) -> Tensor:
    """The batch's embedding, if there is a finite one."""
    z = batch.embedding
    if z is None:
        raise UsageError(
            "label_distance_correlation needs the embedding that the gradient belongs to: pass embedding=..., as "
            "LabelParty and simulate do"
        )
    if z.device.type == "cpu" and not bool(torch.isfinite(z).all()):
        row = (~torch.isfinite(z).all(-1)).nonzero()[0, -1].item()
        raise TensorError(f"the embedding of row {row} is not finite: look at the bottom model and its inputs")
    return z


def label_distance_correlation(weight: float, log: bool = True) -> GradientProtection:
    """Add the gradient of what the embeddings tell about the labels, so that the bottom learns to carry less of it.

    Training pulls the embeddings of the two classes apart, and the feature party sees its own embeddings: no noise on
    the gradient hides that. This adds `weight` times the derivative of the distance correlation between embedding and
    label, as if the label party's loss had that term for the bottom alone. Not a protection of the gradient by itself,
    and not unbiased: what is added depends on the labels. It goes first, and what hides the gradient follows:
    `chain(label_distance_correlation(0.1), matched(leak_auc=0.6))`. A batch of one class gets nothing added.

    It takes the label out of the leading directions, where anyone finds it. What the model itself predicts from the
    embeddings is still in them, for an attacker that has some labels to fit a top model of its own; and a bottom that
    carried nothing of the label would predict nothing.

    Args:
        weight: how much the correlation counts beside the loss.
        log: take the logarithm of the correlation, which pulls on when there is little left.
    """
    if not isinstance(log, bool):
        raise UsageError(f"log = {log!r} is neither true nor false: leave it out for the logarithm")
    return LabelDistanceCorrelation(positive_number("weight", weight), log)
