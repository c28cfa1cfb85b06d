"""From one table with the columns of both parties to tensors, with everything fitted on the training rows alone.

Two companies that do not share their ids align them privately instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from tacit.align.batches import scramble
from tacit.align.tables import Columns, Encoder, Inputs
from tacit.errors import DataError, UsageError
from tacit.lab.data.faults import Faults
from tacit.lab.data.rows import Data, Rows, Table

DAY = "tacit day"
"""The column of the day of each row, where a table has one."""

_CODES = (
    "Each category gets a code in the order of spelling; one that is missing or in no training row gets the code 0.",
)


@dataclass(frozen=True)
class Part:
    """The training or the test rows of both parties, in one order."""

    ids: Tensor  # the common id of each row. (rows,) int64
    feature_party: Inputs  # inputs of the party without labels
    label_party: Inputs  # inputs that the party with the labels has itself
    labels: Tensor  # 0 or 1. (rows,) float32

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
        parties = [Encoder.fit(table, columns, train).encode(table) for columns in (self.features, self.own)]
        parts = [
            Part(ids[rows], parties[0][rows], parties[1][rows], labels[rows])
            for rows in (torch.from_numpy(train), torch.from_numpy(test))
        ]
        return Split(train=parts[0], test=parts[1])

    def data(
        self,
        name: str,
        *,
        read: tuple[str, ...],
        faults: Faults,
        rows: int | None = None,
        seed: int = 0,
        test_share: float = 0.2,
    ) -> Data:
        """The same as a data set of the lab.

        Where the table has the column `DAY`, the rows of each part are sorted by it, and by their id within a day.
        """
        parts = self.split(test_share, seed, rows)
        used, features, own = len(parts.train) + len(parts.test), parts.train.feature_party, parts.train.label_party
        days = self._days() if DAY in self.table.columns else None
        drawn = f"{used:,} of {len(self.table):,} rows were drawn by a hash of id and seed."
        return Data(
            name=name,
            train=_rows(parts.train, days),
            test=_rows(parts.test, days),
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
                *(() if days is None else ("The rows are sorted by day.",)),
            ),
            skipped=faults.skipped,
        )

    def _days(self) -> tuple[Tensor, Tensor]:
        known = self.table.select(pl.col(self.key, DAY).cast(pl.Int64)).sort(self.key)
        ids, days = (torch.from_numpy(known[name].to_numpy(writable=True)) for name in (self.key, DAY))
        return ids, days


def _rows(part: Part, days: tuple[Tensor, Tensor] | None) -> Rows:
    own = part.label_party.tensors
    found = Rows(part.feature_party.tensors, own if any(tensor.shape[1] for tensor in own) else (), part.labels)
    if days is None:
        return found
    ids, day = days
    by_id = part.ids.argsort()
    of_row = day[torch.searchsorted(ids, part.ids[by_id])]
    in_order = of_row.argsort(stable=True)
    found = found[by_id[in_order]]
    return Rows(found.features, found.own, found.labels, of_row[in_order])
