"""Work on labels while a partner waits for its next answer: it takes as long whatever the labels are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

_TIMES = 2.5  # of a rehearsal: itself, the work, and half of one that the work may take longer


def evenly(rehearse: Callable[[], object], work: Callable[[], T]) -> T:
    """Do some work, and return at a time that a rehearsal has set: the same work on other labels, in the same moment.

    Attacks take longer on some labels than on others, and end early where a class is missing; a partner who has picked
    the rows could read that off the time of its next answer. Where the work takes longer still, the time is the next
    of those that lie half a rehearsal apart.
    """
    begun = time.perf_counter()
    rehearse()
    rehearsed = time.perf_counter() - begun
    until = begun + _TIMES * rehearsed
    try:
        return work()
    finally:
        while (left := until - time.perf_counter()) < 0:
            until += rehearsed / 2
        time.sleep(left)


def alternating(labels: Tensor) -> Tensor:
    """Labels in the place of these, every second one 1: what a rehearsal is done with."""
    return (torch.arange(len(labels), device=labels.device) % 2).to(labels.dtype)
