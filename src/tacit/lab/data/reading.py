"""Text and Parquet files in chunks of bounded size; each cell is checked, and rows that can't be used are named."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.cache import file_facts
from tacit.align.encoder import to_float
from tacit.errors import DataError
from tacit.lab.data.faults import cured

ROW = "tacit row"
"""The column that holds each row's number in the file, counted from 0; rows that were left out are counted too."""

DAY = "tacit day"
"""The column that holds the day of each row, in days since 1970, where a file has days."""

_BYTES, _ROWS = 32 << 20, 1 << 17  # of text (about 140,000 rows of Criteo) and of Parquet that are read at once


@dataclass(frozen=True)
class Bad:
    """A row that can't be read."""

    row: int  # its number, counted from 0
    place: str  # the file and the line or row, as a person looks for it
    why: str  # what is wrong with it

    def error(self) -> DataError:
        """What to raise where bad rows are not to be skipped."""
        return DataError(cured(f"{self.place}: {self.why}"))


@dataclass(frozen=True)
class Chunk:
    """Some rows that follow each other, and those among them that could not be read."""

    table: pl.DataFrame  # the column `ROW`, and those that are kept
    bad: tuple[Bad, ...]
    rows: int  # of the source up to its end
    done: int  # how much of the source's `size` is read


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

Kept = tuple[list[pl.Series], pl.Series]
"""The columns that are kept of one that was read, and which of its values can't be used."""


def _label(column: pl.Series) -> Kept:
    values = to_float(column)
    wrong = ~values.is_in([0.0, 1.0]).fill_null(False)
    return [values.set(wrong, None).cast(pl.UInt8)], wrong


def _number(column: pl.Series) -> Kept:
    values = to_float(column)
    wrong = (values.is_null() & column.is_not_null()) | values.is_infinite().fill_null(False)
    return [values.fill_nan(None)], wrong


def _integer(column: pl.Series) -> Kept:
    text = column.str.strip_chars() if column.dtype == pl.String else column
    values = text.cast(pl.Int64, strict=False)
    return [values], values.is_null() & column.is_not_null()


def _hexadecimal(column: pl.Series) -> Kept:
    values = column.str.to_integer(base=16, dtype=pl.UInt32, strict=False)
    return [values], values.is_null() & column.is_not_null()


def _hour(column: pl.Series) -> Kept:
    """The hour of the day as a category, and the day."""
    whole = pl.col("whole")
    month, day = whole // 10_000 % 100, whole // 100 % 100
    parts = _integer(column)[0][0].to_frame("whole").select(
        right=(whole.is_between(0, 99_999_999) & month.is_between(1, 12) & day.is_between(1, 31) & (whole % 100 < 24)),
        stamp=2000_00_00 + whole // 100,
        hour=whole % 100,
    )  # fmt: skip
    days = parts["stamp"].cast(pl.String).str.to_date("%Y%m%d", strict=False)
    wrong = ~parts["right"].fill_null(False) | days.is_null()
    return [parts["hour"].alias(column.name), days.cast(pl.Int32).alias(DAY)], wrong


def _day(column: pl.Series) -> Kept:
    """Whole numbers are days already; dates and times, also such in text, become days since 1970."""
    if column.dtype.is_integer():
        days = column.cast(pl.Int32, strict=False)
    elif column.dtype == pl.String:
        days = column.str.extract(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32)
    else:
        days = column.cast(pl.Date, strict=False).cast(pl.Int32)
    return [days.alias(DAY)], days.is_null()


def _category(column: pl.Series) -> Kept:
    """Whole numbers as they are, all else by its spelling; a NaN is a missing value."""
    wide = (pl.UInt64, pl.Int128, pl.UInt128)  # may not fit
    kind = pl.Int64 if column.dtype.is_integer() and column.dtype not in wide else pl.String
    values = (column.fill_nan(None) if column.dtype.is_float() else column).cast(kind)
    return [values], pl.repeat(False, len(column), eager=True)


def _key(column: pl.Series) -> Kept:
    return [column.cast(pl.String)], column.is_null()


