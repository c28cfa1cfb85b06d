"""Small text tables with a header: every row that can't be used is named with its file and line, or counted."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.lab.data.faults import Faults


@dataclass(frozen=True)
class Text:
    """The rows of a text table that are good so far.

    Each method checks one thing, and leaves out what fails it where the faults are to be skipped.
    """

    name: str  # of the file, for errors
    table: pl.DataFrame  # all columns as text; an empty field is missing
    lines: NDArray[np.int64]  # the line of each row in the file, counted from 1. (rows,)
    faults: Faults  # what happens to rows that can't be used

    def __len__(self) -> int:
        return len(self.table)

    def numbers(self, columns: Sequence[str], integer: bool = False) -> Text:
        """These columns as numbers; a missing value stays missing, except where an integer is needed."""
        text, kind = self, pl.Int64 if integer else pl.Float64
        for column in columns:
            values = text.table[column].str.strip_chars().cast(kind, strict=False)
            wrong = values.is_null() if integer else (~values.is_finite()).fill_null(text.table[column].is_not_null())
            what = "no whole number" if integer else "no finite number"
            text = text._with(values).without(wrong, text.table[column], what)
        return text

    def truth(self, column: str, meanings: Mapping[str, bool], name: str) -> Text:
        """A column of two words, or two digits, as a column of truth values with that name."""
        words = self.table[column].str.strip_chars()
        values = words.replace_strict(meanings, default=None, return_dtype=pl.Boolean).alias(name)
        what = "neither " + " nor ".join(map(repr, meanings))
        return self._with(values).without(values.is_null(), self.table[column], what)

    def filled(self, column: str) -> Text:
        """Rows that have a value in this column."""
        return self.without(self.table[column].is_null(), self.table[column], "missing, and must not be")

    def unique(self, column: str) -> Text:
        """Rows whose value in this column was in no row before."""
        return self.without(~self.table[column].is_first_distinct(), self.table[column], "there already, further up")

    def _with(self, values: pl.Series) -> Text:
        return Text(self.name, self.table.with_columns(values), self.lines, self.faults)

    def without(self, wrong: pl.Series, shown: pl.Series, what: str) -> Text:
        """All rows but the wrong ones, each of which is met as a fault."""
        for row in wrong.arg_true():
            value = "empty" if shown[row] is None else repr(shown[row])
            self.faults.meet(f"{self.name}, line {self.lines[row]}: {shown.name} is {value}, {what}")
        keep = (~wrong).to_numpy()
        return Text(self.name, self.table.filter(~wrong), self.lines[keep], self.faults)


def read(path: Path, wanted: Sequence[str], faults: Faults, *, remedy: str) -> Text:
    """A file with a header, packed (`.gz`) or not."""
    try:
        with _opened(path) as stream:
            return parse(stream, str(path), wanted, faults, remedy=remedy)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {remedy}") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read ({error}): get the file anew: {remedy}") from error


def parse(stream: IO[str], name: str, wanted: Sequence[str], faults: Faults, *, remedy: str) -> Text:
    """The same of text that is open already, under the name that errors give it.

    Fields are separated by commas, or by semicolons where the header has some.
    """
    first = stream.readline()
    reader = csv.reader(chain([first], stream), delimiter=";" if ";" in first else ",")
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        header = [column.strip() for column in next(reader, [])]
        _check(header, wanted, name, remedy)
        for row in reader:
            if len(row) == len(header):
                rows.append(row)
                lines.append(reader.line_num)
            elif row:  # an empty line is no row
                faults.meet(f"{name}, line {reader.line_num} has {len(row)} fields, where the header has {len(header)}")
    except csv.Error as error:
        raise DataError(
            f"{name}, line {reader.line_num} can't be read ({error}): get the file anew: {remedy}"
        ) from None
    if not rows:
        raise DataError(f"{name} holds no row that could be used: {remedy}")
    columns = {column: list(values) for column, values in zip(header, zip(*rows, strict=True), strict=True)}
    table = pl.DataFrame(columns, schema=dict.fromkeys(header, pl.String))
    return Text(name, table.with_columns(pl.all().replace("", None)), np.array(lines, dtype=np.int64), faults)


def found(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these files that a folder has, plain or packed."""
    paths = (folder / f"{name}{packed}" for name in names for packed in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _opened(path: Path) -> IO[str]:
    """A text file, packed or not; the mark that some programs put before UTF-8 is no part of it."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _check(header: Sequence[str], wanted: Sequence[str], name: str, remedy: str) -> None:
    if not header:
        raise DataError(f"{name} is empty: {remedy}")
    missing = [column for column in wanted if column not in header]
    if missing:
        raise DataError(
            f"{name} has no column {', '.join(missing)} in its header; it has: {', '.join(header)}: {remedy}"
        )
    if len(set(header)) < len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise DataError(f"{name} has the column {twice} twice in its header: {remedy}")
