"""Parquet files, and two files with a common id, as sources of chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.align.cache import file_facts
from tacit.errors import DataError
from tacit.lab.data._cells import KINDS
from tacit.lab.data._sources import ROW, Bad, Chunk, Position, Source

CHUNK = 1 << 17
"""Rows that are read at once."""


@dataclass(frozen=True)
class Stored:
    """A Parquet file."""

    path: Path  # of the file
    kinds: Mapping[str, str]  # for each column that is kept, its kind in `tacit.lab.data._cells.KINDS`
    chunk: int = CHUNK  # rows to read at once, which bounds the memory that is taken

    @cached_property
    def size(self) -> int:
        """The number of rows."""
        return int(self._scan().select(pl.len()).collect().item())

    def facts(self) -> dict[str, Any]:
        """The file's, and how its columns are read."""
        return {**file_facts(self.path), "kinds": dict(self.kinds), "chunk": self.chunk}

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_parquet(self.path, glob=False)

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """The rows from a position on, with those left out whose values can't be used."""
        table = self._scan().select(list(self.kinds))
        try:
            for first in range(start.row, self.size, self.chunk):
                rows = table.slice(first, self.chunk).collect(engine="streaming")
                yield self._checked(rows, first)
        except (OSError, pl.exceptions.PolarsError) as error:
            cause = str(error).partition("\n")[0]
            raise DataError(f"{self.path} can't be read ({cause}): look at the file, or write it anew") from None
        if not self.size:
            raise DataError(f"{self.path} has no rows: write it anew")

    def _checked(self, table: pl.DataFrame, first: int) -> Chunk:
        columns = [pl.Series(ROW, np.arange(first, first + len(table), dtype=np.int64))]
        reasons: dict[int, str] = {}
        for name, kind in self.kinds.items():
            cell = KINDS[kind]
            kept = cell.kept(table[name])
            columns += kept.columns
            for row in [] if kept.wrong is None else kept.wrong.arg_true().to_list():
                reasons.setdefault(row, f"{name} is {table[name][row]!r}, not {cell.what}")
        found = pl.DataFrame(columns)
        bad = [Bad(first + row, f"{self.path}, row {first + row} (counted from 0)", reasons[row]) for row in
               sorted(reasons)]  # fmt: skip
        if len(bad) == len(found):
            raise DataError(f"{bad[0].place}: {bad[0].why}, and no row near it is better: name the right column")
        if bad:
            found = found.filter(~pl.int_range(pl.len()).is_in(sorted(reasons)))
        after = Position(0, first + len(table), first + len(table))
        return Chunk(found, after, tuple(bad))


@dataclass(frozen=True)
class Joined:
    """The rows of one file, with what another one says about the same id; rows without a partner are left out.

    Joining in the clear is for simulations. The label party's file, as far as it is used, is held in memory while the
    other one goes by.
    """

    features: Source  # the feature party's file
    labels: Source  # the label party's file, in which an id stands once
    key: str  # the column of the id in both
    # what stands before the names of the label party's columns then, so that both may have one of a name
    prefix: str = "own "

    @property
    def path(self) -> Path:
        """The feature party's file."""
        return self.features.path

    @property
    def size(self) -> int:
        """Of the feature party's file."""
        return self.features.size

    def facts(self) -> dict[str, Any]:
        """Those of both files."""
        return {"features": self.features.facts(), "labels": self.labels.facts(), "key": self.key}

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """The rows of the feature party's file that have a partner."""
        partners, lost = self._partners()
        matched = start.row > 0
        for chunk in self.features.chunks(start):
            table = chunk.table.join(partners, on=self.key, how="inner", maintain_order="left").drop(self.key)
            matched |= len(table) > 0
            yield replace(chunk, table=table, bad=(*lost, *chunk.bad) if not start.row else chunk.bad)
            start, lost = chunk.after, ()
        if not matched:
            raise DataError(
                f"{self.features.path} and {self.labels.path} have no {self.key} in common: look at how they spell it"
            )

    def _partners(self) -> tuple[pl.DataFrame, tuple[Bad, ...]]:
        """All of the label party's rows by their id, and those that can't be read, told as if they came first."""
        tables, bad = [], []
        for chunk in self.labels.chunks(Position()):
            tables.append(chunk.table.drop(ROW))
            bad += [replace(each, row=0) for each in chunk.bad]
        table = pl.concat(tables)
        twice = table[self.key].filter(table[self.key].is_duplicated())
        if len(twice):
            raise DataError(f"{self.labels.path} has the {self.key} {twice[0]!r} twice: keep one row of each")
        return table.rename({name: f"{self.prefix}{name}" for name in table.columns if name != self.key}), tuple(bad)
