"""What is learnt: labels as a table has them, checked at home before anything leaves, and how well they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.encoder import to_float
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


def read_target(column: pl.Series, exchange: Exchange, *, train: int, rows: NDArray[np.int64] | None = None) -> Target:
    """The labels of a column, or an error that names the first row that is wrong."""
    values = to_float(column).fill_null(np.nan).to_numpy()
    number = np.arange(len(values)) if rows is None else rows
    known = ~np.isnan(values)
    odd = np.flatnonzero(~known & column.is_not_null().to_numpy())
    if exchange.target == "classes":
        inside = (values >= 0) & (values < exchange.classes) & (values == np.floor(values))
        odd = np.union1d(odd, np.flatnonzero(known & ~inside))
    else:
        odd = np.union1d(odd, np.flatnonzero(np.isinf(values)))
    if len(odd):
        first = int(odd[0])
        wanted = f"a class from 0 to {exchange.classes - 1}" if exchange.target == "classes" else "a finite number"
        raise LabelsError(
            f"row {number[first]} has the label {column[first]!r} in the column {column.name!r} (and {len(odd) - 1} "
            f"others): the contract says {wanted}; correct them, or leave them empty"
        )
    if not known[:train].any():
        raise LabelsError(f"none of the {train} training rows has a label in the column {column.name!r}: name another")
    if exchange.target == "number":
        definition = f"number from {exchange.low!r} to {exchange.high!r} in {exchange.cells} cells"
        return Target("number", 0, values, known, definition)
    kinds = np.unique(values[:train][known[:train]])
    if len(kinds) == 1:
        raise LabelsError(
            f"all labels of the {train} training rows are {kinds[0]:g} in the column {column.name!r}: there is nothing "
            "to learn; name another column, or align more rows"
        )
    share = float((values[:train][known[:train]] == (1 if exchange.rare == "positive" else 0)).mean())
    if exchange.rare != "neither" and share > _RARE:  # a public word about the rare class that the labels contradict
        raise LabelsError(
            f'the contract says rare = "{exchange.rare}", and {share:.1%} of the labels in {column.name!r} are of that '
            "class: agree on the other one, or on neither"
        )
    classes = np.where(known, values, -1).astype(np.int64)
    return Target("classes", exchange.classes, classes, known, f"{exchange.classes} classes")


def figures(target: Target, rows: slice, scores: NDArray[np.float64]) -> dict[str, float]:
    """How well scores tell the labels of some rows: AUC of two classes, and what more classes and numbers have."""
    known = target.known[rows]
    truth, score = target.values[rows][known], scores[known]
    if not len(truth):
        return {}
    if target.kind == "number":
        error = float(np.mean((truth - score) ** 2))
        spread = float(truth.var())
        return {"test_r2": 1 - error / spread if spread else 0.0, "test_rmse": error**0.5}
    if target.classes == 2:
        return {"test_auc": _auc(score, truth == 1)}
    each = [_auc(score[:, k], truth == k) for k in range(target.classes)]
    return {"test_auc": float(np.mean(each)), "test_accuracy": float((score.argmax(1) == truth).mean())}


def _auc(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    if positive.all() or not positive.any():
        return 0.5
    return float(auc(torch.from_numpy(np.ascontiguousarray(score, np.float64)), torch.from_numpy(positive).long()))
