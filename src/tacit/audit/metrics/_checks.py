"""What every metric asks of its tensors. Reading a CUDA tensor waits for the device, so there only `always` checks."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.contracts import Reconstruction
from tacit.errors import LabelsError, TensorError

Z95 = 1.959963984540054  # the standard normal's 97.5% quantile


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


def counted(guess: Reconstruction, truth: Tensor) -> Tensor:
    """Numbers of the rows of a guess that count, if the guess fits itself and the truth holds all of their ids."""
    rows = guess.rows.shape
    if len(rows) != 1 or guess.counted.shape != rows or guess.value.shape[:1] != rows:
        raise TensorError(
            f"rows {tuple(rows)}, value {tuple(guess.value.shape)} and counted {tuple(guess.counted.shape)} do not "
            "belong together: give one id, one belief and one mark for each of the rows"
        )
    if guess.rows.numel():
        low, high = (int(edge) for edge in torch.aminmax(guess.rows))
        if low < 0 or high >= truth.shape[0]:
            raise TensorError(f"row ids run from {low} to {high}, but the truth holds {truth.shape[0]} rows")
    return guess.counted.bool().nonzero()[:, 0]


def variance_of_sum(ids: Tensor, residual: Tensor) -> tuple[float, int]:
    """Variance of a sum of residuals, which add up to 0, when rows of one id belong together; and the number of ids."""
    examples, slot = torch.unique(ids, return_inverse=True)
    n = examples.numel()
    each = torch.zeros(n, dtype=torch.float64, device=residual.device).index_add_(0, slot, residual.double())
    return float(each.square().sum()) * n / max(1, n - 1), n
