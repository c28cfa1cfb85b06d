"""From two tables with a common id to tensors for both parties, with everything fitted on the training rows alone.

Joining in the clear is for simulations: two companies that do not share their ids align them privately instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from tacit.align.tables import Columns, Encoder, Inputs, scramble
from tacit.errors import DataError, UsageError

__all__ = ["Part", "Split", "split"]


@dataclass(frozen=True)
class Part:
    """The training or the test rows of both parties, in one order.

    Attributes:
        ids: the common id of each row.  (rows,) int64
        feature_party: inputs of the party without labels.
        label_party: inputs that the party with the labels has itself.
        labels: 0 or 1.  (rows,) float32
    """

    ids: Tensor
    feature_party: Inputs
    label_party: Inputs
    labels: Tensor

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Split:
    """Training and test rows, encoded alike."""

    train: Part
    test: Part


def split(
    table: pl.DataFrame,
    *,
    key: str,
    label: str,
    features: Columns,
    own: Columns,
    test_share: float = 0.2,
    seed: int = 0,
    limit: int | None = None,
) -> Split:
    """Training and test tensors of both parties from their joined table.

    Whether a row is for testing depends on its id and the seed alone, not on the other rows or on `limit`. The rows of
    each part come in an order drawn from the seed, so that a run through them without shuffling is fair as well.

    Args:
        table: one row for each example.
        key: the column of the common id, an integer.
        label: the column of the label.
        features: what the feature party uses.
        own: what the label party uses of its own.
        test_share: the chance of a row to be for testing.
        seed: draws the test rows and the order.
        limit: use this many rows at most, training and test together; None for all.
    """
    if not 0.0 < test_share < 1.0:
        raise UsageError(f"test_share is {test_share}: choose a share between 0 and 1, for example 0.2")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}: choose a number of rows from 1 on, or None for all")
    table = table[np.argsort(scramble(table[key].to_numpy(), seed + 1), kind="stable")[:limit]]
    for_test = scramble(table[key].to_numpy(), seed) < test_share
    train, test = np.flatnonzero(~for_test), np.flatnonzero(for_test)
    if not len(train) or not len(test):
        raise DataError(
            f"{len(table)} rows leave {len(train)} for training and {len(test)} for testing: raise limit, "
            "or choose another test_share"
        )
    ids = torch.from_numpy(table[key].to_numpy().astype(np.int64))
    labels = torch.from_numpy(table[label].to_numpy().astype(np.float32))
    parties = [Encoder.fit(table, columns, train).encode(table) for columns in (features, own)]
    parts = [
        Part(ids[rows], parties[0][rows], parties[1][rows], labels[rows])
        for rows in (torch.from_numpy(train), torch.from_numpy(test))
    ]
    return Split(train=parts[0], test=parts[1])
