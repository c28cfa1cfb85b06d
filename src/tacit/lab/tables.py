"""From two tables with a common id to tensors for both parties, with everything fitted on the training rows alone.

Joining in the clear is for simulations: two companies that do not share their ids align them privately instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import DataError, UsageError

__all__ = ["Columns", "Part", "Party", "Split", "scramble", "split"]


@dataclass(frozen=True)
class Party:
    """One party's inputs, ready for `module(party.categorical, party.numeric)`.

    Attributes:
        categorical: codes, each below the cardinality of its column; 0 is a missing value or one that no training
            row has.  (rows, number of cardinalities) int64
        numeric: numbers with mean 0 and variance 1 over the training rows that have them; a missing one is 0.
            (rows, columns) float32
        cardinalities: for each categorical column the number of its codes, 0 included.
    """

    categorical: Tensor
    numeric: Tensor
    cardinalities: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.categorical)

    def __getitem__(self, rows: Tensor | slice) -> Party:
        """Some of the rows, for a batch."""
        return Party(self.categorical[rows], self.numeric[rows], self.cardinalities)


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
    feature_party: Party
    label_party: Party
    labels: Tensor

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Split:
    """Training and test rows, encoded alike."""

    train: Part
    test: Part


@dataclass(frozen=True)
class Columns:
    """Which columns of a joined table a party uses, and how.

    Attributes:
        categorical: columns that become codes.
        numeric: columns that are standardised.
        flagged: numeric columns whose absence is common enough to be a column of its own (1 where missing,
            then standardised like any other).
    """

    categorical: tuple[str, ...]
    numeric: tuple[str, ...]
    flagged: tuple[str, ...] = ()


def scramble(ids: NDArray[np.integer], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each id that depends on nothing but the id and the seed.

    It is the same on every machine and with every version of every library, so what it chooses stays chosen.

    >>> scramble(np.array([7, 8, 7]), seed=0).round(4).tolist()
    [0.3935, 0.8927, 0.3935]
    """
    key = _mix(np.array([seed % 2**64], dtype=np.uint64))
    return (_mix(ids.astype(np.uint64) ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One round of splitmix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


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
    parties = [_encode(table, columns, train) for columns in (features, own)]
    parts = [
        Part(ids[rows], parties[0][rows], parties[1][rows], labels[rows])
        for rows in (torch.from_numpy(train), torch.from_numpy(test))
    ]
    return Split(train=parts[0], test=parts[1])


def _encode(table: pl.DataFrame, columns: Columns, train: NDArray[np.intp]) -> Party:
    """All rows of one party, by vocabularies and statistics of the training rows."""
    coded = [_codes(table[name], train) for name in columns.categorical]
    numbers = [table[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in columns.numeric]
    numbers += [table[name].is_null().cast(pl.Float64).to_numpy() for name in columns.flagged]
    return Party(
        categorical=_stack([codes for codes, _ in coded], len(table), np.int64),
        numeric=_stack([_standardise(values, train) for values in numbers], len(table), np.float32),
        cardinalities=tuple(cardinality for _, cardinality in coded),
    )


def _codes(column: pl.Series, train: NDArray[np.intp]) -> tuple[NDArray[np.int64], int]:
    """Codes from 1 on in the order of the training rows' values, 0 for all others; and the number of codes."""
    known = column[train].drop_nulls().unique().sort()
    vocabulary = pl.DataFrame({column.name: known, "code": np.arange(1, len(known) + 1)})
    codes = column.to_frame().join(vocabulary, on=column.name, how="left", maintain_order="left")["code"]
    return codes.fill_null(0).to_numpy(), len(known) + 1


def _standardise(values: NDArray[np.float64], train: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean 0 and variance 1 over the training rows that have a value; then 0 where none is."""
    seen = values[train]
    seen = seen[~np.isnan(seen)]
    mean, spread = (seen.mean(), seen.std()) if len(seen) else (0.0, 0.0)
    return np.nan_to_num((values - mean) / (spread if spread > 0 else 1.0), nan=0.0)


def _stack(columns: Sequence[NDArray[np.generic]], rows: int, dtype: type[np.generic]) -> Tensor:
    """Columns side by side as one row-major tensor; no columns give a tensor of width 0."""
    table = np.empty((rows, len(columns)), dtype=dtype)
    for place, column in enumerate(columns):
        table[:, place] = column
    return torch.from_numpy(table)
