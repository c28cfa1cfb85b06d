"""Adaptive calibration error: whether events that are given 30% happen three times in ten."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit.metrics import _checks
from tacit.errors import TensorError, UsageError


def calibration_error(probability: Tensor, label: Tensor, bins: int = 15) -> Tensor:
    """Mean over bins of equal mass of |mean predicted - share of positives|, along the last dimension.

    The ACE of Nixon 2019 for two classes: rows are sorted by what
    was predicted and cut into `bins` bins of the same number of rows (fewer bins where there are fewer rows). Rows with
    equal predictions stay in their order, so shuffle them first if that order means something. Float64.

    >>> calibration_error(torch.tensor([0.2, 0.2, 0.8, 0.8]), torch.tensor([0, 0, 1, 1]), bins=2).item()
    0.199...
    """
    _checks.same_shape(probability, label)
    _checks.readable(probability, label, _checks.all_counted(probability, None))
    n = probability.shape[-1]
    if bins < 1:
        raise UsageError(f"bins must be at least 1, not {bins}")
    if n == 0:
        raise TensorError("there are no rows to bin")
    if not probability.is_cuda and bool(((probability < 0) | (probability > 1)).any()):
        raise TensorError("probabilities lie between 0 and 1: apply a sigmoid to logits first")
    bins = min(bins, n)
    predicted, order = probability.double().sort(dim=-1, stable=True)
    excess = predicted - label.double().gather(-1, order)
    of = (torch.arange(n, device=excess.device) * bins // n).expand_as(excess)
    total = torch.zeros(*excess.shape[:-1], bins, dtype=torch.float64, device=excess.device)
    mass = torch.zeros_like(total).scatter_add_(-1, of, torch.ones_like(excess))
    return (total.scatter_add_(-1, of, excess) / mass).abs().mean(-1)
