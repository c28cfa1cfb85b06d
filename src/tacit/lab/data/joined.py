"""Small tables: text files whole in memory, and one table with the columns of both parties as tensors.

Everything is fitted on the training rows alone. Two companies that do not share their ids align them privately instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.batches import scramble
from tacit.align.tables import Columns, Encoder
from tacit.errors import DataError
from tacit.lab.data.faults import Faults, check_rows
from tacit.lab.data.reading import DAY, ROW, Text
from tacit.lab.data.rows import Data, Rows, Table

TEST_SHARE = 0.2
"""Of the rows, for testing: the papers' share."""


@dataclass(frozen=True)
class Good:
    """The rows of a text file that are good so far; each method leaves out some more, as faults."""

    source: Text
    table: pl.DataFrame
    faults: Faults

    @classmethod
    def of(cls, source: Text, faults: Faults) -> Good:
        """The rows that can be read."""
        chunks = list(source.chunks())
        for bad in (bad for chunk in chunks for bad in chunk.bad):
            faults.meet(f"{bad.place}: {bad.why}")
        return cls(source, pl.concat([chunk.table for chunk in chunks]), faults)

    def without(self, wrong: pl.Series, column: str, what: str) -> Good:
        """All rows but the wrong ones."""
        for row, value in self.table.filter(wrong).select(ROW, column).iter_rows():
            shown = "empty" if value is None else repr(value)
            self.faults.meet(f"{self.source.place(row)}: {column} is {shown}, {what}")
        return replace(self, table=self.table.filter(~wrong))

    def unique(self, column: str) -> Good:
        """Rows whose value in this column was in no row before."""
        return self.without(~self.table[column].is_first_distinct(), column, "there already, further up")

    def truth(self, column: str, meanings: Mapping[str, bool], name: str) -> Good:
        """A column of two words as a column of truth values with that name."""
        words = self.table[column].str.strip_chars()
        values = words.replace_strict(meanings, default=None, return_dtype=pl.Boolean).alias(name)
        known = replace(self, table=self.table.with_columns(values))
        return known.without(values.is_null(), column, "neither " + " nor ".join(map(repr, meanings)))


@dataclass(frozen=True)
class Joint:
    """A table with the columns of both parties, joined in the clear: that is for simulations."""

    table: pl.DataFrame  # one row for each example; its days are in the column `DAY`, where it has one
    features: Columns  # what the feature party uses
    own: Columns  # what the label party uses of its own
    key: str = "id"  # the column of the common id, an integer
    label: str = "label"  # the column of the label

    def divided(self, rows: int | None, seed: int) -> tuple[pl.DataFrame, NDArray[np.intp], NDArray[np.intp]]:
        """All rows or so many, and which of them are for training and which for testing.

        Whether a row is for testing depends on its id and the seed alone. The rows come in an order drawn from the
        seed, so that a run through them without shuffling is fair as well.
        """
        check_rows(rows)
        table = self.table[np.argsort(scramble(self.table[self.key].to_numpy(), seed + 1), kind="stable")[:rows]]
        for_test = scramble(table[self.key].to_numpy(), seed) < TEST_SHARE
        train, test = np.flatnonzero(~for_test), np.flatnonzero(for_test)
        if not len(train) or not len(test):
            raise DataError(
                f"{len(table)} rows leave {len(train)} for training and {len(test)} for testing: use more rows"
            )
        return table, train, test

    def data(self, name: str, rows: int | None, seed: int, *, skipped: int = 0) -> Data:
        """Training and test rows of both parties as a data set of the lab.

        Where the table has days, the rows of each part are sorted by them, and by their id within a day.
        """
        table, train, test = self.divided(rows, seed)
        mine, own = (Encoder.fit(table, columns, train).encode(table) for columns in (self.features, self.own))
        labels = torch.from_numpy(table[self.label].to_numpy().astype(np.float32))
        days = torch.from_numpy(table[DAY].to_numpy().astype(np.int64)) if DAY in table.columns else None
        if days is not None:
            train, test = (part[np.lexsort((table[self.key][part], days[part]))] for part in (train, test))
        whole = Rows(mine.tensors, own.tensors if self.own.names else (), labels, days)
        inputs = Table(mine.cardinalities, mine.numeric.shape[1], own.cardinalities, own.numeric.shape[1])
        return Data(name, whole[torch.from_numpy(train)], whole[torch.from_numpy(test)], inputs, skipped)
