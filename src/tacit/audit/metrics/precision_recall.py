"""Precision and recall of the plainest decision: the largest share of the scores is called positive."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit.metrics import _checks
from tacit.errors import UsageError


def largest(score: Tensor, share: float) -> Tensor:
    """True for the largest `share` of the scores along the last dimension, at least one of them.

    Of equal scores at the edge the earlier ones are taken, so that exactly round(share * batch) rows are called.

    >>> largest(torch.tensor([3.0, 1.0, 2.0, 2.0]), 0.5).tolist()
    [True, False, True, False]
    """
    if not 0 < share < 1:
        raise UsageError(f"a share lies strictly between 0 and 1, not at {share}")
    called = max(1, round(share * score.shape[-1]))
    first = score.sort(dim=-1, descending=True, stable=True).indices[..., :called]
    return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, first, True)


def precision_recall(score: Tensor, label: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Precision and recall of calling the largest `share` of each batch positive, along the last dimension.

    Recall is NaN where a batch holds no positive row. Float64, on the device of the scores.

    >>> [part.item() for part in precision_recall(torch.tensor([3.0, 1.0, 2.0, 0.0]), torch.tensor([1, 1, 0, 0]), 0.5)]
    [0.5, 0.5]
    """
    _checks.same_shape(score, label)
    _checks.readable(score, label, _checks.all_counted(score, None))
    called, positive = largest(score, share), label == 1
    hits = (called & positive).sum(-1).double()
    return hits / called.sum(-1), hits / positive.sum(-1)
