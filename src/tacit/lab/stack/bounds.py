"""Replicas that run away: their numbers are taken out of the common work before they end it for all others."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.protect.gradient import fused

LIMIT = 1e15
"""What is larger at the cut has run away: its squares, and noise for it, soon fit no float32."""


def finite_or_zero(x: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros for replicas that are not alive, or whose numbers are not finite or beyond `LIMIT`; and who is left.

    >>> kept, alive = finite_or_zero(torch.tensor([[1.0, 2.0], [3.0, torch.inf]]), torch.tensor([True, True]))
    >>> kept.tolist(), alive.tolist()
    ([[1.0, 2.0], [0.0, 0.0]], [True, False])
    """
    if not x.is_cuda and bool((alive & _bounded(x)).all()):  # nothing waits for a device; a CPU is spared the copy
        return x, alive
    return _masked(x, alive)


@fused
def _masked(x: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    left = alive & _bounded(x)
    return torch.where(left.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0), left


def _bounded(x: Tensor) -> Tensor:
    """Whether all of a replica's numbers are within bounds, which NaN is not.  (replicas,)"""
    each = tuple(range(1, x.ndim))
    return torch.maximum(x.amax(each), -x.amin(each)) < LIMIT
