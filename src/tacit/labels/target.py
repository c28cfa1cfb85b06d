"""What is learnt: labels as a table has them, checked at home before anything leaves, and how well they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.encoder import row_named
from tacit.align.tables import PLAIN, Spelling
from tacit.audit.metrics.leak_auc import auc
from tacit.config import Exchange
from tacit.errors import LabelsError

_RARE = 0.5  # a rare class has no larger share


@dataclass(frozen=True)
class Target:
    """The labels of all aligned rows."""

    kind: Literal["classes", "number"]  # "classes" or "number"
    classes: int  # how many there are; 0 for numbers
    values: NDArray[np.int64] | NDArray[np.float64]  # class numbers as int64, or numbers as float64. (rows,)
    known: NDArray[np.bool_]  # where there is a label. (rows,)
    definition: str  # what they mean, in words that never change

    def __len__(self) -> int:
        return len(self.values)


def read_target(
    column: pl.Series,
    exchange: Exchange,
    rows: NDArray[np.int64] | None = None,
    spelling: Spelling = PLAIN,
) -> Target:
    """The labels of a column, or an error that names the first row that is wrong.

    How they are distributed is no matter here: these may be the aligned rows, which a partner has chosen.
    """
    values = label_values(column, exchange, rows, spelling)
    known = ~np.isnan(values)
    if exchange.target == "number":
        definition = f"number from {exchange.low!r} to {exchange.high!r} in {exchange.cells} cells"
        return Target("number", 0, values, known, definition)
    classes = np.where(known, values, -1).astype(np.int64)
    return Target("classes", exchange.classes, classes, known, f"{exchange.classes} classes{spelling.definition}")


def label_values(
    column: pl.Series,
    exchange: Exchange,
    rows: NDArray[np.int64] | None = None,
    spelling: Spelling = PLAIN,
) -> NDArray[np.float64]:
    """The values of a column of labels, NaN where there is none; an error names the first row with one that can't be.

    `rows` are their numbers in the party's file.
    """
    values, wrong = spelling.read(column)
    if exchange.target == "classes":
        inside = (values >= 0) & (values < exchange.classes) & (values == np.floor(values))
        wrong |= ~np.isnan(values) & ~inside
    else:
        wrong |= np.isinf(values)
    if wrong.any():
        first = int(wrong.argmax())
        wanted = f"a class from 0 to {exchange.classes - 1}" if exchange.target == "classes" else "a finite number"
        raise LabelsError(
            f"{row_named(first, rows)} has the label {column[first]!r} in the column {column.name!r} (and "
            f"{int(wrong.sum()) - 1} others): the contract says {wanted}; {spelling.remedy(column, first)}"
        )
    return values


@dataclass
class Labels:
    """What is known of a whole table's labels, block by block: whether anything can be learnt of them."""

    column: str
    exchange: Exchange
    spelling: Spelling = PLAIN
    counts: dict[float, int] = field(default_factory=dict)  # of each class; of numbers under 0

    def add(self, column: pl.Series, rows: NDArray[np.int64] | None = None) -> None:
        """The next rows; an error names the first one that is wrong."""
        values = label_values(column, self.exchange, rows, self.spelling)
        known = ~np.isnan(values)
        if self.exchange.target == "number":
            self.counts[0.0] = self.counts.get(0.0, 0) + int(known.sum())
            return
        for value, count in zip(*np.unique(values[known], return_counts=True), strict=True):
            self.counts[float(value)] = self.counts.get(float(value), 0) + int(count)

    def check(self) -> None:
        """Refuse a table of which nothing can be learnt, or that contradicts the contract."""
        total, exchange = sum(self.counts.values()), self.exchange
        if not total:
            raise LabelsError(f"no row has a label in the column {self.column!r}: name another")
        if exchange.target == "number":
            return
        if len(self.counts) == 1:
            raise LabelsError(
                f"all labels are {next(iter(self.counts)):g} in the column {self.column!r}: there is nothing to learn; "
                "name another column"
            )
        share = self.counts.get(1.0 if exchange.rare == "positive" else 0.0, 0) / total
        if exchange.rare != "neither" and share > _RARE:  # a public word that the labels contradict
            raise LabelsError(
                f'the contract says rare = "{exchange.rare}", and {share:.1%} of the labels in {self.column!r} are of '
                "that class: agree on the other one, or on neither"
            )


def figures(target: Target, rows: slice, scores: NDArray[np.float64]) -> dict[str, float]:
    """How well scores tell the labels of some rows: AUC of two classes, and what more classes and numbers have.

    A figure that these labels leave undefined is not among them.
    """
    known = target.known[rows]
    truth, score = target.values[rows][known], scores[known]
    if not len(truth):
        return {}
    if target.kind == "number":
        error = float(np.mean((truth - score) ** 2))
        spread = float(truth.var())
        return {"test_r2": 1 - error / spread if spread else 0.0, "test_rmse": error**0.5}
    each = [_auc(score[:, k] if score.ndim == 2 else score, truth == k) for k in _told_apart(target.classes)]
    defined = [value for value in each if value is not None]
    found = {"test_auc": float(np.mean(defined))} if len(defined) == len(each) else {}
    if target.classes > 2:
        found["test_accuracy"] = float((score.argmax(1) == truth).mean())
    return found


def _told_apart(classes: int) -> Sequence[int]:
    """The classes that are told from all others: of two the second one, which says it all."""
    return [1] if classes == 2 else range(classes)


def _auc(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float | None:
    """None where there is one class alone."""
    if positive.all() or not positive.any():
        return None
    return float(auc(torch.from_numpy(np.ascontiguousarray(score, np.float64)), torch.from_numpy(positive).long()))
