"""What every metric asks of its tensors. Reading a CUDA tensor waits for the device, so there only `always` checks."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.errors import LabelsError, TensorError


def same_shape(score: Tensor, *others: Tensor | None) -> None:
    """Refuse tensors that are not one number for each score."""
    for other in others:
        if other is not None and other.shape != score.shape:
            raise TensorError(f"scores are {tuple(score.shape)}, but what belongs to them is {tuple(other.shape)}")


def readable(score: Tensor, label: Tensor, counted: Tensor, *, always: bool = False) -> None:
    """Refuse scores that are not finite and labels that are not 0 or 1, among the rows that count."""
    if score.is_cuda and not always:
        return
    if bool((~torch.isfinite(score) & counted).any()):
        raise TensorError("some scores are not finite: look for overflow in what produced them")
    if bool(((label != 0) & (label != 1) & counted).any()):
        raise LabelsError("some labels are neither 0 nor 1: map the classes to 0 and 1 first")


def all_counted(score: Tensor, counted: Tensor | None) -> Tensor:
    """The mask of the rows that count, as booleans; without one all do."""
    return torch.ones_like(score, dtype=torch.bool) if counted is None else counted.bool()
