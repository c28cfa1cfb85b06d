"""Randomized response (Warner 1965): labels that are flipped once, for good, with a corrected loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from tacit.contracts import Event, Noise, noise_source
from tacit.errors import LabelsError, UsageError
from tacit.split.protect.facts import Facts, Option

FACTS = Facts(strengths=(Option("rate", below=0.5, sweep=(0.02, 0.45)),))


@dataclass(frozen=True)
class RandomizedLabels:
    """Labels after randomized response."""

    labels: Tensor  # flipped labels, 0 or 1, in the dtype of the input. Gradient protections take these
    targets: Tensor  # what the cross entropy is computed with, in float: unbiased for the true label
    event: Event  # what was done
    epsilon: float  # the local differential privacy of one label, for all of training, because it is flipped only once


@dataclass(frozen=True)
class RandomizedResponse:
    """See `randomized_response`."""

    rate: float

    def __call__(self, labels: Tensor, noise: Noise) -> RandomizedLabels:
        """Flip the labels of a whole data set; to be called once, at load."""
        if labels.ndim != 1 or not bool(((labels == 0) | (labels == 1)).all()):
            raise LabelsError("randomized_response takes one label for each example, 0 or 1, in a tensor of one axis")
        draws = noise_source(noise).uniform(labels.shape, dtype=labels.float().dtype, device=labels.device)
        truth = labels != 0
        flipped = truth ^ (draws < self.rate)
        targets = (flipped.to(draws.dtype) - self.rate) / (1 - 2 * self.rate)
        epsilon = math.log((1 - self.rate) / self.rate)
        event = Event("randomized_response", {"rate": self.rate})
        return RandomizedLabels(flipped.to(labels.dtype), targets, event, epsilon)


def randomized_response(rate: float) -> RandomizedResponse:
    """Flip each label with probability `rate`, once and for good, and correct the loss so that training stays unbiased.

    The cross entropy is linear in its target y, so computing it with (flipped - rate) / (1 - 2 rate) gives, on average
    over the flips, the loss of the true label (Natarajan and others, "Learning with noisy labels", 2013).

    >>> import torch
    >>> answer = randomized_response(0.25)(torch.tensor([0.0, 1.0]), torch.Generator().manual_seed(0))
    >>> sorted(set(answer.targets.tolist())) and round(answer.epsilon, 3)
    1.099
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 0.5:
        raise UsageError(f"rate = {rate!r} is out of range: labels are flipped with a probability between 0 and 0.5")
    return RandomizedResponse(float(rate))
