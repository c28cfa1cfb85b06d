"""Kinds of a table's columns, by its first million rows: categories, numbers, dates, or nothing to learn from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.encoder import days_of, decimal_comma, hours_of, spelled, to_float
from tacit.align.sources import Source, blocks, columns_in

FEW = 12
"""Different whole numbers that are codes rather than a quantity, at most."""

_LOOKED_AT = 1_000_000  # rows
_MOSTLY = 0.9  # of the values: a column that holds so many numbers was meant to hold no others
_ROWS = 100  # with as many values, all different, a column names its rows
_SLASHED = r"^\d\d?/\d\d?/\d{2,4}$"

What = Literal["categorical", "numeric", "dates", "times", "left out"]


@dataclass(frozen=True)
class Kind:
    """Kind that a column is taken for."""

    name: str
    what: What
    why: str = ""  # it is left out


def kinds(source: Source, but: Collection[str] = ()) -> list[Kind]:
    """Kind of each column of a table, in its order, but for some.

    >>> table = pl.DataFrame({"since": ["2014-01-19", None], "paid": [1.5, 2.5], "by": ["a", "b"], "land": ["D", "D"]})
    >>> [(each.name, each.what) for each in kinds(table)]
    [('since', 'dates'), ('paid', 'numeric'), ('by', 'categorical'), ('land', 'left out')]
    """
    names = [name for name in columns_in(source) if name not in but]
    seen, start = [_Seen(name) for name in names], 0
    for block in blocks(source, names) if names else ():
        for each in seen:
            each.add(block[each.name], start)
        start += len(block)
        if start >= _LOOKED_AT:
            break
    return [each.kind() for each in seen]


@dataclass
class _Seen:
    """What has been seen of a column."""

    name: str
    dtype: pl.DataType = field(default_factory=pl.Null)
    rows: int = 0
    there: int = 0  # values that are not missing
    numbers: int = 0
    nothing: int = 0  # words that say that there is none, such as NA
    whole: int = 0  # numbers that are whole
    zeros: int = 0  # that begin with a zero, as numbers do not
    commas: int = 0  # numbers with a decimal one
    days: int = 0
    hours: int = 0  # of days, that are said
    slashes: int = 0  # dates of which nobody can tell day from month
    no_number: tuple[str, int] | None = None  # the first value that is none, and its row
    no_day: tuple[str, int] | None = None
    few: set[str] = field(default_factory=set)  # the first different values
    hashes: list[NDArray[np.uint64]] | None = field(default_factory=list)  # None once a value was there twice

    def add(self, column: pl.Series, start: int) -> None:
        """The next rows, from this number on."""
        self.rows += len(column)
        if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Time, pl.Duration):
            self.dtype = column.dtype
            return
        text = spelled(column)
        present = text.is_not_null()
        if not present.any():
            return
        self.dtype = column.dtype
        self.there += int(present.sum())
        values, known = column.filter(present), text.filter(present)
        if len(self.few) <= FEW:
            self.few.update(known.unique().head(FEW + 1).to_list())
        self._different(known)
        if column.dtype == pl.String:
            self._text(values, present.arg_true().to_numpy() + start)
        elif column.dtype.is_numeric():
            self.numbers += len(values)
            self.whole += int((values.cast(pl.Float64) % 1 == 0).sum())
        elif column.dtype.is_temporal():
            self.days += len(values)
            self.hours += int((hours_of(values) > 0).sum())

    def _text(self, values: pl.Series, rows: NDArray[np.int64]) -> None:
        numbers = to_float(values)
        found = numbers.is_finite().fill_null(False)
        self.numbers += int(found.sum())
        self.nothing += int(numbers.is_nan().sum())
        self.whole += int((numbers.filter(found) % 1 == 0).sum())
        self.zeros += int(values.str.contains(r"^-?0[0-9]").sum())
        self.slashes += int(values.str.contains(_SLASHED).sum())
        days = days_of(values).is_not_null()
        self.days += int(days.sum())
        self.hours += int((hours_of(values.filter(days)) > 0).sum())
        others, no_days = numbers.is_null().arg_true(), (~days).arg_true()
        if len(others):
            self.no_number = self.no_number or (values[others[0]], int(rows[others[0]]))
            self.commas += sum(bool(decimal_comma(value)) for value in values.gather(others).to_list())
        if len(no_days):
            self.no_day = self.no_day or (values[no_days[0]], int(rows[no_days[0]]))

    def _different(self, known: pl.Series) -> None:
        if self.hashes is None:
            return
        hashes = np.sort(known.hash().to_numpy())
        self.hashes = None if (hashes[1:] == hashes[:-1]).any() else [*self.hashes, hashes]

    @property
    def _names_rows(self) -> bool:
        """Whether all values are different."""
        if self.there < _ROWS or self.hashes is None:
            return False
        return len(np.unique(np.concatenate(self.hashes))) == self.there

    def kind(self) -> Kind:
        """The kind that the column is taken for."""
        why = self._useless()
        return Kind(self.name, "left out" if why else self._what(), why)

    def _what(self) -> What:
        if self.days == self.there:
            return "times" if self.hours else "dates"
        number = 0 < self.numbers == self.there - self.nothing and not self.zeros
        few = self.whole == self.numbers and len(self.few) <= FEW
        return "numeric" if number and not few else "categorical"

    def _useless(self) -> str:
        """Why nothing can be learnt of the column as it is; empty where something can."""
        if not self.there:
            return "is empty" if self.dtype == pl.Null else f"holds {self.dtype}: neither text nor numbers nor dates"
        if len(self.few) == 1 and self.there == self.rows:
            return f"is {next(iter(self.few))!r} in every row"
        most = _MOSTLY * self.there
        if self.no_day is not None and self.no_number is not None:
            if self.slashes >= most:
                return f"has dates such as {self.no_day[0]!r}: write them as 2014-01-19, and name it under dates"
            if self.numbers + self.commas >= most:
                return _mixed(*self.no_number, "number", "numeric")
            if self.days >= most:
                return _mixed(*self.no_day, "date", "dates")
        if self._names_rows and not self.days and not self.numbers > self.whole:
            return "is another in every row, as an id is"
        return ""


def _mixed(value: str, row: int, what: str, key: str) -> str:
    comma = decimal_comma(value) if what == "number" else ""
    do = f"write {comma}" if comma else "leave it empty"
    return f"holds {value!r} in row {row} (counted from 0), which is not a {what}: {do}, and name it under {key}"


def by_kind(found: Collection[Kind]) -> Iterator[tuple[What, list[str]]]:
    """The names of the columns of each kind, but for those that are left out."""
    each: tuple[What, ...] = ("categorical", "numeric", "dates", "times")
    for what in each:
        yield what, [one.name for one in found if one.what == what]
