"""Text tables in chunks of whole lines: read fast, and searched line by line only where that fails."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from tacit.align.cache import file_facts
from tacit.errors import DataError
from tacit.lab.data._cells import KINDS
from tacit.lab.data._sources import ROW, Bad, Chunk, Position

CHUNK = 32 << 20
"""Bytes of text that are read at once; about 140,000 rows of Criteo."""


@dataclass(frozen=True)
class Layout:
    """What stands in the lines of a file."""

    names: tuple[str, ...]  # of all columns, in the order of the file
    kinds: Mapping[str, str]  # for each column that is kept, its kind in `tacit.lab.data._cells.KINDS`
    separator: str = ","  # between the cells of a line
    header: bool = True  # whether the first line holds the names
    quoted: bool = False  # whether cells may stand in double quotes; a line's end inside of them is not allowed
    remedy: str = "look at the file, or write it anew"  # where to get a right file

    @property
    def schema(self) -> dict[str, type[pl.DataType]]:
        """How polars reads all columns."""
        return {name: KINDS[self.kinds.get(name, "category")].dtype for name in self.names}

    def read(self, lines: bytes) -> pl.DataFrame:
        """The kept columns of lines that are all right; else an error of polars or a `DataError`."""
        read = pl.read_csv(
            lines, has_header=False, separator=self.separator, schema=self.schema,
            columns=[place for place, name in enumerate(self.names) if name in self.kinds],
            quote_char='"' if self.quoted else None,
        )  # fmt: skip
        kept = {name: KINDS[kind].kept(read[name]) for name, kind in self.kinds.items()}
        for name, column in kept.items():
            if column.wrong is not None and column.wrong.any():
                raise DataError(f"{name} holds what is not {KINDS[self.kinds[name]].what}")
        return pl.DataFrame([each for column in kept.values() for each in column.columns])

    def whole(self, lines: bytes, count: int) -> bool:
        """Whether the cells are as many as so many lines should have."""
        wanted = count * (len(self.names) - 1)
        if self.quoted and b'"' in lines:
            try:
                cells = csv.reader(io.StringIO(lines.decode()), delimiter=self.separator, strict=True)
                return sum(len(line) - 1 for line in cells) == wanted
            except (csv.Error, UnicodeDecodeError):
                return False
        return int(np.count_nonzero(np.frombuffer(lines, np.uint8) == ord(self.separator))) == wanted

    def wrong(self, line: bytes) -> str | None:
        """Why a line can't be read; None if it can."""
        try:
            text = line.decode()
            cells = text.split(self.separator)
            if self.quoted and '"' in text:
                cells = next(csv.reader([text], delimiter=self.separator, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            return f"the line is no text ({error})"
        if len(cells) != len(self.names):
            return f"the line has {len(cells)} fields, not {len(self.names)}"
        for name, cell in zip(self.names, cells, strict=True):
            kind = KINDS[self.kinds.get(name, "category")]
            if not kind.readable(cell):
                return f"{name} is {cell[:40]!r}, not {kind.what}"
        return None


@dataclass(frozen=True)
class Text:
    """A text file, plain or packed with gzip (`.gz`), as a source of chunks."""

    path: Path  # of the file
    layout: Layout  # of its lines
    chunk: int = CHUNK  # bytes to read at once, which bounds the memory that is taken

    @cached_property
    def size(self) -> int:
        """The bytes of the file, packed as it is."""
        return int(self.facts()["bytes"])

    def facts(self) -> dict[str, Any]:
        """The file's, the layout and the size of chunks."""
        layout = {key: value for key, value in asdict(self.layout).items() if key != "remedy"}
        return {**file_facts(self.path), "layout": {**layout, "names": list(self.layout.names)}, "chunk": self.chunk}

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """The lines from a position on, with those left out that can't be read."""
        row = start.row
        for lines, byte, done in _lines(self.path, start.byte, self.chunk, self.layout):
            count = lines.count(b"\n")
            table, bad = self._read(lines, row, count)
            row += count
            yield Chunk(table, Position(byte, row, done), tuple(bad))
        if not row:
            raise DataError(f"{self.path} is empty: {self.layout.remedy}")

    def _read(self, lines: bytes, first: int, count: int) -> tuple[pl.DataFrame, list[Bad]]:
        rows = np.arange(first, first + count, dtype=np.int64)
        if self.layout.whole(lines, count):
            try:
                table = self.layout.read(lines)
                if len(table) == count:
                    return table.with_columns(pl.Series(ROW, rows)), []
            except (DataError, pl.exceptions.PolarsError):
                pass  # some line is wrong: the next lines find out which
        return self._search(lines, rows)

    def _search(self, lines: bytes, rows: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[pl.DataFrame, list[Bad]]:
        """Line by line: the rows that can be read, and the others with their reasons."""
        each = lines.split(b"\n")[:-1]
        reasons = [self.layout.wrong(line) for line in each]
        right = [place for place, reason in enumerate(reasons) if reason is None]
        bad = [
            Bad(int(row), f"{self.path}, line {row + 1 + self.layout.header}", reason)
            for row, reason in zip(rows, reasons, strict=True)
            if reason is not None
        ]
        if not right:
            raise DataError(f"{bad[0].place}: {bad[0].why}, and no line near it is better: {self.layout.remedy}")
        try:
            table = self.layout.read(b"".join(each[place] + b"\n" for place in right))
        except (DataError, pl.exceptions.PolarsError) as error:
            cause = str(error).partition("\n")[0]
            where = f"{self.path}, lines {rows[0] + 1 + self.layout.header} to {rows[-1] + 1 + self.layout.header}"
            raise DataError(f"{where}: they can't be read ({cause}): {self.layout.remedy}") from None
        return table.with_columns(pl.Series(ROW, rows[right])), bad


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
    return tuple(names)


@contextmanager
def _opened(path: Path, remedy: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    try:
        with path.open("rb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked, raw  # type: ignore[misc]
            else:
                yield raw, raw
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {remedy}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or cut short ({error}): {remedy}") from None
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): {remedy}") from None


def _lines(path: Path, start: int, size: int, layout: Layout) -> Iterator[tuple[bytes, int, int]]:
    """Blocks of whole lines, each with the byte after it and how much of the file is read."""
    with _opened(path, layout.remedy) as (file, raw):
        if start:
            file.seek(start)
        elif layout.header:
            start = len(file.readline())
        left, last = b"", False
        while not last:
            block = left + file.read(size - len(left))  # the same blocks, wherever reading starts
            last = len(block) < size
            lines = _whole_lines(block, last)
            if not lines and not last:
                raise DataError(f"{path}: there is no end of a line in {size} bytes: {layout.remedy}")
            left = block[len(lines) :]
            if lines:
                start += len(lines)
                lines = lines if lines.endswith(b"\n") else lines + b"\n"
                yield lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines, start, raw.tell()


def _whole_lines(block: bytes, last: bool) -> bytes:
    """The lines of a block that have come to their end, without empty ones after them: these may be the file's last."""
    end = text = len(block) if last else block.rfind(b"\n") + 1
    while text and block[text - 1] in b"\r\n":
        text -= 1
    return block[: block.find(b"\n", text, end) + 1 or end] if text else b""
