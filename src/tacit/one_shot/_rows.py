"""What learners and heads share: rows as one matrix, labels as targets, losses of a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Inputs
from tacit.errors import LabelsError, UsageError
from tacit.models.checks import count

__all__ = [
    "Progress", "Target", "learnable", "loss", "matrix", "sent_target", "softmax", "table_of", "true_target",
    "unordered",
]  # fmt: skip

Progress = Callable[[str, int, int], None]
"""What is going on, how much of it is done, and of how much."""


@dataclass(frozen=True)
class Target:
    """What is learnt: classes from 0 on, or numbers.

    Attributes:
        values: classes as int64, numbers as float64.  (rows,)
        classes: how many there are; None for numbers.
    """

    values: NDArray[Any]
    classes: int | None

    @property
    def outputs(self) -> int:
        """Scores a row: one for two classes and for numbers, else one for each class."""
        return 1 if self.classes is None or self.classes == 2 else self.classes

    @property
    def scaled(self) -> Target:
        """Numbers with mean 0 and variance 1, so that options mean the same for all; classes as they are."""
        if self.classes is not None:
            return self
        return Target((self.values - self.values.mean()) / (self.values.std() or 1.0), None)


def sent_target(sent: NDArray[Any], mechanism: Any) -> Target:
    """The labels as they were sent: classes as they are, cells of numbers as their unbiased values."""
    sent = np.asarray(sent)
    if sent.ndim != 1 or not len(sent):
        raise LabelsError(f"sent labels must be of shape (rows,) with at least one row, not {sent.shape}")
    if hasattr(mechanism, "value_of"):
        return Target(np.asarray(mechanism.value_of(sent), dtype=np.float64), None)
    return true_target(sent, int(mechanism.classes))


def learnable(inputs: Inputs | Tensor, sent: NDArray[Any], mechanism: Any, width: int) -> Target:
    """What a learner learns from these rows' labels; a width or a number of rows that can't be is refused."""
    count("width", width, high=64)
    if len(inputs) < len(sent):
        raise UsageError(f"{len(sent)} labels were sent for {len(inputs)} rows: pass inputs in the common order")
    return sent_target(sent, mechanism)


def table_of(inputs: Inputs | Tensor, learner: str) -> Inputs:
    """Inputs that are a table; pictures are for another learner."""
    if not isinstance(inputs, Inputs):
        raise UsageError(f"the learner {learner!r} learns from tables, not from pictures: choose 'network' for those")
    return inputs


def true_target(labels: NDArray[Any], classes: int | None) -> Target:
    """Labels as a target; classes outside of their range and numbers that are not finite are refused."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels):
        raise LabelsError(f"labels must be of shape (rows,) with at least one row, not {labels.shape}")
    if classes is None:
        numbers = labels.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise LabelsError("labels hold numbers that are not finite: leave rows without a label out")
        return Target(numbers, None)
    whole = labels.astype(np.int64)
    if (whole != labels).any() or whole.min() < 0 or whole.max() >= classes:
        raise LabelsError(f"labels run from {labels.min()} to {labels.max()}, not from 0 to {classes - 1}")
    return Target(whole, classes)


def matrix(inputs: Inputs | None, codes: NDArray[np.uint8] | None = None) -> NDArray[np.float32]:
    """Codes of categories, numbers, then ranks of an embedding side by side; one column of 0 where there is none."""
    parts: list[NDArray[Any]] = [] if inputs is None else [inputs.categorical.numpy(), inputs.numeric.numpy()]
    parts += [] if codes is None else [codes]
    rows = len(parts[0]) if parts else 0
    wide = sum(part.shape[1] for part in parts)
    table = np.zeros((rows, max(1, wide)), dtype=np.float32)
    start = 0
    for part in parts:
        table[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    return table


def unordered(inputs: Inputs | None, most: int) -> list[int]:
    """The places of categorical columns with more codes than this, which trees do not split by their order."""
    sizes: Sequence[int] = () if inputs is None else inputs.cardinalities
    return [place for place, size in enumerate(sizes) if size > most]


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (rows, outputs) as probabilities: (rows,) of the second of two classes, else (rows, classes)."""
    if scores.shape[1] == 1:
        return 1 / (1 + np.exp(-np.clip(scores[:, 0], -500, 500)))
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def loss(scores: NDArray[np.float64], target: Target) -> float:
    """Mean cross entropy of scores (rows, outputs), or mean squared error of numbers."""
    if target.classes is None:
        return float(np.mean((scores[:, 0] - target.values) ** 2))
    if target.outputs == 1:
        return float(np.mean(np.logaddexp(0.0, np.where(target.values == 1, -scores[:, 0], scores[:, 0]))))
    top = scores.max(axis=1)
    spread = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
    return float(np.mean(spread - scores[np.arange(len(scores)), target.values]))
