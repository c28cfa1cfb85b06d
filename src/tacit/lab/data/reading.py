"""Text files as lazy tables: every cell is cast to what its column holds, and each row says if it is wrong.

Nothing is read before a table is collected or written to a file, and then as a stream: `streaming` does that for large
files, `joined` for small ones.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tacit.align.cache import file_facts
from tacit.errors import DataError

ROW = "tacit row"
"""The column that holds each row's number in the file, counted from 0."""

DAY = "tacit day"
"""The column that holds the day of each row, in days since 1970, where a file has days."""

WHY = "tacit why"
"""The column that says what is wrong with a row; null where nothing is."""

CORRECT = ": correct it, or take it out"
"""What to do about a row that can't be used."""

_OURS = "tacit "  # what names of columns begin with that are not the file's
_FIELDS = "fields of the line"  # how many there are; 0 where its quotes do not close
_SHOWN = 40  # characters of a value in an error


def packed(path: Path) -> Path | None:
    """A file, or the same packed; None if neither is there."""
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def found(path: Path, names: Sequence[str], remedy: str) -> Path:
    """The file itself, or the first of these that the folder holds, plain or packed (`.gz`)."""
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"{path} is missing: {remedy}")
        return path
    for name in names:
        if (file := packed(path / name)) is not None:
            return file
    raise DataError(f"{path} holds none of {', '.join(names)}, packed (.gz) or not: {remedy}")


# --- cells -----------------------------------------------------------------------------------------------------------

Cast = tuple[Mapping[str, pl.Expr], pl.Expr]
"""Expressions of the columns that are kept of one column of text, by name, and of whether a value can't be used."""


def _truth(cell: pl.Expr) -> pl.Expr:
    """Numbers, where true and false are 1 and 0."""
    words = cell.str.strip_chars().str.to_lowercase()
    value = words.cast(pl.Float64, strict=False)
    return pl.when(words == "true").then(1.0).when(words == "false").then(0.0).otherwise(value)


def _label(name: str, cell: pl.Expr) -> Cast:
    value = _truth(cell)
    return {name: value.cast(pl.UInt8, strict=False)}, ~value.is_in([0.0, 1.0]).fill_null(False)


def _number(name: str, cell: pl.Expr) -> Cast:
    value = _truth(cell)
    wrong = (value.is_null() & cell.is_not_null()) | value.is_infinite().fill_null(False)
    return {name: value.fill_nan(None)}, wrong


def _integer(name: str, cell: pl.Expr) -> Cast:
    value = cell.str.strip_chars().cast(pl.Int64, strict=False)
    return {name: value}, value.is_null() & cell.is_not_null()


def _hexadecimal(name: str, cell: pl.Expr) -> Cast:
    value = cell.str.to_integer(base=16, dtype=pl.UInt32, strict=False)
    return {name: value}, value.is_null() & cell.is_not_null()


def _hour(name: str, cell: pl.Expr) -> Cast:
    """The hour of the day as a category, and the day."""
    day = ("20" + cell.str.slice(0, 6)).str.to_date("%Y%m%d", strict=False)
    hour = cell.str.slice(6).cast(pl.Int64, strict=False)
    right = cell.str.contains(r"^[0-9]{8}$") & day.is_not_null() & hour.is_between(0, 23)
    return {name: hour, DAY: day.cast(pl.Int32)}, ~right.fill_null(False)


def _category(name: str, cell: pl.Expr) -> Cast:
    return {name: cell}, pl.lit(False)


def _key(name: str, cell: pl.Expr) -> Cast:
    return {name: cell}, cell.is_null()


KINDS: Mapping[str, tuple[str, Callable[[str, pl.Expr], Cast]]] = {
    "label": ("0 or 1", _label),
    "integer": ("a whole number", _integer),
    "number": ("a finite number", _number),
    "hex": ("a hexadecimal number of at most 8 digits", _hexadecimal),
    "category": ("a category", _category),
    "key": ("an id", _key),
    "hour": ("an hour as YYMMDDHH", _hour),
}
"""What a cell may hold, in words, and how it is cast. An empty cell is a missing value; as a label, an id or an hour it
is an error.
"""


