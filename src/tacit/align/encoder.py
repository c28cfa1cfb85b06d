"""Columns of a table to tensors, with everything fitted on the training rows alone.

>>> table = pl.DataFrame({"carrier": ["AA", None, "UA", "ZZ"], "seats": [10.0, 30.0, None, 50.0]})
>>> encoder = Encoder.fit(table, Columns(("carrier",), ("seats",)), np.array([0, 1, 2]))
>>> inputs = encoder.encode(table)
>>> inputs.categorical.tolist(), inputs.numeric.tolist(), inputs.cardinalities
([[1], [0], [2], [0]], [[-1.0], [1.0], [0.0], [3.0]], (3,))
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align._columns import (
    Columns,
    Moments,
    Vocabulary,
    days_of,
    decimal_comma,
    hours_of,
    natural_ranks,
    numbers,
    require,
    row_named,
    spelled,
    to_float,
    with_dates,
)  # fmt: skip

__all__ = [
    "Columns", "Encoder", "Inputs", "days_of", "decimal_comma", "hours_of", "numbers", "require", "row_named",
    "spelled", "to_float", "with_dates",
]  # fmt: skip

_LONGEST = 60  # characters of a category that are shown
_FEW = 16  # rows of which each is looked up by itself: a service encodes one, and an expression costs more than that


@dataclass(frozen=True)
class Inputs:
    """Inputs of one party, ready for `module(inputs.categorical, inputs.numeric)`."""

    # codes, each below the cardinality of its column; 0 is a missing value or one that no training row has. (rows,
    # number of cardinalities) int64
    categorical: Tensor
    # numbers with mean 0 and variance 1 over the training rows that have them; a missing one is 0. (rows, columns)
    # float32
    numeric: Tensor
    cardinalities: tuple[int, ...]  # for each categorical column the number of its codes, 0 included
    names: tuple[str, ...] = ()  # of the columns, categorical ones first; none where nobody named them
    # for each categorical column the values that its last codes stand for, in their order; none where nobody named them
    values: tuple[pl.Series, ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.categorical)

    def __getitem__(self, rows: Tensor | slice) -> Inputs:
        """Take some of the rows, for a batch."""
        return replace(self, categorical=self.categorical[rows], numeric=self.numeric[rows])

    def category(self, column: int, code: int) -> str | None:
        """The table's name of a code of a categorical column; None where nobody named it."""
        if column >= len(self.values):
            return None
        place = code - (self.cardinalities[column] - len(self.values[column]))
        return "missing, or unknown" if place < 0 else repr(str(self.values[column][place])[:_LONGEST])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Arguments of the party's module: the codes, and the numbers."""
        return self.categorical, self.numeric


