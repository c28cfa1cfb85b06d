"""Log loss of logits: the binary cross entropy that the papers report as test loss."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit.metrics import _checks


def log_loss(logit: Tensor, label: Tensor, counted: Tensor | None = None) -> Tensor:
    """Mean of -log(probability of what happened), from logits, along the last dimension.

    From logits and not from probabilities, so that a confident and wrong model is charged in full where a probability
    would have rounded to 0 or 1. Float64, on the device of the logits.

    >>> round(log_loss(torch.tensor([0.0, 0.0]), torch.tensor([0, 1])).item(), 6)
    0.693147
    """
    _checks.same_shape(logit, label, counted)
    counts = _checks.all_counted(logit, counted)
    _checks.readable(logit, label, counts)
    x = logit.double().masked_fill(~counts, 0.0)
    each = (torch.nn.functional.softplus(x) - x * label.double()).masked_fill(~counts, 0.0)
    return each.sum(-1) / counts.sum(-1)