def cast(table: pl.LazyFrame, kinds: Mapping[str, str], why: Sequence[pl.Expr] = ()) -> pl.LazyFrame:
    """A table of text, cast, with other columns as they are; `WHY` is the first reason that a row has."""
    columns: dict[str, pl.Expr] = {}
    reasons, others = list(why), [name for name in table.collect_schema() if name.startswith(_OURS)]
    for name, kind in kinds.items():
        what, of = KINDS[kind]
        cell = pl.when(pl.col(name) != "").then(pl.col(name))
        kept, wrong = of(name, cell)
        columns |= kept
        shown = pl.format(f"{name} is '{{}}', not {what}", pl.col(name).fill_null("").str.slice(0, _SHOWN))
        reasons.append(pl.when(wrong).then(shown))
    return table.select(*others, pl.coalesce(reasons).alias(WHY), **columns)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A text file, plain or packed with gzip (`.gz`)."""

    path: Path  # of the file
    names: tuple[str, ...]  # of all columns, in the order of the file
    kinds: Mapping[str, str]  # for each column that is kept, its kind in `KINDS`
    separator: str = ","  # between the cells of a line
    header: bool = True  # whether the first line is none of them
    quoted: bool = False  # whether cells may stand in double quotes; a line's end inside of them is not allowed
    remedy: str = field(default="look at the file, or write it anew", compare=False)  # where to get a right file

    def facts(self) -> dict[str, Any]:
        """The file's, and how it is read."""
        own = {key: value for key, value in asdict(self).items() if key not in ("path", "remedy")}
        return {**file_facts(self.path), **own, "names": list(self.names)}

    def place(self, row: int) -> str:
        """Where a person finds a row."""
        return f"{self.path}, line {row + 1 + self.header}"

    def table(self, keep: Callable[[pl.LazyFrame], pl.LazyFrame] = lambda lines: lines) -> pl.LazyFrame:
        """The rows, cast; `keep` may leave out lines by their number, in `ROW`, before their cells are looked at.

        Lines are told apart first and cells within them, so that a line with a cell too many or too few is known by its
        number. Empty lines are no rows.
        """
        lines = pl.scan_csv(
            self.path, has_header=False, skip_rows=int(self.header), separator="\x1f", quote_char=None, glob=False,
            schema={"line": pl.String}, row_index_name=ROW, encoding="utf8-lossy",
        )  # fmt: skip
        line, count = pl.col("line").str.strip_suffix("\r"), len(self.names)
        lines = keep(lines.filter(line.is_not_null() & (line != "")).with_columns(line))
        if self.quoted:
            schema = pl.Struct({_FIELDS: pl.UInt32, **dict.fromkeys(self.names, pl.String)})
            cells = line.map_batches(partial(_unquoted, self.separator, self.names), schema, is_elementwise=True)
        else:
            cells = _split(self.separator, self.names)
        broken = pl.when(pl.col("line").str.contains("\ufffd", literal=True)).then(pl.lit("the line is no text"))
        open_ = pl.when(pl.col(_FIELDS) == 0).then(pl.lit("a quote of the line does not close"))
        uneven = pl.when(pl.col(_FIELDS) != count).then(pl.format(f"the line has {{}} fields, not {count}", _FIELDS))
        table = lines.with_columns(cells.alias("cells")).unnest("cells")
        return cast(table, self.kinds, (broken, open_, uneven))


def _split(separator: str, names: Sequence[str]) -> pl.Expr:
    """The cells of lines without quotes, and how many there are."""
    line = pl.col("line")
    cells = line.str.splitn(separator, len(names) + 1).struct
    fields = line.str.count_matches(separator, literal=True) + 1
    return pl.struct(
        fields.alias(_FIELDS), *(cells.field(f"field_{place}").alias(name) for place, name in enumerate(names))
    )


def _unquoted(separator: str, names: Sequence[str], lines: pl.Series) -> pl.Series:
    """The same of lines in which cells may stand in quotes."""
    table = lines.alias("line").to_frame()
    if not lines.str.contains('"', literal=True).any():
        return table.select(_split(separator, names).alias("cells")).to_series()
    rows = []
    for line in lines:
        try:
            cells = next(csv.reader([line], delimiter=separator, strict=True))
        except csv.Error:
            cells = []
        rows.append([len(cells), *cells[: len(names)], *[None] * (len(names) - len(cells))])
    schema = {_FIELDS: pl.UInt32, **dict.fromkeys(names, pl.String)}
    return pl.DataFrame(rows, schema=schema, orient="row").to_struct("cells")


def collected(source: Text, table: pl.LazyFrame) -> pl.DataFrame:
    """The rows of a lazy table of this source, in memory; whatever keeps it from being read names the file."""
    try:
        return table.collect(engine="streaming")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(source, error) from None


def refuse_wrong(source: Text, table: pl.DataFrame) -> None:
    """Refuse a file without rows, and the first row that can't be used, by the columns `ROW` and `WHY`."""
    if not len(table):
        head = " but for its header" if source.header else ""
        raise DataError(f"{source.path} is empty{head}: {source.remedy}")
    wrong = table.select(ROW, WHY).filter(pl.col(WHY).is_not_null())
    if len(wrong):
        row, why = wrong.row(0)
        remedy = f", and no line near it is better: {source.remedy}" if len(wrong) == len(table) else CORRECT
        raise DataError(f"{source.place(row)}: {why}{remedy}")


def unreadable(source: Text, error: Exception) -> DataError:
    """What to say where a file can't be read."""
    cause = str(error).partition("\n")[0]
    return DataError(f"{source.path} can't be read, it is damaged or cut short ({cause}): {source.remedy}")


def header(path: Path, separator: str, remedy: str) -> tuple[str, ...]:
    """The names in the first line of a file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            line = file.readline(1 << 20)
        names = next(csv.reader([line.decode("utf-8-sig").strip("\r\n")], delimiter=separator), [])
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {remedy}") from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} can't be read, it is damaged or cut short ({error}): {remedy}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}, line 1: it holds no names of columns ({error}): {remedy}") from None
    if not names:
        raise DataError(f"{path} is empty: {remedy}")
    return tuple(name.strip() for name in names)


def require(path: Path, names: Sequence[str], wanted: Sequence[str], remedy: str) -> None:
    """Refuse a header that lacks one of these columns, or names one twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has the column {twice[0]} twice in its header: name them apart, or {remedy}")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"{path} has no column {', '.join(missing)} in its header; it has: {', '.join(names)}: {remedy}"
        )