@dataclass(frozen=True)
class Encoder:
    """Coding learnt from the training rows: it encodes any row alike, now and when the model serves."""

    columns: Columns  # which it uses
    vocabularies: tuple[pl.Series, ...]  # for each categorical column its known values, sorted; those of dates last
    # for each categorical column the ranks of its values, of which codes are made, counted from 0
    ranks: tuple[NDArray[np.int32], ...]
    # mean and standard deviation of each numeric column, then of each flagged one
    statistics: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, table: pl.DataFrame, columns: Columns, train: NDArray[np.integer[Any]]) -> Self:
        """Vocabularies and statistics of the training rows, by their numbers."""
        require(table, columns.names)
        return cls.fit_batches([(table.select(columns.names)[train], train)], columns)

    @classmethod
    def fit_batches(cls, batches: Iterable[tuple[pl.DataFrame, NDArray[np.integer[Any]]]], columns: Columns) -> Self:
        """Learn from training rows that come in batches with their numbers, so that they need not all be in memory.

        However rows are ordered and cut into batches, they give the same bits. Memory grows with the different values
        of the categories.
        """
        parts = columns.parts
        vocabularies = [Vocabulary(name) for name in parts.categorical]
        moments = [Moments(name) for name in (*parts.numeric, *parts.flagged)]
        for read, rows in batches:
            require(read, columns.names)
            table = with_dates(read, columns, rows)
            for vocabulary in vocabularies:
                vocabulary.add(table[vocabulary.name])
            for moment, values in zip(moments, numbers(table, parts, rows), strict=True):
                moment.add(values)
        # One after the other, and the values of each go before the next: both of all columns may be gigabytes.
        learnt = [vocabularies.pop(0).learnt() for _ in parts.categorical]
        known, ranks = tuple(known for known, _ in learnt), tuple(rank for _, rank in learnt)
        return cls(columns, known, ranks, tuple(moment.learnt() for moment in moments))

    def encode(self, table: pl.DataFrame, rows: NDArray[np.integer[Any]] | None = None) -> Inputs:
        """Encode a table; what no training row had becomes code 0, and a missing number the mean.

        `rows` are their numbers in the party's file, so that an error can name them; None counts from 0.
        """
        require(table, self.columns.names)
        table, parts = with_dates(table, self.columns, rows), self.columns.parts
        named = zip(parts.categorical, self.vocabularies, self.ranks, strict=True)
        measured = _stack(numbers(table, parts, rows), len(table), "float64")
        codes = [_codes(table[name], known, ranks) for name, known, ranks in named]
        mean, deviation = np.array(self.statistics, np.float64).reshape(measured.shape[1], 2).T
        scaled = np.nan_to_num((measured - mean) / deviation, nan=0.0)
        return Inputs(
            categorical=torch.from_numpy(_stack(codes, len(table), "int64")),
            numeric=torch.from_numpy(scaled.astype(np.float32)),
            cardinalities=self.cardinalities,
            names=self.columns.inputs,
            values=self.values,
        )

    @cached_property
    def values(self) -> tuple[pl.Series, ...]:
        """For each categorical column its known values, in the order of their codes."""
        return tuple(known.gather(rank.argsort()) for known, rank in zip(self.vocabularies, self.ranks, strict=True))

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """For each categorical column the number of its codes, those of unknown and missing values included."""
        return tuple(len(known) + 1 for known in self.vocabularies)

    def to_state(self) -> dict[str, Any]:
        """A form that JSON can hold without loss."""
        return {
            "columns": {key: list(names) for key, names in asdict(self.columns).items()},
            "vocabularies": [known.to_list() for known in self.vocabularies],
            "statistics": [list(moments) for moments in self.statistics],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Encoder from what `to_state` gave."""
        columns = Columns(**{key: tuple(names) for key, names in state["columns"].items()})
        named = zip(columns.parts.categorical, state["vocabularies"], strict=True)
        vocabularies = tuple(pl.Series(name, values, dtype=pl.String) for name, values in named)
        ranks = tuple(natural_ranks(known) for known in vocabularies)
        return cls(columns, vocabularies, ranks, tuple((mean, spread) for mean, spread in state["statistics"]))


def _codes(column: pl.Series, known: pl.Series, ranks: NDArray[np.int32]) -> NDArray[np.int64]:
    """Codes of the known values, from 1 on; 0 for all others."""
    values = spelled(column)
    if len(values) <= _FEW:
        return np.array([0 if value is None else _code(value, known, ranks) for value in values.to_list()], np.int64)
    different = values.unique().drop_nulls().sort()  # sorted, so that neighbours are found near each other
    codes = np.zeros(len(different), np.int64)
    if len(known) and len(different):
        places = np.minimum(known.search_sorted(different).to_numpy(), len(known) - 1)
        there = (known.gather(places) == different).to_numpy()
        codes = np.where(there, ranks[places] + 1, 0)
    vocabulary = pl.DataFrame({"value": different, "code": codes})
    found = values.to_frame("value").join(vocabulary, on="value", how="left", maintain_order="left")["code"]
    return found.fill_null(0).to_numpy()


def _code(value: str, known: pl.Series, ranks: NDArray[np.int32]) -> int:
    """The code of one value."""
    place = bisect.bisect_left(known, value)
    if place == len(known) or known[place] != value:
        return 0
    return int(ranks[place]) + 1


def _stack(columns: Sequence[NDArray[np.generic]], rows: int, dtype: str) -> NDArray[Any]:
    """Columns side by side, row by row; no columns give a width of 0."""
    table = np.empty((rows, len(columns)), dtype=dtype)
    for place, column in enumerate(columns):
        table[:, place] = column
    return table
