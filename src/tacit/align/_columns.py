"""Columns of a table: which are used and how, their values as they are compared, and what is learnt of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import DataError

_PENDING = 1 << 20  # different values that wait to be counted together, at least
_ALL = 1 << 16  # values whose parts are added up at once: sums of so many are exact in floats

Scaling = Literal["range", "standard"]
"""How numbers are scaled: to [0, 1] with 0 for a missing one, as in the papers, or to mean 0 and variance 1."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a table a party uses, and how."""

    categorical: tuple[str, ...] = ()  # columns that become codes
    numeric: tuple[str, ...] = ()  # columns that are standardised
    # numeric columns whose absence is common enough to be a column of its own (1 where missing, then standardised like
    # any other)
    flagged: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.categorical, *self.numeric, *self.flagged)))


@dataclass(frozen=True)
class Coding:
    """How values become codes and numbers."""

    # codes fall with the frequency in the training rows, so that rows of an embedding table that are used together lie
    # together, and a missing value has a code of its own, 1, before all others. Else codes are in the order of the
    # values, and a missing one shares the code 0 with unknown ones
    by_frequency: bool = False
    min_count: int = 1  # a value that fewer training rows have is an unknown one
    scaling: Scaling = "standard"  # of the numbers

    @property
    def missing(self) -> int:
        """The code of a missing value; the next one is that of the first known value."""
        return int(self.by_frequency)

    @property
    def dtype(self) -> str:
        """Of the codes; those of the papers' large tables take half the room."""
        return "int32" if self.by_frequency else "int64"


COMPANY = Coding()
"""How companies encode; the papers' tables are encoded in another way."""


