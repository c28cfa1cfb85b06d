"""How long gradients are, class by class: the plainest picture of what an unprotected gradient gives away."""

from __future__ import annotations

import math
from typing import TypedDict

import torch
from torch import Tensor

BINS = 24


class Norms(TypedDict):
    """A histogram of norms for each of two classes, over bins of equal width in the logarithm."""

    low: float  # where the first bin begins
    high: float  # where the last one ends
    counts: list[list[int]]  # rows in each bin, first of class 0, then of class 1; a norm of zero is in the first bin


def norms_by_class(gradient: Tensor, labels: Tensor, *, bins: int = BINS) -> Norms | None:
    """Norms of a batch's rows by class, but for those that are not finite; None where the rest are all zero."""
    norms = gradient.flatten(1).double().norm(dim=1).cpu()
    finite = norms.isfinite()
    norms, classes = norms[finite], labels.cpu().bool()[finite]
    seen = norms[norms > 0]
    if not len(seen):
        return None
    low, high = float(seen.min()), float(seen.max())
    if low == high:  # a bin has a width even where all are alike
        low, high = low * 0.5, high * 2.0
    edges = torch.linspace(math.log(low), math.log(high), bins + 1, dtype=torch.float64)
    places = torch.bucketize(norms.clamp(min=low).log(), edges[1:-1], right=True)
    counts = [torch.bincount(places[classes == one], minlength=bins).tolist() for one in (False, True)]
    return Norms(low=low, high=high, counts=counts)
