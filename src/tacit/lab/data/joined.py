"""Small tables: text files whole in memory, and one table with the columns of both parties as tensors.

Everything is fitted on the training rows alone. Two companies that do not share their ids align them privately instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from polars import selectors

from tacit.align.batches import scramble
from tacit.align.tables import Columns, Encoder
from tacit.errors import DataError, UsageError
from tacit.lab.data.reading import CORRECT, DAY, ROW, WHY, Text, collected, refuse_wrong
from tacit.lab.data.rows import Data, Rows, Table, limited

TEST_SHARE = 0.2
"""Of the rows, for testing: the papers' share."""


def read(source: Text) -> pl.DataFrame:
    """All rows of a text file; the first one that can't be used is refused with its line."""
    table = collected(source, source.table())
    refuse_wrong(source, table)
    return table.drop(WHY)


def refuse(source: Text, table: pl.DataFrame, wrong: pl.Series, column: str, what: str) -> None:
    """Refuse the first of these wrong rows with its line and its value in a column."""
    for row, value in table.filter(wrong).select(ROW, column).iter_rows():
        shown = "empty" if value is None else repr(value)
        raise DataError(f"{source.place(row)}: {column} is {shown}, {what}{CORRECT}")


def refuse_twice(source: Text, table: pl.DataFrame, column: str) -> None:
    """Refuse a row whose value in this column was in a row before."""
    refuse(source, table, ~table[column].is_first_distinct(), column, "there already, further up")


def truth(source: Text, table: pl.DataFrame, column: str, meanings: Mapping[str, bool]) -> pl.Series:
    """A column of two words as truth values."""
    words = table[column].str.strip_chars()
    values = words.replace_strict(meanings, default=None, return_dtype=pl.Boolean)
    refuse(source, table, values.is_null(), column, "neither " + " nor ".join(map(repr, meanings)))
    return values


@dataclass(frozen=True)
class Joint:
    """A table with the columns of both parties, joined in the clear: that is for simulations."""

    table: pl.DataFrame  # one row for each example; its days are in the column `DAY`, where it has one
    features: Columns  # what the feature party uses
    own: Columns  # what the label party uses of its own
    key: str = "id"  # the column of the common id, an integer
    label: str = "label"  # the column of the label
    test_share: float = TEST_SHARE  # of the rows, for testing

    def divided(
        self, rows: int | None, seed: int, sample: float = 1.0
    ) -> tuple[pl.DataFrame, NDArray[np.intp], NDArray[np.intp]]:
        """All rows, a share or so many, drawn at random, and which of them are for training and which for testing.

        Whether a row is for testing depends on its id and the seed alone. The rows come in an order drawn from the
        seed, so that a run through them without shuffling is fair as well.
        """
        order = np.argsort(scramble(self.table[self.key].to_numpy(), seed + 1), kind="stable")
        table = self.table[order[: limited(len(order), rows, sample)]]
        for_test = scramble(table[self.key].to_numpy(), seed) < self.test_share
        train, test = np.flatnonzero(~for_test), np.flatnonzero(for_test)
        if not len(train) or not len(test):
            raise DataError(
                f"{len(table)} rows leave {len(train)} for training and {len(test)} for testing: use more rows"
            )
        return table, train, test

    def data(self, name: str, rows: int | None, seed: int, *, sample: float = 1.0) -> Data:
        """Training and test rows of both parties as a data set of the lab.

        Where the table has days, the rows of each part are sorted by them, and by their id within a day.
        """
        table, train, test = self.divided(rows, seed, sample)
        mine = Encoder.fit(table, self.features, train).encode(table)
        own = Encoder.fit(table, self.own, train).encode(table) if self.own.names else None
        labels = torch.from_numpy(table[self.label].to_numpy().astype(np.float32))
        days = torch.from_numpy(table[DAY].to_numpy().astype(np.int64)) if DAY in table.columns else None
        if days is not None:
            train, test = (part[np.lexsort((table[self.key][part], days[part]))] for part in (train, test))
        whole = Rows(mine.tensors, () if own is None else own.tensors, labels, days)
        inputs = Table(mine.cardinalities, mine.numeric.shape[1])
        if own is not None:
            inputs = replace(inputs, own_cardinalities=own.cardinalities, own_numeric=own.numeric.shape[1])
        return Data(name, whole[torch.from_numpy(train)], whole[torch.from_numpy(test)], inputs)


def framed(
    features: pl.DataFrame,
    labels: pl.Series | Sequence[int],
    own: pl.DataFrame | None,
    days: pl.Series | None,
    test_share: float,
) -> Joint:
    """Both parties' frames as one table; see `Data.from_frames`."""
    if not 0 < test_share < 1:
        raise UsageError(f"test_share is {test_share}: give a share between 0 and 1")
    truth = pl.Series("label", labels)
    if not truth.cast(pl.Float64, strict=False).is_in([0.0, 1.0]).fill_null(False).all():
        raise DataError("labels are 0 or 1 for each row: map the two classes to these, and fill in what is missing")
    table = truth.cast(pl.UInt8).to_frame().with_row_index("id")
    if days is not None:
        since = days.cast(pl.Date).cast(pl.Int32) if days.dtype.is_temporal() else days.cast(pl.Int32)
        table = table.with_columns((since - since.min()).alias(DAY))
    columns = []
    for party, frame in (("features", features), ("own", pl.DataFrame() if own is None else own)):
        if frame.columns and len(frame) != len(truth):
            raise DataError(f"{party} has {len(frame)} rows and there are {len(truth)} labels: give one row for each")
        numbers = frame.select(selectors.numeric()).columns
        words = [name for name in frame.columns if name not in numbers]
        for name in words:
            if (kind := frame[name].dtype) not in (pl.String, pl.Boolean, pl.Categorical, pl.Enum):
                raise DataError(
                    f"the column {name!r} of {party} is of {kind}: cast it to a number, or to text if it is a category"
                )
        named = frame.with_columns(pl.col(words).cast(pl.String))
        table = table.hstack([named[name].alias(f"{party} {name}") for name in frame.columns])
        columns.append(Columns(*(tuple(f"{party} {name}" for name in each) for each in (words, numbers))))
    return Joint(table, columns[0], columns[1], test_share=test_share)
