"""What a cell may hold: how it is read from text, how its column is kept, and which cells can't be read at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import polars as pl

from tacit.align.encoder import to_float

DAY = "tacit day"
"""The column that holds the day of each row, in days since 1970, where a file has days."""

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"


@dataclass(frozen=True)
class Kept:
    """The columns that are kept of one that was read, and which of its values can't be used."""

    columns: list[pl.Series]
    wrong: pl.Series | None = None  # of truth values; None where all can be used


@dataclass(frozen=True)
class Cell:
    """One kind of cell."""

    what: str  # it is, for errors
    dtype: type[pl.DataType]  # as which polars reads it from text, fast; what does not fit makes it fail
    # whether a single cell of text can be read; asked only where a chunk of lines failed
    readable: Callable[[str], bool]
    kept: Callable[[pl.Series], Kept]  # what is kept of a column


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII | re.IGNORECASE)
    return lambda cell: compiled.fullmatch(cell) is not None


def _label(column: pl.Series) -> Kept:
    values = to_float(column)
    wrong = ~values.is_in([0.0, 1.0]).fill_null(False)
    return Kept([values.set(wrong, None).cast(pl.UInt8)], wrong)


def _number(column: pl.Series) -> Kept:
    values = to_float(column)
    wrong = (values.is_null() & column.is_not_null()) | values.is_infinite().fill_null(False)
    return Kept([values.fill_nan(None)], wrong)


def _hexadecimal(column: pl.Series) -> Kept:
    values = column.str.to_integer(base=16, dtype=pl.UInt32, strict=False)
    return Kept([values], values.is_null() & column.is_not_null())


def _hour(column: pl.Series) -> Kept:
    """The hour of the day as a category, and the day."""
    whole = pl.col("whole")
    month, day = whole // 10_000 % 100, whole // 100 % 100
    parts = column.to_frame("whole").select(
        right=(whole.is_between(0, 99_999_999) & month.is_between(1, 12) & day.is_between(1, 31) & (whole % 100 < 24)),
        stamp=2000_00_00 + whole // 100,
        hour=whole % 100,
    )
    days = parts["stamp"].cast(pl.String).str.to_date("%Y%m%d", strict=False)
    wrong = ~parts["right"].fill_null(False) | days.is_null()
    return Kept([parts["hour"].alias(column.name), days.cast(pl.Int32).alias(DAY)], wrong)


def _day(column: pl.Series) -> Kept:
    """Whole numbers are days already; dates and times, also such in text, become days since 1970."""
    if column.dtype.is_integer():
        days = column.cast(pl.Int32, strict=False)
    elif column.dtype == pl.String:
        days = column.str.extract(rf"^({_DATE})").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32)
    else:
        days = column.cast(pl.Date, strict=False).cast(pl.Int32)
    return Kept([days.alias(DAY)], days.is_null())


def _category(column: pl.Series) -> Kept:
    """Whole numbers as they are, all else by its spelling; a NaN is a missing value."""
    wide = (pl.UInt64, pl.Int128, pl.UInt128)  # may not fit
    if column.dtype.is_integer() and column.dtype not in wide:
        return Kept([column.cast(pl.Int64)])
    return Kept([(column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String)])


def _is_day(cell: str) -> bool:
    found = re.match(_DATE, cell)
    try:
        return found is not None and date.fromisoformat(found.group()) is not None
    except ValueError:
        return False


def _is_hour(cell: str) -> bool:
    cell = cell.lstrip(" ")
    digits = len(cell) == 8 and cell.isascii() and cell.isdigit() and int(cell[6:]) < 24
    return digits and _is_day(f"20{cell[:2]}-{cell[2:4]}-{cell[4:6]}")


KINDS = {
    "label": Cell("0 or 1", pl.String, _matches(r"\s*([01](\.0*)?|true|false)\s*"), _label),
    "integer": Cell("a whole number", pl.Int64, _matches(r"| *[+-]?\d{1,18}"), lambda column: Kept([column])),
    "number": Cell("a finite number", pl.Float64, _matches(r"| *[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?|nan"), _number),
    "hex": Cell("a hexadecimal number of at most 8 digits", pl.String, _matches(r"|\+?0*[0-9a-f]{1,8}"), _hexadecimal),
    "category": Cell("a category", pl.String, lambda _: True, _category),
    "key": Cell("an id", pl.String, bool, lambda column: Kept([column.cast(pl.String)], column.is_null())),
    "hour": Cell("an hour as YYMMDDHH", pl.Int64, _is_hour, _hour),
    "day": Cell("a date as YYYY-MM-DD", pl.String, _is_day, _day),
}
"""By the names that layouts use. An empty cell is a missing value, except as a label, an id, an hour or a day."""
