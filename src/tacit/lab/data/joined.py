"""From one table with the columns of both parties to a data set of the lab."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from tacit.align.tables import Columns, Inputs
from tacit.lab.data.faults import Faults
from tacit.lab.data.rows import Data, Rows, Table
from tacit.lab.tables import Part, split

__all__ = ["DAY", "KEY", "LABEL", "of_table"]

KEY = "tacit id"
"""The column of a table's integer id, by which rows are drawn."""

LABEL = "tacit label"
"""The column of its label."""

DAY = "tacit day"
"""The column of the day of each row, where it has one."""


_CODES = (
    "Each category gets a code in the order of spelling; one that is missing or in no training row gets the code 0.",
)


def of_table(
    name: str,
    table: pl.DataFrame,
    features: Columns,
    own: Columns,
    *,
    read: tuple[str, ...],
    faults: Faults,
    rows: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
) -> Data:
    """The data set: rows were drawn for testing by a hash of their id, and all else fitted on the other ones.

    Where the table has the column `DAY`, the rows of each part are sorted by it, and by their id within a day.

    Args:
        name: of the data set.
        table: one row for each example, with the columns `KEY` and `LABEL`.
        features: what the feature party uses.
        own: what the label party uses of its own.
        read: what was done so far, one sentence for each step.
        faults: the rows that were left out.
        rows: use this many rows at most, training and test together, drawn at random; None for all.
        seed: draws the test rows and the order.
        test_share: the chance of a row to be for testing.
    """
    whole = split(table, key=KEY, label=LABEL, features=features, own=own, test_share=test_share, seed=seed, limit=rows)
    used = len(whole.train) + len(whole.test)
    days = _days(table) if DAY in table.columns else None
    inputs = whole.train
    return Data(
        name=name,
        train=_rows(whole.train, days),
        test=_rows(whole.test, days),
        inputs=Table(
            inputs.feature_party.cardinalities, inputs.feature_party.numeric.shape[1],
            inputs.label_party.cardinalities, inputs.label_party.numeric.shape[1],
        ),
        made=(
            *read,
            *faults.said(),
            *(() if used == len(table) else (f"{used:,} of {len(table):,} rows were drawn by a hash of id and seed.",)),
            f"{len(whole.test):,} of {used:,} rows were drawn for testing by a hash of id and seed {seed}, each "
            f"with the chance {test_share:g}.",
            *(_CODES if features.categorical or own.categorical else ()),
            "Each number is centred and scaled by mean and standard deviation of the training rows; a missing one is "
            "the mean.",
            *(() if days is None else ("The rows are sorted by day.",)),
        ),
        skipped=faults.skipped,
    )  # fmt: skip


def _days(table: pl.DataFrame) -> tuple[Tensor, Tensor]:
    """All ids in their order, and the day of each."""
    known = table.select(pl.col(KEY, DAY).cast(pl.Int64)).sort(KEY)
    ids, days = (torch.from_numpy(known[name].to_numpy(writable=True)) for name in (KEY, DAY))
    return ids, days


def _rows(part: Part, days: tuple[Tensor, Tensor] | None) -> Rows:
    found = Rows(part.feature_party.tensors, _own(part.label_party), part.labels)
    if days is None:
        return found
    ids, day = days
    by_id = part.ids.argsort()
    of_row = day[torch.searchsorted(ids, part.ids[by_id])]
    in_order = of_row.argsort(stable=True)
    found = found[by_id[in_order]]
    return Rows(found.features, found.own, found.labels, of_row[in_order])


def _own(inputs: Inputs) -> tuple[Tensor, ...]:
    """The label party's tensors; none where it has no column."""
    return inputs.tensors if any(tensor.shape[1] for tensor in inputs.tensors) else ()
