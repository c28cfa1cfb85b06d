"""Loss functions of the label party, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import LabelsError, TensorError, UsageError

__all__ = ["LOSSES", "check_labels"]


def binary(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of one logit; targets may lie outside [0, 1], as those of randomized response do."""
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits.squeeze(1)
    if logits.shape != targets.shape:
        raise TensorError(
            f"the loss 'binary' takes one logit for each row, the top model gives {tuple(logits.shape)} for "
            f"{len(targets)} rows: end it with one output, or use the loss 'softmax'"
        )
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


def softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of one logit for each class; with two, float targets stand for the second one's share."""
    if logits.ndim != 2 or len(logits) != len(targets) or logits.shape[1] < 2:
        raise TensorError(
            f"the loss 'softmax' takes (rows, classes) logits, the top model gives {tuple(logits.shape)} for "
            f"{len(targets)} rows: end it with one output for each class"
        )
    if targets.is_floating_point():
        if logits.shape[1] != 2:
            raise LabelsError(f"labels of {logits.shape[1]} classes must be whole numbers: pass them as integers")
        targets = torch.stack([1 - targets, targets], dim=1).to(logits.dtype)
        return -(targets * functional.log_softmax(logits, dim=1)).sum(1).mean()
    return functional.cross_entropy(logits, targets.long())


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"binary": binary, "softmax": softmax}
"""`binary`: cross entropy of one logit. `softmax`: of one logit for each class, two or more."""


def check_labels(labels: Tensor, loss: str) -> None:
    """Refuse labels that the loss or the protections have no use for, before training starts."""
    if loss not in LOSSES:
        raise UsageError(f"there is no loss {loss!r}; there are: {', '.join(LOSSES)}")
    if labels.ndim != 1 or len(labels) == 0:
        raise LabelsError(f"labels have shape {tuple(labels.shape)}: pass one label for each example, in one axis")
    whole = (labels == labels.round()) & (labels >= 0)
    if not bool(whole.all()):
        row = int((~whole).nonzero()[0])
        raise LabelsError(f"label {labels[row].item()} of row {row} is not a class number: use 0, 1, ...")
    if loss == "binary" and bool((labels > 1).any()):
        row = int((labels > 1).nonzero()[0])
        raise LabelsError(f"label {labels[row].item()} of row {row} is not 0 or 1: use the loss 'softmax'")
