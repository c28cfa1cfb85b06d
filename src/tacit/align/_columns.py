"""Columns of a table: which are used and how, their values as they are compared, and what is learnt of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import DataError

_PENDING = 1 << 20  # different values that wait to be counted together, at least
WHOLE = r"^(-?[0-9]+)\.0+$"
"""A whole number with decimals."""

_ISO = r"^(\d{4}-\d\d-\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?$"
_GERMAN = r"^(\d\d?\.\d\d?\.\d{4})(?:,? \d\d?:\d\d(?::\d\d)?)?$"
_HOUR = r"^\S+[T ](\d\d?):\d\d"
_COMMA = r"^-?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+$"
_ALL = 1 << 16  # values whose parts are added up at once: sums of so many are exact in floats


@dataclass(frozen=True)
class Columns:
    """The columns of a table that a party uses, by what becomes of them."""

    categorical: tuple[str, ...] = ()  # columns that become codes
    numeric: tuple[str, ...] = ()  # columns that are standardised
    # numeric columns whose absence is common enough to be a column of its own (1 where missing, then standardised like
    # any other)
    flagged: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()  # each becomes a number of days, and the codes of its weekday and month
    times: tuple[str, ...] = ()  # dates with a time of day, whose hour becomes a code as well

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, each once."""
        return tuple(dict.fromkeys((*self.categorical, *self.numeric, *self.flagged, *self.dates, *self.times)))

    @property
    def encoded(self) -> Columns:
        """For each encoded column the column that it was made of: a date has several, and all have its name."""
        return self._with_parts(lambda name, _: name)

    @property
    def parts(self) -> Columns:
        """The columns with those that dates become, as `with_dates` adds them to a table."""
        return self._with_parts(_part)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what the columns are encoded to, each once: of a date its parts, of a flagged one two."""
        made = self._with_parts(lambda name, part: f"{name} {part}")
        numbers = (f"{name} number" if name in made.categorical else name for name in made.numeric)
        return (*made.categorical, *numbers, *(f"{name} missing" for name in made.flagged))

    def _with_parts(self, named: Callable[[str, str], str]) -> Columns:
        codes = [(name, part) for name in (*self.dates, *self.times) for part in ("weekday", "month")]
        codes += [(name, "hour") for name in self.times]
        return Columns(
            (*self.categorical, *(named(name, part) for name, part in codes)),
            (*self.numeric, *(named(name, "day") for name in (*self.dates, *self.times))),
            self.flagged,
        )


def _part(name: str, part: str) -> str:
    return f"{name}\0{part}"  # which is no column's name


def require(table: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse a table that lacks one of these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise DataError(
            f"the table has no column {', '.join(map(repr, missing))}; it has: {', '.join(table.columns)}: correct the "
            "names, or make the column"
        )


def spelled(column: pl.Series) -> pl.Series:
    """A column as the text that a CSV file has of it; an empty text and a NaN are missing values.

    So a table reads alike in whatever format it is stored; whole numbers are spelled alike, whatever type they have.
    """
    if column.dtype.is_float():
        column = column.fill_nan(None)
    try:
        text = column.dt.to_string("iso:strict") if column.dtype.is_temporal() else column.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"the column {column.name!r} of {column.dtype} can't be used as categories: {error}") from None
    if column.dtype.is_float() or column.dtype == pl.String:
        text = whole_spelled(text)
    return text.set(text == "", None) if column.dtype == pl.String else text


def whole_spelled(text: pl.Series) -> pl.Series:
    """Text in which a whole number has no decimals: a table that lacked one value once says 122163.0 for 122163.

    >>> whole_spelled(pl.Series(["122163.0", "042.00", "1.5", "A.0"])).to_list()
    ['122163', '042', '1.5', 'A.0']
    """
    return text.str.replace(WHOLE, "$1")


# --- dates -----------------------------------------------------------------------------------------------------------


def with_dates(table: pl.DataFrame, columns: Columns, rows: NDArray[np.integer[Any]] | None) -> pl.DataFrame:
    """A table with the columns that its dates become: see `Columns.parts`."""
    made = []
    for name in (*columns.dates, *columns.times):
        day, hour = _moments(table[name], rows)
        made += [
            day.to_physical().cast(pl.Float64).alias(_part(name, "day")),
            day.dt.weekday().alias(_part(name, "weekday")),
            day.dt.month().alias(_part(name, "month")),
            hour.alias(_part(name, "hour")),
        ]
    return table.with_columns(made) if made else table


def days_of(column: pl.Series) -> pl.Series:
    """The days of a column of dates or of their spellings; null where there is none, or where it is no date.

    >>> days_of(pl.Series(["2014-01-19", "19.1.2014 08:30", "2014-01-19T08:30:00+01:00", "2014-02-30"])).to_list()
    [datetime.date(2014, 1, 19), datetime.date(2014, 1, 19), datetime.date(2014, 1, 19), None]
    """
    if column.dtype in (pl.Date, pl.Datetime):
        return column.dt.date()
    text = column.cast(pl.String).str.strip_chars()
    days = text.str.extract(_ISO).str.to_date("%Y-%m-%d", strict=False)
    return days.fill_null(text.str.extract(_GERMAN).str.to_date("%d.%m.%Y", strict=False))


def hours_of(column: pl.Series) -> pl.Series:
    """The hours of such a column; null where none is said."""
    if column.dtype == pl.Datetime:
        return column.dt.hour().cast(pl.Int64)
    if column.dtype == pl.Date:
        return pl.Series(column.name, [None], dtype=pl.Int64).new_from_index(0, len(column))
    return column.cast(pl.String).str.extract(_HOUR).cast(pl.Int64, strict=False)


def _moments(column: pl.Series, rows: NDArray[np.integer[Any]] | None) -> tuple[pl.Series, pl.Series]:
    """Day and hour of each row, or an error that names the first row with a value that is no date."""
    remedy = "write it as 2014-01-19, leave missing ones empty, or list the column under categorical"
    if column.dtype not in (pl.Date, pl.Datetime, pl.String, pl.Null):
        raise DataError(f"the column {column.name!r} holds {column.dtype}, no dates: {remedy}")
    days = days_of(column)
    wrong = days.is_null() & column.is_not_null()
    if column.dtype == pl.String:
        wrong &= column.str.strip_chars() != ""
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"the column {column.name!r} holds {column[row]!r} in {row_named(row, rows)}, which is not a date: {remedy}"
        )
    return days, hours_of(column)


def row_named(row: int, rows: NDArray[np.integer[Any]] | None) -> str:
    """A row of a block, by its number in the party's table."""
    return f"row {row if rows is None else int(rows[row])} (counted from 0)"


