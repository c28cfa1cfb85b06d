"""Where a feature party's service gets its rows from: a file in memory, a database, or a function of the party's own.

What is wrong with a source (a column that is missing, values of another kind than in training) is told when it is
opened, not at the first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.cache import file_facts
from tacit.align.encoder import Encoder, Inputs, require
from tacit.align.ids import read_ids
from tacit.align.sources import blocks, check_columns
from tacit.company.factories import load_factory
from tacit.company.folder import Folder
from tacit.errors import DataError, UsageError
from tacit.serve.halves import encoded, trained_encoder

_SAMPLE = 64  # rows that are tried where not all can be looked at


class Rows(Protocol):
    """Rows of a feature party that are fetched by their ids. Both methods may be called by several threads at once.

    A source that can't be read at the moment raises a `DataError`: the next call may find it whole again.
    """

    def ids(self) -> pl.DataFrame:
        """The id columns of all rows that are there now; the same object as before where nothing has changed."""

    def fetch(self, ids: pl.DataFrame) -> pl.DataFrame:
        """Some rows: the id columns and those that are embedded, in the order of `ids`.

        Rows that are gone meanwhile are left out, as are those whose id several rows have.

        Args:
            ids: some rows of what `ids()` gave.
        """


@dataclass(frozen=True)
class Wanted:
    """What a source must have."""

    ids: tuple[str, ...]  # the columns that name a row
    columns: tuple[str, ...]  # that are embedded
    encoder: Encoder  # what the training has learnt of them

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        return list(dict.fromkeys((*self.ids, *self.columns)))

    def encoded(self, source: str, table: pl.DataFrame, rows: NDArray[np.int64] | None = None) -> Inputs:
        """What a model takes of rows of these numbers; a `DataError` says which source, column and row can't be."""
        try:
            require(table, self.names)
            return encoded(self.encoder, table, rows)
        except DataError as error:
            raise DataError(f"{source}: {error}") from None


def open_rows(folder: Folder, columns: Sequence[str]) -> Rows | FileRows:
    """The rows of a feature party, from where `[serve] rows` of its party.toml says."""
    encoder = trained_encoder(folder, folder.run_folder(folder.terms), None)
    wanted, source = Wanted(folder.table.ids, tuple(columns), encoder), folder.config.serve.rows
    if source.query is not None:
        from tacit.serve.sql_rows import SqlRows

        return _InOrder("[serve] rows.query", SqlRows(source.query, source.url_from, wanted), wanted).tried()
    if source.factory is not None:
        function = load_factory(folder.path, source.factory, "[serve] rows")
        made = function(wanted.ids, wanted.columns)
        if not (callable(getattr(made, "ids", None)) and callable(getattr(made, "fetch", None))):
            raise UsageError(
                f"[serve] rows.factory = {source.factory!r} gave a {type(made).__name__}: return an object with the "
                "methods ids() and fetch(ids)"
            )
        return _InOrder(f"[serve] rows.factory = {source.factory!r}", made, wanted).tried()
    return FileRows(folder.data if source.path is None else folder.path / source.path, wanted)


# --- a file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """A file's rows in memory: their ids, and what the model takes of them."""

    facts: dict[str, Any]  # of the file
    ids: pl.DataFrame
    inputs: Inputs


class FileRows:
    """A Parquet or CSV file, held in memory as the model takes it, so that a request encodes nothing.

    `held` looks whether the file has changed, and reads it again then. One that has become another and can't be used is
    an error, and the rows before it stay.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path, self._wanted, self._reading = path, wanted, Lock()
        self._held = self._read()

    def held(self) -> Held:
        """All rows as they are now; the same object as before where nothing has changed."""
        with self._reading:
            if file_facts(self._path) != self._held.facts:
                self._held = self._read()
            return self._held

    def _read(self) -> Held:
        path, wanted, facts = self._path, self._wanted, file_facts(self._path)
        check_columns(path, wanted.names)
        ids, parts, done = [], [], 0
        for block in blocks(path, wanted.names):
            parts.append(wanted.encoded(str(path), block, np.arange(done, done + len(block))))
            ids.append(block.select(*wanted.ids))
            done += len(block)
        if file_facts(path) != facts:
            raise DataError(f"{path} was changed while it was read: put a new file in its place with one rename")
        if not parts:
            raise DataError(f"{path} has no rows: name the table with the rows that are asked for")
        codes, numbers = (torch.cat(tensors) for tensors in zip(*(part.tensors for part in parts), strict=True))
        return Held(facts, pl.concat(ids), replace(parts[0], categorical=codes, numeric=numbers))


# --- what is asked each time -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _InOrder:
    """A source that is asked each time, and of which nothing is taken as it comes."""

    name: str
    source: Rows
    wanted: Wanted

    def ids(self) -> pl.DataFrame:
        return self._columns(self._called(self.source.ids), self.wanted.ids)

    def fetch(self, ids: pl.DataFrame) -> pl.DataFrame:
        asked = ids.select(*self.wanted.ids)
        found = self._columns(self._called(self.source.fetch, asked), self.wanted.names)
        try:
            alike = found.cast(asked.schema)
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{self.name}: rows come with ids of another kind ({type(error).__name__})") from None
        names = list(self.wanted.ids)
        single = alike.unique(names, keep="none")
        return asked.join(single, on=names, how="inner", maintain_order="left").select(self.wanted.names)

    def tried(self) -> _InOrder:
        """Itself, when some rows have been asked for and could be embedded."""
        sample = self.ids().head(_SAMPLE)
        if not len(sample):
            raise DataError(f"{self.name} has no rows: nothing can be looked at; start it when there are some")
        try:
            usable = sample[read_ids(sample, self.wanted.ids).rows]
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from None
        found = self.fetch(usable)
        if not len(found):
            raise DataError(
                f"{self.name}: none of the first {len(usable)} ids finds its row again: give ids as integers or as "
                "text, and each to one row"
            )
        self.wanted.encoded(self.name, found)
        return self

    def _called(self, method: Any, *arguments: pl.DataFrame) -> Any:
        """What a method gives; whatever it raises is a `DataError`, in which no id stands."""
        try:
            return method(*arguments)
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{self.name}: {method.__name__} failed with a {type(error).__name__}") from error

    def _columns(self, table: Any, names: Sequence[str]) -> pl.DataFrame:
        if not isinstance(table, pl.DataFrame):
            raise DataError(f"{self.name} gave a {type(table).__name__}: give a polars DataFrame")
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise DataError(
                f"{self.name} has no column {', '.join(map(repr, missing))}; it has: {', '.join(table.columns)}: "
                "correct the names"
            )
        return table.select(*names)
