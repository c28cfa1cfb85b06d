"""What a data set is to the lab: rows of both parties with their labels, ready to train on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.errors import DataError, UsageError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Rows:
    """Rows of both parties, in one order. Tensors may be mapped from a file: nobody copies them whole."""

    # what the feature party's bottom is called with, one row for each example. Codes are int32 or int64; pictures may
    # be bytes, which the stack turns into numbers from 0 to 1 batch by batch
    features: tuple[Tensor, ...]
    # what the label party's top is called with beside the embedding; empty where it has nothing of its own
    own: tuple[Tensor, ...]
    labels: Tensor  # 0 or 1. (rows,) float32
    # the day of each row, counted from 0 and never falling, where the data set has days. (rows,) int64
    days: Tensor | None = None

    def __post_init__(self) -> None:
        for one in (*self.features, *self.own, *(() if self.days is None else (self.days,))):
            if len(one) != len(self.labels):
                raise DataError(f"a tensor of {len(one)} rows stands beside {len(self.labels)} labels: read it anew")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> Rows:
        """Some of the rows; a slice of a mapped file stays mapped."""
        return self._each(lambda x: x[rows])

    def to(self, device: torch.device | str) -> Rows:
        """The same on another device."""
        return self._each(lambda x: x.to(device))

    @property
    def shared(self) -> bool:
        """Whether the label party sees the feature party's own columns, and not others."""
        return bool(self.own) and all(map(operator.is_, self.own, self.features))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        features = tuple(map(change, self.features))
        own = features if self.shared else tuple(map(change, self.own))  # what is shared is there once
        return Rows(features, own, change(self.labels), None if self.days is None else change(self.days))


@dataclass(frozen=True)
class Table:
    """The inputs of a table: what `tacit.split.models.wide_deep` takes.

    Features are always the pair (codes, numbers), either of which may have no column; so are the label party's own
    ones, where it has any.
    """

    cardinalities: tuple[int, ...]  # the number of codes of each categorical column of the feature party
    numeric: int  # its numeric columns
    own_cardinalities: tuple[int, ...] = ()  # the same of the label party
    own_numeric: int = 0  # its numeric columns


@dataclass(frozen=True)
class Pictures:
    """The inputs of pictures, (rows, channels, size, size): what `tacit.split.models.conv` takes."""

    channels: int
    size: int


@dataclass(frozen=True)
class Data:
    """A data set, encoded for both parties with what was fitted on its training rows alone."""

    name: str  # as `tacit.lab.data.load` knows it
    train: Rows  # the training rows
    test: Rows  # the test rows
    inputs: Table | Pictures  # what a network must be built for

    @classmethod
    def from_frames(
        cls,
        name: str,
        features: pl.DataFrame,
        labels: pl.Series | Sequence[int],
        *,
        own: pl.DataFrame | None = None,
        days: pl.Series | None = None,
        test_share: float = 0.2,
        seed: int = 0,
    ) -> Data:
        """Your own rows, which are in memory: polars reads what there is, from any kind of file.

        Text and truth values are categories, numbers are numbers; cast what is meant otherwise. Both parties' rows are
        in one order. They are encoded as those of `flights`: with what the training rows alone say, to codes, and to
        numbers of mean 0 and variance 1.

        Args:
            name: of the data set.
            features: the feature party's columns.
            labels: 0 or 1 for each row.
            own: the label party's own columns.
            days: the day of each row, as dates or whole numbers; rows are then sorted by it.
            test_share: the share of the rows for testing, drawn at random.
            seed: of that draw.

        >>> import polars as pl
        >>> visits = pl.DataFrame({"site": ["a", "b"] * 50, "age": range(100)})
        >>> data = Data.from_frames("visits", visits, [0, 1] * 50)
        >>> len(data.train) + len(data.test), data.inputs
        (100, Table(cardinalities=(3,), numeric=1, own_cardinalities=(), own_numeric=0))
        """
        from tacit.lab.data.joined import framed

        return framed(features, labels, own, days, test_share).data(name, None, seed)

    @property
    def share(self) -> float:
        """The share of positives among the training rows."""
        return float(self.train.labels.double().mean())

    def to(self, device: torch.device | str) -> Data:
        """The same on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    def shared(self) -> Data:
        """The same with all of the feature party's columns at the label party too, for the wide part of the papers'
        network (Li 2022, section 5, footnote 3).
        """
        if not isinstance(self.inputs, Table):
            raise DataError(f"{self.name} holds pictures: only tables have columns that both parties can see")
        codes, numbers = self.inputs.cardinalities, self.inputs.numeric
        train, test = (replace(rows, own=rows.features) for rows in (self.train, self.test))
        return replace(self, train=train, test=test, inputs=Table(codes, numbers, codes, numbers))


def limited(count: int, rows: int | None, sample: float) -> int:
    """How many of so many rows are used: a share of them, and no more than were asked for.

    >>> limited(1000, None, 0.1), limited(1000, 50, 0.1), limited(1000, 500, 1.0)
    (100, 50, 500)
    """
    if rows is not None and rows < 1:
        raise UsageError(f"rows is {rows}: choose a number of rows from 1 on, or leave it out for all")
    if not 0 < sample <= 1:
        raise UsageError(f"sample is {sample}: give a share of the rows above 0 and at most 1")
    share = round(sample * count)
    return share if rows is None else min(rows, share)