KINDS: Mapping[str, tuple[str, Callable[[pl.Series], Kept]]] = {
    "label": ("0 or 1", _label),
    "integer": ("a whole number", _integer),
    "number": ("a finite number", _number),
    "hex": ("a hexadecimal number of at most 8 digits", _hexadecimal),
    "category": ("a category", _category),
    "key": ("an id", _key),
    "hour": ("an hour as YYMMDDHH", _hour),
    "day": ("a date as YYYY-MM-DD", _day),
}
"""What a cell may hold, in words, and what is kept of a column of such cells. An empty cell is a missing value, except
as a label, an id, an hour or a day."""


def _checked(
    table: pl.DataFrame, kinds: Mapping[str, str], rows: NDArray[np.int64], place: Callable[[int], str], remedy: str,
    bad: Sequence[Bad] = (),
) -> tuple[pl.DataFrame, tuple[Bad, ...]]:  # fmt: skip
    """The columns that are kept of the rows that can be used, and all others beside those that are known as bad."""
    columns, reasons = [pl.Series(ROW, rows)], dict[int, str]()
    for name, kind in kinds.items():
        what, keep = KINDS[kind]
        kept, wrong = keep(table[name])
        columns += kept
        for at in wrong.arg_true().to_list() if wrong.any() else []:
            value = "" if table[name][at] is None else str(table[name][at])[:40]
            reasons.setdefault(at, f"{name} is {value!r}, not {what}")
    found = pl.DataFrame(columns)
    bad = sorted([*bad, *(Bad(int(rows[at]), place(int(rows[at])), why) for at, why in reasons.items())],
                 key=lambda each: each.row)  # fmt: skip
    if len(reasons) == len(found):
        raise DataError(f"{bad[0].place}: {bad[0].why}, and no line near it is better: {remedy}")
    return found.filter(~pl.int_range(pl.len()).is_in(list(reasons))) if reasons else found, tuple(bad)


