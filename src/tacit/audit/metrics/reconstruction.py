"""Reconstruction error: how far an attacker's belief about inputs lies from them, in the data's own units.

Examples are independent, visits of one example are not: an example's visits enter the interval as one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.audit.metrics import _checks
from tacit.contracts import Estimate, Reconstruction
from tacit.errors import TensorError


def reconstruction(guess: Reconstruction, truth: Tensor) -> Estimate:
    """Mean over rows of the squared distance between belief and input, with a 95% interval.

    Args:
        guess: what an attack returned; rows that do not count are left out.
        truth: the input of each row id.  (number of ids, *input)

    >>> rows = torch.arange(3)
    >>> guess = Reconstruction(rows, torch.zeros(3, 2), torch.ones(3, dtype=torch.bool))
    >>> reconstruction(guess, torch.ones(3, 2)).value
    2.0
    """
    ids, miss = _misses(guess, truth)
    return _ratio(ids, miss, torch.ones_like(miss), "there are no rows to judge")


def relative_error(guess: Reconstruction, truth: Tensor, mean: Tensor) -> Estimate:
    """The error over that of answering the mean for every row: 1 where nothing was learnt, 0 where all was read.

    The ratio of the two sums, with an interval by the delta method. It is above 1 for an attacker that is worse off
    than one who answers the mean.

    Args:
        guess: what an attack returned; rows that do not count are left out.
        truth: the input of each row id.  (number of ids, *input)
        mean: what somebody answers who never saw an embedding: the mean of the rows that were granted.  (*input)

    >>> rows = torch.arange(3)
    >>> guess = Reconstruction(rows, torch.tensor([[1.0], [2.0], [3.0]]), torch.ones(3, dtype=torch.bool))
    >>> relative_error(guess, torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([2.0])).value
    0.25
    """
    if mean.shape != truth.shape[1:]:
        raise TensorError(f"the mean is {tuple(mean.shape)}, but an input is {tuple(truth.shape[1:])}")
    ids, miss = _misses(guess, truth)
    blind = Reconstruction(guess.rows, mean.to(guess.value.device).expand(guess.value.shape), guess.counted)
    _, base = _misses(blind, truth)
    return _ratio(ids, miss, base, "every row that is judged equals the mean: inputs that do not vary hide nothing")


def _misses(guess: Reconstruction, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and squared distances of the rows that count, in float64.  (counted rows,) each"""
    rows = _checks.counted(guess, truth)
    if guess.value.shape[1:] != truth.shape[1:]:
        raise TensorError(
            f"the attacker's inputs are {tuple(guess.value.shape[1:])}, but the truth's are {tuple(truth.shape[1:])}"
        )
    ids = guess.rows[rows]
    gap = guess.value[rows].double() - truth.to(guess.value.device)[ids].double()
    miss = gap.flatten(1).square().sum(1)
    if not bool(torch.isfinite(miss).all()):
        raise TensorError("some beliefs or inputs are not finite: look for overflow in what produced them")
    return ids, miss


def _ratio(ids: Tensor, above: Tensor, below: Tensor, empty: str) -> Estimate:
    """Sum over sum, with an interval in which each example is one draw; without end where there is a single one."""
    total = float(below.sum())
    if not total > 0:
        raise TensorError(empty)
    ratio = float(above.sum()) / total
    spread, examples = _checks.variance_of_sum(ids, above - ratio * below)
    if examples < 2:
        return Estimate(ratio, 0.0, math.inf)
    half = _checks.Z95 * spread**0.5 / total
    return Estimate(ratio, max(0.0, ratio - half), ratio + half)
