"""What the measures of a reconstruction share: which rows count, and the error of a sum over examples."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.contracts import Reconstruction
from tacit.errors import TensorError

Z95 = 1.959963984540054  # the standard normal's 97.5% quantile


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
    """Variance of a sum of residuals when rows of one id belong together, and the number of ids.

    Args:
        ids: which example each row is of.  (rows,)
        residual: each row's part of the sum; all of them add up to 0.  (rows,)
    """
    examples, slot = torch.unique(ids, return_inverse=True)
    n = examples.numel()
    each = torch.zeros(n, dtype=torch.float64, device=residual.device).index_add_(0, slot, residual.double())
    return float(each.square().sum()) * n / max(1, n - 1), n