def require(table: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse a table that lacks one of these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise DataError(
            f"the table has no column {', '.join(map(repr, missing))}; it has: {', '.join(table.columns)}: correct the "
            "names, or make the column"
        )


def values_of(column: pl.Series, coding: Coding) -> pl.Series:
    """A categorical column as it is compared; an empty text and a NaN are missing values.

    Companies' values are compared by their spelling, so that a table reads alike in whatever format it is stored.
    """
    if coding.by_frequency and column.dtype.is_integer():
        return column.cast(pl.Int64)
    return spelled(column)


def spelled(column: pl.Series) -> pl.Series:
    """A column as the text that a CSV file has of it."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
    try:
        text = column.dt.to_string("iso:strict") if column.dtype.is_temporal() else column.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"the column {column.name!r} of {column.dtype} can't be used as categories: {error}") from None
    return text.set(text == "", None) if column.dtype == pl.String else text


def numbers(table: pl.DataFrame, columns: Columns, rows: NDArray[np.integer[Any]] | None) -> list[NDArray[np.float64]]:
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
    # as mostly; of a single row all else would take long
    if column.dtype.is_float() or column.dtype.is_integer() or column.dtype == pl.Boolean:
        found = column.cast(pl.Float64, strict=False).to_numpy()  # NaN where there is none
        if not np.isinf(found).any():
            return found
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


# --- what is learnt, batch by batch -----------------------------------------------------------------------------------


@dataclass
class Vocabulary:
    """How often each value of one column was seen, as far as its rows have come."""

    name: str
    coding: Coding
    dtype: pl.DataType = field(default_factory=pl.String)
    counts: list[pl.DataFrame] = field(default_factory=list)  # those counted together first, then single batches
    waiting: int = 0  # rows of the single batches

    def add(self, column: pl.Series) -> None:
        values = values_of(column, self.coding).drop_nulls()
        if not len(values):
            return
        if not self.counts:
            self.dtype = values.dtype
        if values.dtype != self.dtype:
            raise DataError(
                f"the column {self.name!r} holds {values.dtype} after {self.dtype}: convert it to one of them"
            )
        self.counts.append(values.alias("value").value_counts(name="count"))
        self.waiting += len(self.counts[-1])
        if self.waiting > max(_PENDING, len(self.counts[0])):
            self.counts, self.waiting = [self._together()], 0

    def _together(self) -> pl.DataFrame:
        nothing = pl.DataFrame(schema={"value": self.dtype, "count": pl.UInt32})
        return pl.concat([nothing, *self.counts]).group_by("value").agg(pl.col("count").sum())

    def learnt(self) -> tuple[pl.Series, NDArray[np.int32]]:
        """The values that were seen often enough, sorted, and the rank of each: by falling frequency, or its own order.

        Of equally frequent ones the smaller comes first.
        """
        kept = self._together().filter(pl.col("count") >= self.coding.min_count).sort("value")
        values = kept["value"].rechunk().alias(self.name)
        if not self.coding.by_frequency:
            return values, natural_ranks(values)
        order = np.argsort(-kept["count"].to_numpy().astype(np.int64), kind="stable")
        return values, _ranked(order)


def natural_ranks(values: pl.Series) -> NDArray[np.int32]:
    """The rank of each of these sorted spellings: that of its number where all are numbers, else its own place.

    >>> natural_ranks(pl.Series(["10", "2.5", "9"])).tolist()
    [2, 0, 1]
    """
    if values.dtype != pl.String:
        return np.arange(len(values), dtype=np.int32)
    measured = values.cast(pl.Float64, strict=False)
    if measured.is_nan().any() or measured.null_count():
        return np.arange(len(values), dtype=np.int32)
    return _ranked(np.argsort(measured.to_numpy(), kind="stable"))


def _ranked(order: NDArray[np.intp]) -> NDArray[np.int32]:
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks


@dataclass
class Moments:
    """Range, mean and variance of one column of numbers, as far as its rows have come.

    Sums are exact, so that they are the same in whatever order the rows come.
    """

    name: str
    scaling: Scaling
    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: dict[int, int] = field(default_factory=dict)  # of the values: by exponent of two a whole number
    squares: dict[int, int] = field(default_factory=dict)  # of their squares

    def add(self, values: NDArray[np.float64]) -> None:
        seen = np.nan_to_num(values, nan=0.0) if self.scaling == "range" else values[~np.isnan(values)]
        if not len(seen):
            return
        self.low, self.high = min(self.low, float(seen.min())), max(self.high, float(seen.max()))
        self.count += len(seen)
        for start in range(0, len(seen) if self.scaling == "standard" else 0, _ALL):
            self._sum(seen[start : start + _ALL])

    def _sum(self, values: NDArray[np.float64]) -> None:
        """Add whole numbers of 53 bits, cut into three parts: sums of parts and of their products stay below 2**53."""
        mantissas, exponents = np.frexp(values)
        whole = np.ldexp(mantissas, 53).astype(np.int64)
        first = int(exponents.min())
        at = exponents - first
        parts = [part.astype(np.float64) for part in (whole >> 36, (whole >> 18) & 0x3FFFF, whole & 0x3FFFF)]
        high, middle, low = parts
        of_squares = (high * high, 2 * high * middle, 2 * high * low + middle * middle, 2 * middle * low, low * low)
        for sums, terms, step in ((self.total, parts, 1), (self.squares, of_squares, 2)):
            shifts = range(18 * (len(terms) - 1), -1, -18)
            for term, shift in zip(terms, shifts, strict=True):
                by_exponent = np.bincount(at, term)
                for place in np.flatnonzero(by_exponent).tolist():
                    exponent = step * (first + place - 53) + shift
                    sums[exponent] = sums.get(exponent, 0) + int(by_exponent[place])

    def learnt(self) -> tuple[float, float]:
        """What is subtracted and what divides then; a column without spread keeps its unit, or its range is all 0."""
        if not self.count:
            return 0.0, 1.0
        if self.low == self.high:
            return self.low, math.inf if self.scaling == "range" else 1.0
        if self.scaling == "range":
            shift, spread = self.low, self.high - self.low
        else:
            mean = _added(self.total) / self.count
            shift, spread = float(mean), _root(_added(self.squares) / self.count - mean * mean)
        if not math.isfinite(shift) or not math.isfinite(spread):
            raise DataError(
                f"the numbers of the column {self.name!r} are too large to be standardised: scale them down"
            )
        return shift, spread


def _added(sums: dict[int, int]) -> Fraction:
    return sum((Fraction(value) * Fraction(2) ** exponent for exponent, value in sums.items()), Fraction(0))


def _root(square: Fraction) -> float:
    """The square root; 1 where the floats have none, infinite where it is too large for them."""
    try:
        return math.sqrt(square) or 1.0
    except OverflowError:
        return math.inf
