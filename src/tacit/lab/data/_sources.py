"""What streamed tables come from: chunks of rows, each of bounded size, and where to go on after each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from tacit.errors import DataError

ROW = "tacit row"
"""The column that holds each row's number in the file, counted from 0; rows that were left out are counted too."""


@dataclass(frozen=True)
class Position:
    """Where a chunk ends: what to read next."""

    byte: int = 0  # in the text, unpacked where the file is packed; 0 where a source has no bytes to count
    row: int = 0  # the number of rows before it
    done: int = 0  # how much of `Source.size` is read


@dataclass(frozen=True)
class Bad:
    """A row that can't be read."""

    row: int  # its number, counted from 0
    place: str  # the file and the line or row, as a person looks for it
    why: str  # what is wrong with it

    def error(self) -> DataError:
        """What to raise where bad rows are not to be skipped."""
        return DataError(
            f'{self.place}: {self.why}: correct it, or pass bad="skip" to leave such rows out and count them'
        )


@dataclass(frozen=True)
class Chunk:
    """Some rows that follow each other, and those among them that could not be read."""

    table: pl.DataFrame
    after: Position
    bad: tuple[Bad, ...] = ()

    def about(self) -> dict[str, Any]:
        """All but the rows, for JSON."""
        return {"after": asdict(self.after), "bad": [asdict(each) for each in self.bad]}


class Source(Protocol):
    """A table that is read chunk by chunk, always in the same chunks."""

    @property
    def path(self) -> Path:
        """The file that errors and the cache are named after."""

    @property
    def size(self) -> int:
        """How much there is to read, in the unit of `Position.done`."""

    def facts(self) -> dict[str, Any]:
        """By which a changed source, or another way to read it, is noticed; JSON gives it back as it is."""

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """The chunks from a position on; each has the column `ROW` and those that the layout keeps."""


def found(path: Path, names: tuple[str, ...], remedy: str) -> Path:
    """The file itself, or the first of these that the folder holds."""
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"{path} is missing: {remedy}")
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    raise DataError(f"{path} holds none of {', '.join(names)}: {remedy}")
