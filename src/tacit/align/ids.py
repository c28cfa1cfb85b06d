"""Ids from a file to hashes: the same id gives the same hash on both sides, whatever each stores it as.

The canonical form of an id is text, since that is all that a CSV file has: a whole number is its decimal digits (42 in
any type, 42.0 and "42.0" equal "42"; "042" is another id), a date is `2026-01-31`, and text is in Unicode's composed
form (NFC) but else as it is: neither its case nor its spaces are touched. What looks like a difference of spelling
between the two sides is counted and reported. Bytes are taken as they are, and equal the text that they spell in UTF-8.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align._columns import WHOLE, whole_spelled
from tacit.align.sources import Source, blocks
from tacit.errors import DataError, UsageError

LONGEST = 64 * 1024
"""Bytes of the longest id: beyond it the column is surely no id."""

_SIZE = 32
_SHOWN = 40  # characters of a part of an id, of which one is shown
_BASE = hashlib.blake2b(digest_size=_SIZE, person=b"tacit id 1")
_ZEROS = r"^-?0[0-9]+$"
_DIGITS = r"^-?[0-9]+$"
_EXACT = 2.0**53  # below it a float is one whole number and no other


@dataclass(frozen=True)
class IdReport:
    """Counts of a table's rows: taken, left out and oddly spelled."""

    source: str  # the file's name, or "table"
    total: int  # rows in all
    missing: int  # rows left out because an id column was null or empty
    repeated_ids: int  # ids that more than one row has
    repeated_rows: int  # rows left out because of that
    alike: tuple[int, int] | None  # two rows (counted from 0) with one id, where there are such
    kept: int  # rows that take part
    spaces: int  # kept ids with white space at an end
    zeros: int  # kept ids that are numbers with leading zeros
    recomposed: int  # kept ids that were brought to Unicode's composed form
    numbers: int  # rows with an id of whole numbers
    example: tuple[str, ...]  # the first id, as it is spelled here; one part for each id column
    young: int = 0  # rows left out because their label is not complete

    @property
    def spelling(self) -> str:
        """Words about how ids are spelled here, for their owner alone."""
        present = self.total - self.missing
        kind = "whole numbers" if self.numbers == present else "text" if not self.numbers else "text and whole numbers"
        shown = ", ".join(repr(part[:_SHOWN]) for part in self.example)
        return f"{kind}, for example {shown}" + (f" ({len(self.example)} columns)" if len(self.example) > 1 else "")

    @property
    def hints(self) -> list[str]:
        """Sentences about spellings that the other side may not share, for the owner to look at before aligning."""
        found = []
        if self.missing:
            found.append(f"{self.missing} rows have no id and were left out")
        if self.alike is not None:
            found.append(
                f"{self.repeated_ids} ids are in several rows (for example rows {self.alike[0]} and "
                f"{self.alike[1]}, counted from 0); {self.repeated_rows} rows were left out"
            )
        if self.young:
            found.append(f"{self.young} rows were left out: their label is not complete ([label] complete)")
        if self.spaces:
            found.append(f"{self.spaces} ids begin or end with white space, which counts: strip it on both sides")
        if self.zeros:
            found.append(f"{self.zeros} ids are numbers with leading zeros: '042' is another id than 42")
        if self.recomposed:
            found.append(f"{self.recomposed} ids were brought to Unicode's composed form (NFC)")
        return found

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.kept:,} of {self.total:,} rows take part", *self.hints]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class Ids:
    """The ids of a table as hashes."""

    hashes: NDArray[np.uint8]  # of the ids, all different. (kept, 32) uint8
    rows: NDArray[np.int64]  # the row of each in the table, from 0. (kept,) int64
    report: IdReport  # what became of all rows
    # the hashes of what other columns call these rows, and their rows, by the columns, once they were asked for
    names: dict[tuple[str, ...], tuple[NDArray[np.uint8], NDArray[np.int64]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.rows)


def read_ids(source: Source, columns: str | Sequence[str], *, unique: bool = False) -> Ids:
    """The ids of a table, read in batches: of each id only its hash stays in memory.

    Args:
        source: a `.parquet`, `.csv` or `.tsv` file with a header, or a table.
        columns: the id column, or several that make an id together, in the same order on both sides.
        unique: refuse a table in which several rows have one id. Else all of them are left out, since either row might
            be the wrong one.

    >>> table = pl.DataFrame({"id": [7, 8, None, 7], "x": [0.1, 0.2, 0.3, 0.4]})
    >>> ids = read_ids(table, "id")
    >>> ids.rows.tolist()
    [1]
    >>> print(ids.report)
    table: 1 of 4 rows take part
      1 rows have no id and were left out
      1 ids are in several rows (for example rows 0 and 3, counted from 0); 2 rows were left out
    """
    reading, hashes, rows = Reading(source, columns), bytearray(), bytearray()
    for some, at in reading.blocks():
        hashes += some  # it grows in place: parts to be joined would be there twice
        rows += at.tobytes()
    return without_repeats(reading, hashes, rows, unique=unique)


def hash_of(parts: Iterable[str | int]) -> bytes:
    """The hash of one id from the values of its columns, as `read_ids` gives it of a table.

    >>> hash_of([7]) == hash_of(["7"]) == read_ids(pl.DataFrame({"id": [7]}), "id").hashes[0].tobytes()
    True
    """
    state = _BASE.copy()
    for part in parts:
        text = re.sub(WHOLE, r"\1", str(part))
        raw = (text if text.isascii() else unicodedata.normalize("NFC", text)).encode()
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.digest()


class Reading:
    """The ids of a table, block by block, and what became of its rows so far. It is gone through once."""

    def __init__(self, source: Source, columns: str | Sequence[str]) -> None:
        names = [columns] if isinstance(columns, str) else list(columns)
        if not names or len(set(names)) < len(names):
            raise UsageError(f"id columns {names}: name one or more, each once")
        self.source = "table" if isinstance(source, pl.DataFrame) else Path(source).name
        self._blocks = blocks(source, names)
        self.total = self.missing = self.spaces = self.zeros = self.recomposed = self.numbers = 0
        self.example: tuple[str, ...] = ()

    def blocks(self) -> Iterator[tuple[bytearray, NDArray[np.int64]]]:
        """The hashes of ids, 32 bytes each, and their rows; those that several rows have are among them."""
        for block in self._blocks:
            batch = self._spelled(block)
            kept = np.flatnonzero(_present(batch).to_numpy())
            rows = kept + self.total
            if len(kept):
                full = batch[kept]
                self.example = self.example or tuple(_readable(part) for part in full.row(0))
                texts = full.select(name for name, dtype in block.schema.items() if not dtype.is_numeric())
                digits = _count(texts, lambda text: text.str.contains(_DIGITS), pl.all_horizontal)
                self.numbers += digits if texts.width else len(full)
                self.spaces += _count(texts, lambda text: text != text.str.strip_chars())
                self.zeros += _count(texts, lambda text: text.str.contains(_ZEROS))
                yield self._hashed(full, rows), rows
            self.missing += len(batch) - len(kept)
            self.total += len(batch)

    def report(self, repeated_ids: int, repeated_rows: int, alike: tuple[int, int] | None) -> IdReport:
        """Report on all rows, so many of which are left out since their id is in several, with two rows for example.

        A `DataError` where none has an id that can be used.
        """
        report = IdReport(
            source=self.source, total=self.total, missing=self.missing, repeated_ids=repeated_ids,
            repeated_rows=repeated_rows, alike=alike, kept=self.total - self.missing - repeated_rows,
            spaces=self.spaces, zeros=self.zeros, recomposed=self.recomposed, numbers=self.numbers,
            example=self.example,
        )  # fmt: skip
        if not report.kept:
            raise DataError(f"no row has an id that can be used: check the file and its id columns\n{report}")
        return report

    def _spelled(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Each id column as text; bytes stay bytes."""
        found = []
        for column in batch:
            dtype = column.dtype
            textual = dtype in (pl.String, pl.Binary, pl.Date, pl.Categorical, pl.Enum, pl.Null)
            if not dtype.is_numeric() and not textual:
                raise DataError(
                    f"{self.source}: the id column {column.name!r} is {dtype}, and two sides may write such values "
                    "differently: cast it to an integer or to text, in the same way on both sides"
                )
            if dtype.is_float() or dtype.is_decimal():
                column = self._whole(column)
            text = column if dtype == pl.Binary else column.cast(pl.String)
            found.append(whole_spelled(text) if dtype == pl.String else text)
        return pl.DataFrame(found)

    def _whole(self, column: pl.Series) -> pl.Series:
        """An id column of numbers with decimals, which pandas makes of whole ones where some are missing."""
        values = column.cast(pl.Float64).fill_nan(None)
        odd = ((values != values.floor()) | (values.abs() >= _EXACT)).fill_null(False)
        if odd.any():
            row = int(odd.arg_max() or 0)
            raise DataError(
                f"{self.source}: row {self.total + row} (counted from 0) has the id {column[row]!r} in the column "
                f"{column.name!r}, which is not a whole number below 2^53: write ids as text, alike on both sides"
            )
        return values.cast(pl.Int64)

    def _hashed(self, batch: pl.DataFrame, rows: NDArray[np.int64]) -> bytearray:
        columns, found, begun = [self._encoded(column) for column in batch], bytearray(), _BASE.copy
        for place, parts in enumerate(zip(*columns, strict=True)):
            state = begun()
            for part in parts:  # each with its length, so that no two tuples look alike
                if len(part) > LONGEST:
                    raise DataError(
                        f"{self.source}, row {rows[place]}: an id of {len(part)} bytes is longer than {LONGEST}: "
                        f"is one of {batch.columns} the wrong column?"
                    )
                state.update(len(part).to_bytes(8, "little") + part)
            found += state.digest()
        return found

    def _encoded(self, column: pl.Series) -> Iterator[bytes]:
        if column.dtype == pl.Binary:
            yield from column
            return
        for text in column.to_list():
            if not text.isascii() and not unicodedata.is_normalized("NFC", text):
                self.recomposed += 1
                yield unicodedata.normalize("NFC", text).encode()
            else:
                yield text.encode()


def without_repeats(reading: Reading, read: bytearray, at: bytearray, *, unique: bool = False) -> Ids:
    """Ids from all hashes and rows that were read, without those that are there more than once."""
    hashes, rows = np.frombuffer(read, np.uint8).reshape(-1, _SIZE), np.frombuffer(at, np.int64)
    keep, repeated, example = distinct(hashes)
    where = None if example is None else (int(rows[example[0]]), int(rows[example[1]]))
    if where is not None and unique:
        raise repeats_error(reading.source, where, repeated)
    report = reading.report(repeated, len(rows) - int(keep.sum()), where)
    return Ids(hashes[keep], rows[keep], report) if report.repeated_rows else Ids(hashes, rows, report)


def repeats_error(source: str, where: tuple[int, int], repeated: int) -> DataError:
    """Error: so many ids are in several rows, one of them in these two."""
    return DataError(
        f"{source}: rows {where[0]} and {where[1]} have the same id, and {repeated} ids are in several rows: make them "
        "unique"
    )


def distinct(hashes: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], int, tuple[np.int64, np.int64] | None]:
    """Mask of the hashes (or keys) that are there once, the number of others, and the first two places of one."""
    keep = np.ones(len(hashes), np.bool_)
    words = hashes.view(np.uint64)
    some = _alike(words[:, 0])  # few, as a rule: whole hashes are sorted for them alone
    order = some[np.lexsort(words[some].T)]  # stable: equal ones stay in the order of their rows
    same = np.zeros(len(some) + 1, np.bool_)
    same[1:-1] = (words[order[1:]] == words[order[:-1]]).all(axis=1)  # as the one before it
    keep[order[same[:-1] | same[1:]]] = False
    starts = np.flatnonzero(~same[:-1] & same[1:])
    if not len(starts):
        return keep, 0, None
    earliest = starts[np.argmin(order[starts])]
    return keep, len(starts), (order[earliest], order[earliest + 1])


def _alike(words: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The places of all words that are there more than once."""
    ordered = np.sort(words)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return np.empty(0, np.intp)
    at = np.minimum(np.searchsorted(twice, words), len(twice) - 1)
    return np.flatnonzero(twice[at] == words)


def _present(batch: pl.DataFrame) -> pl.Series:
    """Mask of the rows in which no id column is null or empty: in CSV files the two can't be told apart."""
    empty = {pl.String: "", pl.Binary: b""}
    kinds = {name: dtype.base_type() for name, dtype in batch.schema.items()}
    each = [pl.col(name).is_not_null() & (pl.col(name) != pl.lit(empty[kind])) for name, kind in kinds.items()]
    return batch.select(pl.all_horizontal(each).alias("present"))["present"]


def _count(
    batch: pl.DataFrame, so: Callable[[pl.Expr], pl.Expr], each: Callable[..., pl.Expr] = pl.any_horizontal
) -> int:
    """Number of rows in which a text column is so, or each one."""
    texts = [so(pl.col(name)) for name, dtype in batch.schema.items() if dtype == pl.String]
    return int(batch.select(each(texts).sum()).item()) if texts else 0


def _readable(part: str | bytes) -> str:
    return part if isinstance(part, str) else part.decode(errors="replace")
