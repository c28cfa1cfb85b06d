"""Where a feature party's rows come from while it serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from tacit.align.cache import file_facts
from tacit.align.sources import check_columns, scan
from tacit.company.folder import Folder

__all__ = ["Rows", "open_rows"]


class Rows(Protocol):
    """The rows of a feature party."""

    def ids(self) -> pl.DataFrame:
        """The id columns of all rows that are known now."""
        ...

    def fetch(self, ids: pl.DataFrame) -> pl.DataFrame:
        """The id columns and the embedder's columns of these rows, in this order; rows gone meanwhile are left out."""
        ...


def open_rows(folder: Folder, columns: Sequence[str]) -> Rows:
    """The party's rows, from what party.toml names.

    Args:
        folder: of the party.
        columns: that the embedder needs.
    """
    return TableRows(folder.data, folder.table.ids, columns)


class TableRows:
    """A Parquet or CSV file, in memory; read again when it has changed.

    Args:
        path: of the file.
        ids: its columns that name a row.
        columns: that are needed beside them.
    """

    def __init__(self, path: Path, ids: Sequence[str], columns: Sequence[str]) -> None:
        self._path, self._ids = path, list(ids)
        self._columns = list(dict.fromkeys((*ids, *columns)))
        check_columns(path, self._columns)
        self._read()

    def _read(self) -> None:
        self._facts = file_facts(self._path)
        table = scan(self._path).select(self._columns).collect()
        hashes = table.select(self._ids).hash_rows().to_numpy()
        order = np.argsort(hashes, kind="stable")
        self._held = table, hashes[order], order

    def ids(self) -> pl.DataFrame:
        """The id columns of all rows that are known now."""
        if file_facts(self._path) != self._facts:
            self._read()
        return self._held[0].select(self._ids)

    def fetch(self, ids: pl.DataFrame) -> pl.DataFrame:
        """The id columns and the embedder's columns of these rows, in this order; rows gone meanwhile are left out."""
        table, hashes, order = self._held
        if not len(table):
            return table
        at = np.minimum(np.searchsorted(hashes, ids.hash_rows().to_numpy()), len(table) - 1)
        found = table[order[at]]
        same = [found[name].eq_missing(ids[name]) for name in self._ids]
        return found.filter(pl.all_horizontal(same)) if len(found) else found