# --- text ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A text file, plain or packed with gzip (`.gz`), as a source of chunks of whole lines."""

    path: Path  # of the file
    names: tuple[str, ...]  # of all columns, in the order of the file
    kinds: Mapping[str, str]  # for each column that is kept, its kind in `KINDS`
    separator: str = ","  # between the cells of a line
    header: bool = True  # whether the first line is none of them
    quoted: bool = False  # whether cells may stand in double quotes; a line's end inside of them is not allowed
    remedy: str = field(default="look at the file, or write it anew", compare=False)  # where to get a right file
    chunk: int = _BYTES  # bytes to read at once, which bounds the memory that is taken

    @cached_property
    def size(self) -> int:
        """The bytes of the file, packed as it is."""
        return int(file_facts(self.path)["bytes"])

    def facts(self) -> dict[str, Any]:
        """The file's, and how it is read."""
        own = {key: value for key, value in asdict(self).items() if key not in ("path", "remedy")}
        return {**file_facts(self.path), **own, "names": list(self.names)}

    def place(self, row: int) -> str:
        """Where a person finds a row."""
        return f"{self.path}, line {row + 1 + self.header}"

    def chunks(self) -> Iterator[Chunk]:
        """The lines, without those that can't be read."""
        first = 0
        for lines, done in self._lines():
            rows = first + np.arange(lines.count(b"\n"), dtype=np.int64)
            first += len(rows)
            table, bad = self._parsed(lines, len(rows)), list[Bad]()
            if table is None:  # some line is wrong: look which
                each = lines.split(b"\n")[:-1]
                reasons = [self._wrong(line) for line in each]
                right = [at for at, why in enumerate(reasons) if why is None]
                bad = [Bad(int(row), self.place(int(row)), why) for row, why in zip(rows, reasons, strict=True) if why]
                if not right:
                    raise DataError(f"{bad[0].place}: {bad[0].why}, and no line near it is better: {self.remedy}")
                table, rows = self._parsed(b"".join(each[at] + b"\n" for at in right), len(right)), rows[right]
                if table is None:
                    raise DataError(f"{self.place(int(rows[0]))} and after: they can't be read: {self.remedy}")
            kept, bad_rows = _checked(table, self.kinds, rows, self.place, self.remedy, bad)
            yield Chunk(kept, bad_rows, first, done)
        if not first:
            raise DataError(f"{self.path} is empty{' but for its header' if self.header else ''}: {self.remedy}")

    def _parsed(self, lines: bytes, count: int) -> pl.DataFrame | None:
        """So many lines as text by column; None where their cells are not as many, or polars can't read them."""
        cells = count * (len(self.names) - 1)
        try:
            if self.quoted and b'"' in lines:
                read = csv.reader(io.StringIO(lines.decode()), delimiter=self.separator, strict=True)
                whole = sum(len(line) - 1 for line in read) == cells
            else:
                whole = np.count_nonzero(np.frombuffer(lines, np.uint8) == ord(self.separator)) == cells
            if not whole:
                return None
            table = pl.read_csv(
                lines, has_header=False, separator=self.separator, schema=dict.fromkeys(self.names, pl.String),
                columns=[place for place, name in enumerate(self.names) if name in self.kinds],
                quote_char='"' if self.quoted else None,
            )  # fmt: skip
        except (csv.Error, UnicodeDecodeError, pl.exceptions.PolarsError):
            return None
        return table if len(table) == count else None

    def _wrong(self, line: bytes) -> str | None:
        """Why the cells of a line can't be told apart; None if they can."""
        try:
            text = line.decode()
            cells = text.split(self.separator)
            if self.quoted and '"' in text:
                cells = next(csv.reader([text], delimiter=self.separator, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            return f"the line is no text ({error})"
        return None if len(cells) == len(self.names) else f"the line has {len(cells)} fields, not {len(self.names)}"

    def _lines(self) -> Iterator[tuple[bytes, int]]:
        """Blocks of whole lines, each with how much of the file is read."""
        with _opened(self.path, self.remedy) as (file, raw):
            if self.header:
                file.readline()
            left, last = b"", False
            while not last:
                block = left + file.read(self.chunk - len(left))
                last = len(block) < self.chunk
                lines = _whole_lines(block, last)
                if not lines and not last:
                    raise DataError(f"{self.path}: there is no end of a line in {self.chunk} bytes: {self.remedy}")
                left = block[len(lines) :]
                if lines:
                    lines = lines if lines.endswith(b"\n") else lines + b"\n"
                    yield lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines, raw.tell()


def header(path: Path, separator: str, remedy: str) -> tuple[str, ...]:
    """The names in the first line of a file."""
    with _opened(path, remedy) as (file, _):
        line = file.readline(1 << 20)
    try:
        names = next(csv.reader([line.decode("utf-8-sig").strip("\r\n")], delimiter=separator), [])
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


@contextmanager
def _opened(path: Path, remedy: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A file, unpacked where it is packed, and as it is."""
    try:
        with path.open("rb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked, raw  # type: ignore[misc]
            else:
                yield raw, raw
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {remedy}") from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} can't be read, it is damaged or cut short ({error}): {remedy}") from None


def _whole_lines(block: bytes, last: bool) -> bytes:
    """The lines of a block that have come to their end, without empty ones after them: these may be the file's last."""
    end = text = len(block) if last else block.rfind(b"\n") + 1
    while text and block[text - 1] in b"\r\n":
        text -= 1
    return block[: block.find(b"\n", text, end) + 1 or end] if text else b""


# --- Parquet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A Parquet file as a source of chunks."""

    path: Path  # of the file
    kinds: Mapping[str, str]  # for each column that is kept, its kind in `KINDS`

    @cached_property
    def size(self) -> int:
        """The number of rows."""
        return int(pl.scan_parquet(self.path, glob=False).select(pl.len()).collect().item())

    def facts(self) -> dict[str, Any]:
        """The file's, and how its columns are read."""
        return {**file_facts(self.path), "kinds": dict(self.kinds), "chunk": _ROWS}

    def chunks(self) -> Iterator[Chunk]:
        """The rows, without those whose values can't be used."""
        table = pl.scan_parquet(self.path, glob=False).select(list(self.kinds))
        try:
            for first in range(0, self.size, _ROWS):
                read = table.slice(first, _ROWS).collect(engine="streaming")
                rows, end = np.arange(first, first + len(read), dtype=np.int64), first + len(read)
                kept, bad = _checked(read, self.kinds, rows, self._place, "name the right column")
                yield Chunk(kept, bad, end, end)
        except (OSError, pl.exceptions.PolarsError) as error:
            cause = str(error).partition("\n")[0]
            raise DataError(f"{self.path} can't be read ({cause}): look at the file, or write it anew") from None
        if not self.size:
            raise DataError(f"{self.path} has no rows: write it anew")

    def _place(self, row: int) -> str:
        return f"{self.path}, row {row} (counted from 0)"


Source = Text | Stored
"""A table that is read chunk by chunk, always in the same chunks; its facts say if it has changed."""
