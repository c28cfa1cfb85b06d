"""Detection error: how often a labelling of gradients is wrong where both classes are equally likely."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit.metrics import _checks


def detection_error(score: Tensor, label: Tensor, counted: Tensor | None = None) -> Tensor:
    """The least mean of false negative rate and false positive rate over all thresholds on the scores, either way.

    A labelling function calls the gradients of a set positive, and its detection error is the mean of both rates (Li
    2020, section 3.1). The sets here are those above or below a threshold of one scoring function, so this is the error
    of its best labelling: 1/2 for scores that tell nothing, 0 where a threshold parts the classes. Of a labelling
    itself, pass what it calls positive as scores of 0 and 1. No scoring function gets below (1 - TV) / 2, which
    `model_detection_error` of a protection's report bounds. Small batches lie below their expectation: the best
    threshold is looked for in the rows that it is judged on.

    Args:
        score: any leading stack, one score for each row.  (..., batch)
        label: 0 or 1, of any dtype.  (..., batch)
        counted: False where a row must not be judged.  (..., batch)

    Returns:
        One float64 for each batch; NaN where it lacks a class, or on CUDA holds a score that is NaN.  (...)

    >>> detection_error(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])).item()
    0.25
    """
    _checks.same_shape(score, label, counted)
    counts = _checks.all_counted(score, counted)
    _checks.readable(score, label, counts)
    positive, negative = (label == 1) & counts, (label == 0) & counts
    broken = (score.isnan() & counts).any(-1)
    score, order = score.double().masked_fill(~counts, torch.inf).sort(-1)  # rows that do not count come last
    misses, hits = (member.gather(-1, order).cumsum(-1).double() for member in (positive, negative))
    # for the threshold at each score, whoever is above it called positive: positives below it are missed, and the
    # negatives below it are all that is not called wrongly
    error = (misses / misses[..., -1:] + 1 - hits / hits[..., -1:]) / 2
    inside_tie = torch.zeros_like(score, dtype=torch.bool)
    inside_tie[..., :-1] = score[..., :-1] == score[..., 1:]  # no threshold can cut between equal scores
    error = error.masked_fill(inside_tie, 0.5)  # 1/2 is always within reach, so this never wins
    least = torch.minimum(error, 1 - error).amin(-1)
    return least.masked_fill(broken | ~positive.any(-1) | ~negative.any(-1), torch.nan)
