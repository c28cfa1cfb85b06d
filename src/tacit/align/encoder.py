"""Columns of a table to tensors, with everything fitted on the training rows alone.

>>> table = pl.DataFrame({"carrier": ["AA", None, "UA", "ZZ"], "seats": [10.0, 30.0, None, 50.0]})
>>> encoder = Encoder.fit(table, Columns(("carrier",), ("seats",)), np.array([0, 1, 2]))
>>> inputs = encoder.encode(table)
>>> inputs.categorical.tolist(), inputs.numeric.tolist(), inputs.cardinalities
([[1], [0], [2], [0]], [[-1.0], [1.0], [0.0], [3.0]], (3,))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import DataError, UsageError

__all__ = ["Columns", "Encoder", "Inputs", "require", "to_float"]

Rows = NDArray[np.bool_] | NDArray[np.integer[Any]] | Tensor
"""Which rows: a mask, or row numbers."""

# Values are compared as one of these four kinds, so that a table reads alike whatever width its integers are stored in.
_KINDS: dict[str, type[pl.DataType]] = {
    "integer": pl.Int64,
    "boolean": pl.Boolean,
    "float": pl.Float64,
    "string": pl.String,
}


@dataclass(frozen=True)
class Inputs:
    """One party's inputs, ready for `module(inputs.categorical, inputs.numeric)`.

    Attributes:
        categorical: codes, each below the cardinality of its column; 0 is a missing value or one that no training
            row has.  (rows, number of cardinalities) int64
        numeric: numbers with mean 0 and variance 1 over the training rows that have them; a missing one is 0.
            (rows, columns) float32
        cardinalities: for each categorical column the number of its codes, 0 included.
    """

    categorical: Tensor
    numeric: Tensor
    cardinalities: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.categorical)

    def __getitem__(self, rows: Tensor | slice) -> Inputs:
        """Some of the rows, for a batch."""
        return Inputs(self.categorical[rows], self.numeric[rows], self.cardinalities)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the party's module is called with: the codes, and the numbers."""
        return self.categorical, self.numeric


@dataclass(frozen=True)
class Columns:
    """Which columns of a table a party uses, and how.

    Attributes:
        categorical: columns that become codes.
        numeric: columns that are standardised.
        flagged: numeric columns whose absence is common enough to be a column of its own (1 where missing,
            then standardised like any other).
    """

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.categorical, *self.numeric, *self.flagged)))


