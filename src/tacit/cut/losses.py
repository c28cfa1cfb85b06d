"""Loss functions of the label party, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import LabelsError, TensorError, UsageError

__all__ = ["LOSSES", "check_labels", "check_targets"]


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


def check_labels(labels: Tensor, loss: str) -> int:
    """Refuse labels that the loss or the protections have no use for, before training starts.

    Returns:
        The number of classes: one more than the largest label, at least 2.
    """
    if loss not in LOSSES:
        raise UsageError(f"there is no loss {loss!r}; there are: {', '.join(LOSSES)}")
    if not isinstance(labels, Tensor):
        raise LabelsError(f"labels are a {type(labels).__name__}: pass a tensor with one label for each example")
    if labels.ndim != 1 or len(labels) == 0:
        raise LabelsError(f"labels have shape {tuple(labels.shape)}: pass one label for each example, in one axis")
    if labels.dtype == torch.bool:
        return 2
    _refuse(
        labels, ~(torch.isfinite(labels) & (labels == labels.round()) & (labels >= 0)), "a class number: use 0, 1, ..."
    )
    if loss == "binary":
        _refuse(labels, labels > 1, "0 or 1: use the loss 'softmax'")
    if labels.is_floating_point():
        _refuse(labels, labels > 1, "0 or 1: pass labels of several classes as integers")
    return max(2, int(labels.max()) + 1)


def check_targets(targets: Tensor, labels: Tensor) -> Tensor:
    """The targets themselves, if there is a finite one for each label."""
    if targets.shape != labels.shape:
        raise LabelsError(
            f"targets have shape {tuple(targets.shape)} for labels of shape {tuple(labels.shape)}: pass one for each"
        )
    _refuse(targets, ~torch.isfinite(targets), "finite: look at how the targets were made", what="target")
    return targets


def _refuse(values: Tensor, wrong: Tensor, wanted: str, *, what: str = "label") -> None:
    """Name the first row that is wrong, if there is one."""
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise LabelsError(f"{what} {values[row].item()} of row {row} is not {wanted}")
