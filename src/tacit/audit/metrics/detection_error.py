"""Detection error: how often the best threshold on the scores is wrong when both classes are equally likely."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit.metrics import _checks

__all__ = ["detection_error"]


def detection_error(score: Tensor, label: Tensor, counted: Tensor | None = None) -> Tensor:
    """The least (FPR + FNR) / 2 over all thresholds and both signs, along the last dimension.

    This is the error of the papers' detector at equal weights: 1/2 for scores that tell nothing, 0 where one threshold
    separates the classes. NaN where a batch lacks a class. Float64, on the device of the scores.

    >>> detection_error(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])).item()
    0.25
    """
    _checks.same_shape(score, label, counted)
    counts = _checks.all_counted(score, counted)
    _checks.readable(score, label, counts)
    positive, negative = (label == 1) & counts, (label == 0) & counts
    score, order = score.double().masked_fill(~counts, torch.inf).sort(-1)  # rows that do not count come last
    true = positive.gather(-1, order).cumsum(-1).double()  # positives at or below each score
    false = negative.gather(-1, order).cumsum(-1).double()
    # "At or below" called positive is wrong on these; calling it negative is right on them.
    error = (false / false[..., -1:] + 1 - true / true[..., -1:]) / 2
    inside_tie = torch.zeros_like(score, dtype=torch.bool)
    inside_tie[..., :-1] = score[..., :-1] == score[..., 1:]  # no threshold can cut between equal scores
    error = error.masked_fill(inside_tie, 0.5)  # 1/2 is always within reach, so this never wins
    least = torch.minimum(error, 1 - error).amin(-1)
    return least.masked_fill((positive.sum(-1) == 0) | (negative.sum(-1) == 0), torch.nan)