@dataclass(frozen=True)
class Encoder:
    """What was learnt from the training rows: it encodes any row alike, now and when the model serves.

    Attributes:
        columns: which it uses.
        vocabularies: for each categorical column its known values, sorted; the first one gets the code 1.
        statistics: for each numeric column, then for each flagged one, mean and standard deviation.
    """

    columns: Columns
    vocabularies: tuple[pl.Series, ...]
    statistics: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, table: pl.DataFrame, columns: Columns, train: Rows) -> Self:
        """Vocabularies and statistics of the training rows.

        Args:
            table: all rows, in the common order.
            columns: which to use.
            train: the training rows, as a mask or as row numbers.
        """
        require(table, columns.names)
        chosen = _row_numbers(train, len(table))
        return cls.fit_batches([(pl.DataFrame([table[name][chosen] for name in columns.names]), chosen)], columns)

    @classmethod
    def fit_batches(cls, batches: Iterable[tuple[pl.DataFrame, NDArray[np.integer[Any]]]], columns: Columns) -> Self:
        """The same from training rows that come in batches, so that they need not all be in memory.

        Vocabularies are those of all rows at once. Means and deviations may differ from them in the last digits, where
        the batches end differently; the same batches always give the same bits.

        Args:
            batches: training rows, and for each row its number, by which an error can name it.
            columns: which to use.
        """
        vocabularies = [_Vocabulary(name) for name in columns.categorical]
        moments = [_Moments(name) for name in (*columns.numeric, *columns.flagged)]
        for table, rows in batches:
            require(table, columns.names)
            for vocabulary in vocabularies:
                vocabulary.add(table[vocabulary.name])
            for moment, values in zip(moments, _numbers(table, columns, rows), strict=True):
                moment.add(values)
        return cls(columns, tuple(each.values() for each in vocabularies), tuple(each.values() for each in moments))

    def encode(self, table: pl.DataFrame, rows: NDArray[np.integer[Any]] | None = None) -> Inputs:
        """All rows of a table; what no training row had becomes code 0, and a missing number the mean.

        Args:
            table: any rows, each encoded on its own.
            rows: their numbers in the party's file, so that an error can name them; None counts from 0.
        """
        require(table, self.columns.names)
        named = zip(self.columns.categorical, self.vocabularies, strict=True)
        numbers = zip(_numbers(table, self.columns, rows), self.statistics, strict=True)
        return Inputs(
            categorical=_stack([_codes(table[name], known) for name, known in named], len(table), np.int64),
            numeric=_stack([_standardise(values, *moments) for values, moments in numbers], len(table), np.float32),
            cardinalities=self.cardinalities,
        )

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """For each categorical column the number of its codes, 0 included."""
        return tuple(len(known) + 1 for known in self.vocabularies)

    def to_state(self) -> dict[str, Any]:
        """A form that JSON can hold without loss."""
        return {
            "columns": {key: list(names) for key, names in asdict(self.columns).items()},
            "vocabularies": [{"kind": _kind(known), "values": known.to_list()} for known in self.vocabularies],
            "statistics": [list(moments) for moments in self.statistics],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """What `to_state` gave, an encoder again."""
        columns = Columns(**{key: tuple(names) for key, names in state["columns"].items()})
        vocabularies = [
            pl.Series(name, saved["values"], dtype=_KINDS[saved["kind"]])
            for name, saved in zip(columns.categorical, state["vocabularies"], strict=True)
        ]
        return cls(columns, tuple(vocabularies), tuple((mean, spread) for mean, spread in state["statistics"]))


# --- columns ---------------------------------------------------------------------------------------------------------


def require(table: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse a table that lacks one of these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise DataError(
            f"the table has no column {', '.join(map(repr, missing))}; it has: {', '.join(table.columns)}: correct the "
            "names, or make the column"
        )


def _row_numbers(rows: Rows, count: int) -> NDArray[np.intp]:
    """Row numbers from a mask or from row numbers."""
    found = rows.numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    if found.dtype == np.bool_ and len(found) != count:
        raise UsageError(f"the mask of training rows has {len(found)} entries for {count} rows: pass one for each row")
    return np.flatnonzero(found) if found.dtype == np.bool_ else found.astype(np.intp)


def _kind(column: pl.Series) -> str:
    """As what its values are compared; dates and all others by their spelling."""
    if column.dtype == pl.Boolean:
        return "boolean"
    if column.dtype.is_float():
        return "float"
    wide = (pl.UInt64, pl.Int128, pl.UInt128)  # may not fit
    return "integer" if column.dtype.is_integer() and column.dtype not in wide else "string"


def _values(column: pl.Series) -> pl.Series:
    """A categorical column as one of the four kinds; a NaN is a missing value."""
    try:
        values = column.cast(_KINDS[_kind(column)])
    except pl.exceptions.PolarsError as error:
        raise DataError(f"the column {column.name!r} of {column.dtype} can't be used as categories: {error}") from None
    return values.fill_nan(None) if values.dtype == pl.Float64 else values


def _codes(column: pl.Series, known: pl.Series) -> NDArray[np.int64]:
    """Codes from 1 on in the order of the known values, 0 for all others."""
    values = _values(column)
    if values.dtype != known.dtype:
        if column.null_count() < len(column) and len(known):
            raise DataError(
                f"the column {column.name!r} holds values of the kind {_kind(column)}, not "
                f"{_kind(known)} as in training: convert it to that"
            )
        return np.zeros(len(column), dtype=np.int64)
    vocabulary = pl.DataFrame({"value": known, "code": np.arange(1, len(known) + 1)})
    codes = values.to_frame("value").join(vocabulary, on="value", how="left", maintain_order="left")["code"]
    return codes.fill_null(0).to_numpy()


def _numbers(table: pl.DataFrame, columns: Columns, rows: NDArray[np.integer[Any]] | None) -> list[NDArray[np.float64]]:
    """The numeric columns, NaN where a value is missing, and a column of 0 and 1 for each flagged one."""
    values = {name: _as_float(table[name], rows) for name in (*columns.numeric, *columns.flagged)}
    flags = [np.isnan(values[name]).astype(np.float64) for name in columns.flagged]
    return [*(values[name] for name in columns.numeric), *flags]


def to_float(column: pl.Series) -> pl.Series:
    """Numbers, null where there is none; text, as CSV files have it, may also say true and false."""
    values = column.cast(pl.Float64, strict=False)
    if column.dtype == pl.String and values.null_count() > column.null_count():
        words = column.str.strip_chars().str.to_lowercase().replace({"true": "1", "false": "0"})
        values = values.fill_null(words.cast(pl.Float64, strict=False))
    return values


def _as_float(column: pl.Series, rows: NDArray[np.integer[Any]] | None) -> NDArray[np.float64]:
    remedy = "correct it, leave missing values empty, or list the column under categorical"
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String, pl.Null)):
        raise DataError(f"the column {column.name!r} holds {column.dtype}, no numbers: {remedy}")
    values = to_float(column)
    wrong = (values.is_null() & column.is_not_null()) | values.is_infinite().fill_null(False)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        number = row if rows is None else int(rows[row])
        raise DataError(
            f"the column {column.name!r} holds {column[row]!r} in row {number} (counted from 0), which is no finite "
            f"number: {remedy}"
        )
    return values.fill_null(np.nan).to_numpy()