# --- numbers ---------------------------------------------------------------------------------------------------------


def numbers(table: pl.DataFrame, columns: Columns, rows: NDArray[np.integer[Any]] | None) -> list[NDArray[np.float64]]:
    """The numeric columns, NaN where a value is missing, and a column of 0 and 1 for each flagged one."""
    values = {name: _as_float(table[name], rows) for name in (*columns.numeric, *columns.flagged)}
    flags = [np.isnan(values[name]).astype(np.float64) for name in columns.flagged]
    return [*(values[name] for name in columns.numeric), *flags]


_WORDS = {"true": "1", "false": "0", "na": "nan", "n/a": "nan", "null": "nan", "none": "nan", "": "nan"}


def to_float(column: pl.Series) -> pl.Series:
    """Numbers, null or NaN where there is none; text, as CSV files have it, may also say true, false and NA."""
    values = column.cast(pl.Float64, strict=False)
    if column.dtype == pl.String and values.null_count() > column.null_count():
        words = column.str.strip_chars().str.to_lowercase().replace(_WORDS)
        values = values.fill_null(words.cast(pl.Float64, strict=False))
    return values


def decimal_comma(value: object) -> str:
    """Spelling of a number with a decimal comma as it is to be written; empty for everything else.

    >>> decimal_comma("1.234,50"), decimal_comma("12,5"), decimal_comma("A,5")
    ('1234.50 with a point', '12.5 with a point', '')
    """
    if not isinstance(value, str) or re.match(_COMMA, value.strip()) is None:
        return ""
    return f"{value.strip().replace('.', '').replace(',', '.')} with a point"


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
        value, where = column[row], f"in {row_named(row, rows)}"
        if comma := decimal_comma(value):
            raise DataError(f"the column {column.name!r} has decimal commas, {value!r} {where}: write {comma}")
        raise DataError(f"the column {column.name!r} holds {value!r} {where}, which is not a finite number: {remedy}")
    return values.fill_null(np.nan).to_numpy()


# --- what is learnt, batch by batch -----------------------------------------------------------------------------------


@dataclass
class Vocabulary:
    """Values of one categorical column, over the rows read so far."""

    name: str
    known: list[pl.Series] = field(default_factory=list)  # the different values so far, then those of single batches
    waiting: int = 0  # values of the single batches

    def add(self, column: pl.Series) -> None:
        values = spelled(column).drop_nulls().unique()
        self.known.append(values)
        self.waiting += len(values)
        if self.waiting > max(_PENDING, len(self.known[0])):
            self.known, self.waiting = [self._together()], 0

    def _together(self) -> pl.Series:
        return pl.concat([pl.Series(self.name, [], pl.String), *self.known]).unique()

    def learnt(self) -> tuple[pl.Series, NDArray[np.int32]]:
        """The values, sorted, and the rank of each."""
        values = self._together().sort().rechunk().alias(self.name)
        return values, natural_ranks(values)


def natural_ranks(values: pl.Series) -> NDArray[np.int32]:
    """The rank of each of these sorted spellings: that of its number where all are numbers, else its own place.

    >>> natural_ranks(pl.Series(["10", "2.5", "9"])).tolist()
    [2, 0, 1]
    """
    ranks = np.arange(len(values), dtype=np.int32)
    measured = values.cast(pl.Float64, strict=False)
    if not measured.is_nan().any() and not measured.null_count():
        ranks[np.argsort(measured.to_numpy(), kind="stable")] = ranks.copy()
    return ranks


@dataclass
class Moments:
    """Mean and variance of one column of numbers, as far as its rows have come.

    Sums are exact, so that they are the same in whatever order the rows come.
    """

    name: str
    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: dict[int, int] = field(default_factory=dict)  # of the values: by exponent of two a whole number
    squares: dict[int, int] = field(default_factory=dict)  # of their squares

    def add(self, values: NDArray[np.float64]) -> None:
        seen = values[~np.isnan(values)]
        if not len(seen):
            return
        self.low, self.high = min(self.low, float(seen.min())), max(self.high, float(seen.max()))
        self.count += len(seen)
        for start in range(0, len(seen), _ALL):
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
        """Mean and deviation of a column; one without spread keeps its unit."""
        if not self.count:
            return 0.0, 1.0
        if self.low == self.high:
            return self.low, 1.0
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
