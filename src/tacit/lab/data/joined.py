"""Small tables: text files whole in memory, and one table with the columns of both parties as tensors.

Everything is fitted on the training rows alone. Two companies that do not share their ids align them privately instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from torch import Tensor

from tacit.align.batches import scramble
from tacit.align.tables import Columns, Encoder, Inputs
from tacit.errors import DataError, UsageError
from tacit.lab.data.faults import Faults
from tacit.lab.data.reading import DAY, ROW, Text
from tacit.lab.data.rows import Data, Rows, Table

_CODES = (
    "Each category gets a code in the order of spelling; one that is missing or in no training row gets the code 0.",
)


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
class Part:
    """The training or the test rows of both parties, in one order."""

    ids: Tensor  # the common id of each row. (rows,) int64
    feature_party: Inputs  # inputs of the party without labels
    label_party: Inputs  # inputs that the party with the labels has itself
    labels: Tensor  # 0 or 1. (rows,) float32
    days: Tensor | None = None  # where the table has the column `DAY`. (rows,) int64

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Split:
    """Training and test rows, encoded alike."""

    train: Part
    test: Part


@dataclass(frozen=True)
class Joint:
    """A table with the columns of both parties, joined in the clear: that is for simulations."""

    table: pl.DataFrame  # one row for each example
    features: Columns  # what the feature party uses
    own: Columns  # what the label party uses of its own
    key: str = "id"  # the column of the common id, an integer
    label: str = "label"  # the column of the label

    def split(self, test_share: float = 0.2, seed: int = 0, limit: int | None = None) -> Split:
        """Training and test tensors of both parties.

        Whether a row is for testing depends on its id and the seed alone, not on the other rows or on `limit`. The
        rows of each part come in an order drawn from the seed, so that a run through them without shuffling is fair as
        well.
        """
        if not 0.0 < test_share < 1.0:
            raise UsageError(f"test_share is {test_share}: choose a share between 0 and 1, for example 0.2")
        if limit is not None and limit < 1:
            raise UsageError(f"limit is {limit}: choose a number of rows from 1 on, or None for all")
        table = self.table[np.argsort(scramble(self.table[self.key].to_numpy(), seed + 1), kind="stable")[:limit]]
        for_test = scramble(table[self.key].to_numpy(), seed) < test_share
        train, test = np.flatnonzero(~for_test), np.flatnonzero(for_test)
        if not len(train) or not len(test):
            raise DataError(
                f"{len(table)} rows leave {len(train)} for training and {len(test)} for testing: raise limit, "
                "or choose another test_share"
            )
        ids = torch.from_numpy(table[self.key].to_numpy().astype(np.int64))
        labels = torch.from_numpy(table[self.label].to_numpy().astype(np.float32))
        days = torch.from_numpy(table[DAY].to_numpy().astype(np.int64)) if DAY in table.columns else None
        mine, own = (Encoder.fit(table, columns, train).encode(table) for columns in (self.features, self.own))
        parts = [
            Part(ids[rows], mine[rows], own[rows], labels[rows], None if days is None else days[rows])
            for rows in map(torch.from_numpy, (train, test))
        ]
        return Split(*parts)

    def data(
        self, name: str, *, read: tuple[str, ...], faults: Faults, rows: int | None, seed: int, test_share: float
    ) -> Data:
        """The same as a data set of the lab.

        Where the table has the column `DAY`, the rows of each part are sorted by it, and by their id within a day.
        """
        parts = self.split(test_share, seed, rows)
        used, features, own = len(parts.train) + len(parts.test), parts.train.feature_party, parts.train.label_party
        drawn = f"{used:,} of {len(self.table):,} rows were drawn by a hash of id and seed."
        return Data(
            name=name,
            train=_rows(parts.train),
            test=_rows(parts.test),
            inputs=Table(features.cardinalities, features.numeric.shape[1], own.cardinalities, own.numeric.shape[1]),
            made=(
                *read,
                *faults.said(),
                *(() if used == len(self.table) else (drawn,)),
                f"{len(parts.test):,} of {used:,} rows were drawn for testing by a hash of id and seed {seed}, each "
                f"with the chance {test_share:g}.",
                *(_CODES if self.features.categorical or self.own.categorical else ()),
                "Each number is centred and scaled by mean and standard deviation of the training rows; a missing one "
                "is the mean.",
                *(() if parts.train.days is None else ("The rows are sorted by day.",)),
            ),
            skipped=faults.skipped,
        )


def _rows(part: Part) -> Rows:
    own = part.label_party.tensors
    found = Rows(
        part.feature_party.tensors, own if any(tensor.shape[1] for tensor in own) else (), part.labels, part.days
    )
    return found if part.days is None else found[torch.from_numpy(np.lexsort((part.ids.numpy(), part.days.numpy())))]
