"""Losses by name, and what both parties ask of tensors: of their own at the start, of those of a step at each one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.contracts import Message
from tacit.errors import LabelsError, TensorError, UsageError

ALIKE = 0.9
"""The share of a batch whose embeddings may be the same: answers to one question about many rows add up."""


def tensors(name: str, given: Tensor | Sequence[Tensor], *, rows: int | None = None) -> tuple[Tensor, ...]:
    """One tensor or several as a tuple, if all have `rows` rows.

    Where no number is given, there must be at least one tensor, and the others have as many rows as the first.
    """
    each = (given,) if isinstance(given, Tensor) else tuple(given)
    for place, one in enumerate(each):
        if not isinstance(one, Tensor) or one.ndim == 0:
            raise UsageError(f"{name}[{place}] is no tensor with rows, but {one!r}: pass one row for each example")
    if rows is None and not each:
        raise UsageError(f"{name} hold no tensor: pass one or several, with one row for each example")
    if any(len(one) != (len(each[0]) if rows is None else rows) for one in each):
        wanted = "the same number each" if rows is None else f"{rows} each"
        sizes = ", ".join(str(len(one)) for one in each)
        raise UsageError(f"the tensors of {name} have {sizes} rows, not {wanted}: align the tables first")
    return each


def finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite, in one pass; always True off the CPU, where looking waits for the device."""
    if x.device.type != "cpu" or not x.numel():
        return True
    return all(bool(torch.isfinite(edge)) for edge in torch.aminmax(x.detach()))


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every submodule is back in the mode it was in."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        with torch.no_grad():
            for model in models:
                model.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def alike(z: Tensor) -> float:
    """The share of the rows of a batch that lie within a thousandth of one of them, as far as three of them tell.

    Where nearly all are alike, any row is likely to be one of these. A few rows may be alike by chance.
    """
    rows = z.detach().flatten(start_dim=1)
    if len(rows) < 32:
        return 0.0
    near = 1e-3 * torch.linalg.vector_norm(rows, dim=1).mean()
    apart = [torch.linalg.vector_norm(rows - rows[place], dim=1) for place in (0, len(rows) // 3, 2 * len(rows) // 3)]
    return max(float((one <= near).float().mean()) for one in apart)


def weights(model: nn.Module) -> bytes:
    """A digest of a model's parameters and buffers."""
    hashed = hashlib.sha256()
    for name, value in model.state_dict().items():
        hashed.update(Message(0, name, value, b"").fingerprint)
    return hashed.digest()


# --- losses and labels -----------------------------------------------------------------------------------------------


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