def _standardise(values: NDArray[np.float64], mean: float, spread: float) -> NDArray[np.float64]:
    return np.nan_to_num((values - mean) / spread, nan=0.0)


def _stack(columns: Sequence[NDArray[np.generic]], rows: int, dtype: type[np.generic]) -> Tensor:
    """Columns side by side as one row-major tensor; no columns give a tensor of width 0."""
    table = np.empty((rows, len(columns)), dtype=dtype)
    for place, column in enumerate(columns):
        table[:, place] = column
    return torch.from_numpy(table)


# --- fitting ---------------------------------------------------------------------------------------------------------


@dataclass
class _Vocabulary:
    """The different values of one column, as far as its rows have come."""

    name: str
    known: pl.Series | None = None

    def add(self, column: pl.Series) -> None:
        found = _values(column).drop_nulls().unique()
        if self.known is None or not len(self.known):
            self.known = found
        elif len(found) and found.dtype != self.known.dtype:
            raise DataError(
                f"the column {self.name!r} holds values of the kind {_kind(found)} after such of the kind "
                f"{_kind(self.known)}: convert it to one of them"
            )
        elif len(found):
            self.known = pl.concat([self.known, found]).unique()

    def values(self) -> pl.Series:
        """All of them, sorted."""
        return pl.Series(self.name, [], dtype=pl.String) if self.known is None else self.known.sort()


@dataclass
class _Moments:
    """Mean and variance of one column of numbers, as far as its rows have come."""

    name: str
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: NDArray[np.float64]) -> None:
        seen = values[~np.isnan(values)]
        if not len(seen):
            return
        self.low, self.high = min(self.low, float(seen.min())), max(self.high, float(seen.max()))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = float(seen.mean()), float(seen.var())
        if not self.count:  # to the last bit what all rows at once give, where they come at once
            self.count, self.mean, self.variance = len(seen), mean, variance
            return
        self.count += len(seen)
        share, gap = len(seen) / self.count, mean - self.mean
        self.variance += share * (variance - self.variance) + share * (1 - share) * gap * gap
        self.mean += share * gap

    def values(self) -> tuple[float, float]:
        """Mean and standard deviation; a column without spread keeps its unit."""
        if not self.count:
            return 0.0, 1.0
        if self.low == self.high:  # the rounding of a sum must not pass for a spread
            return self.low, 1.0
        if not math.isfinite(self.mean) or not math.isfinite(self.variance):
            raise DataError(
                f"the numbers of the column {self.name!r} are too large to be standardised: scale them down"
            )
        return self.mean, math.sqrt(self.variance) or 1.0
