"""A party's table, in a file or in memory, as blocks of rows: memory grows neither with the rows nor with the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.errors import DataError

Source = str | Path | pl.DataFrame
"""A `.parquet`, `.csv` or `.tsv` file with a header, or a table."""

_SMALLEST, _LARGEST = 1 << 12, 1 << 16  # rows of a block
_VALUES = 1 << 21  # in a block, where its rows allow
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def check_columns(source: Source, columns: Sequence[str]) -> None:
    """See that a source is a table with these columns, without reading it; a `DataError` says what is missing."""
    with _reading(source):
        _open(source, columns)


def columns_in(source: Source) -> list[str]:
    """The names of a source's columns."""
    with _reading(source):
        frame = source.lazy() if isinstance(source, pl.DataFrame) else scan(Path(source))
        return frame.collect_schema().names()


def load(source: Source, rows: NDArray[np.int64], columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of the rows with these numbers, counted from 0 (after the header), in this order.

    The values of a row -1 are missing. A file is streamed: memory grows with the rows that are asked for, not with the
    file. The columns of a CSV file are all text, because its types could only be guessed; `Encoder` and `labels` read
    numbers from text.
    """
    order = np.argsort(rows, kind="stable")
    wanted, start = rows[order], 0
    with _reading(source):
        parts = [_open(source, columns).head(0).collect()]
    for block in blocks(source, columns):
        here = slice(*np.searchsorted(wanted, [start, start + len(block)]))
        parts.append(block[wanted[here] - start])
        start += len(block)
    found, gone = pl.concat(parts), int((rows < 0).sum())
    if len(found) + gone != len(rows):
        raise rows_error(source, len(rows), len(rows) - gone - len(found))
    places = np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows)) - gone
    if not gone:
        return found[places]
    return found.select(pl.all().gather(pl.Series(places).set(pl.Series(places < 0), None)))


def blocks(source: Source, columns: Sequence[str], size: int | None = None) -> Iterator[pl.DataFrame]:
    """The named columns of all rows, so many rows at a time: memory grows neither with the rows nor with the file.

    Every block but the last one has exactly `size` rows, however the file is laid out, so that what is computed block
    by block is the same every time. Without a size there are fewer the more columns there are.

    >>> [block["x"].to_list() for block in blocks(pl.DataFrame({"x": [1, 2, 3], "y": [4, 5, 6]}), ["x"], size=2)]
    [[1, 2], [3]]
    """
    size = size or max(_SMALLEST, min(_LARGEST, _VALUES // len(columns)))
    with _reading(source):
        left = pl.DataFrame()
        for batch in _batches(source, columns, size):
            left = pl.concat([left, batch]) if len(left) else batch
            while len(left) >= size:
                yield left[:size]
                left = left[size:]
        if len(left):
            yield left


def _batches(source: Source, columns: Sequence[str], size: int) -> Iterator[pl.DataFrame]:
    """The named columns of all rows, in batches of about this size."""
    frame = _open(source, columns)
    if isinstance(source, pl.DataFrame):
        yield from source.select(columns).iter_slices(size)
    elif _suffix(source) in _SEPARATORS:
        yield from frame.collect_batches(chunk_size=size)
    else:
        # As a stream it would be read ahead by many row groups, which takes several times the memory.
        start = 0
        while len(batch := frame.slice(start, size).collect(engine="streaming")):
            yield batch
            start += size


def rows_error(source: Source, count: int, missing: int) -> DataError:
    """Error: a source lacks so many of the rows that were aligned."""
    return DataError(
        f"{_name(source)} no longer has all of the {count:,} aligned rows ({missing} are missing): put the file back "
        "that was aligned, or run `tacit align --again` on all sides"
    )


def _name(source: Source) -> str:
    """Name of a source in errors."""
    return "the table" if isinstance(source, pl.DataFrame) else str(source)


@contextmanager
def _reading(source: Source) -> Iterator[None]:
    """Say of which source it is that something can't be read, and why."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{_name(source)} can't be read: {_cause(source, error)}") from error


def _cause(source: Source, error: Exception) -> str:
    """Words for what is wrong with a file, with the line where that can be told."""
    if isinstance(source, str | Path) and _suffix(source) in _SEPARATORS and "utf-8" in str(error).lower():
        with Path(source).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as wrong:
                    return f"line {number} is not UTF-8 (byte {wrong.start}, {wrong.reason}): save the file as UTF-8"
    return f"{str(error).splitlines()[0]}: check that it is what its name says, or write it anew"


def _open(source: Source, columns: Sequence[str]) -> pl.LazyFrame:
    """These columns of a source, not yet read."""
    frame = source.lazy() if isinstance(source, pl.DataFrame) else scan(Path(source))
    names = frame.collect_schema().names()
    missing = [name for name in columns if name not in names]
    if missing:
        joined = len(names) == 1 and any(sign in names[0] for sign in ";|\t,")
        do = "separate them by commas (.csv) or tabs (.tsv)" if joined else "correct the names"
        raise DataError(
            f"{_name(source)} has no column {', '.join(map(repr, missing))}; it has: {', '.join(names)}: {do}"
        )
    return frame.select(columns)


def scan(path: Path) -> pl.LazyFrame:
    """A file by the end of its name, not yet read. Text stays text: '042' is not 42."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: pass one .parquet, .csv or .tsv file")
    kind = _suffix(path)
    if kind not in (".parquet", ".pq", *_SEPARATORS):
        raise DataError(
            f"{path} is neither .parquet nor .csv nor .tsv: use a .parquet, .csv or .tsv file; convert it, or pass a "
            "polars table"
        )
    if not path.is_file():
        why = "not a regular file" if path.exists() else "no such file"
        raise DataError(f"{path} can't be read ({why}): check the path, or put it there")
    if kind in _SEPARATORS:
        return pl.scan_csv(path, glob=False, infer_schema=False, separator=_SEPARATORS[kind])
    return pl.scan_parquet(path, glob=False)


def _suffix(path: str | Path) -> str:
    return Path(path).suffix.lower()
