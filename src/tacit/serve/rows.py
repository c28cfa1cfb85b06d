"""A feature party's rows while it serves: one table, held in memory as the model takes it.

What is wrong with it (a column that is missing, values of another kind than in training) is told when it is opened, not
at the first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import torch

from tacit.align.cache import file_facts
from tacit.align.encoder import Inputs, require
from tacit.align.sources import blocks, check_columns
from tacit.company.folder import Folder
from tacit.errors import DataError
from tacit.serve.halves import encoded, trained_encoder


@dataclass(frozen=True)
class Held:
    """A table's rows in memory: their ids, and what the model takes of them."""

    facts: dict[str, Any]  # of the file
    ids: pl.DataFrame
    inputs: Inputs


class ServedTable:
    """The table that `[serve] rows` of party.toml names, or the one under `[data]`: a Parquet or CSV file.

    `held` looks whether the file has changed, and reads it again then. One that has become another and can't be used is
    an error, and the rows before it stay.
    """

    def __init__(self, folder: Folder, columns: Sequence[str]) -> None:
        source = folder.config.serve.rows
        self._path = folder.data if source is None else folder.path / source
        self._ids = folder.table.ids
        self._names = list(dict.fromkeys((*self._ids, *columns)))
        self._encoder = trained_encoder(folder, folder.run_folder(folder.terms), None)
        self._reading = Lock()
        self._held = self._read()

    def held(self) -> Held:
        """All rows as they are now; the same object as before where nothing has changed."""
        with self._reading:
            if file_facts(self._path) != self._held.facts:
                self._held = self._read()
            return self._held

    def _read(self) -> Held:
        path, facts = self._path, file_facts(self._path)
        check_columns(path, self._names)
        ids, parts, done = [], [], 0
        for block in blocks(path, self._names):
            try:
                require(block, self._names)
                parts.append(encoded(self._encoder, block, np.arange(done, done + len(block))))
            except DataError as error:
                raise DataError(f"{path}: {error}") from None
            ids.append(block.select(*self._ids))
            done += len(block)
        if file_facts(path) != facts:
            raise DataError(f"{path} was changed while it was read: put a new file in its place with one rename")
        if not parts:
            raise DataError(f"{path} has no rows: name the table with the rows that are asked for")
        codes, numbers = (torch.cat(tensors) for tensors in zip(*(part.tensors for part in parts), strict=True))
        return Held(facts, pl.concat(ids), replace(parts[0], categorical=codes, numeric=numbers))
