"""What a data set is to the lab: rows of both parties with their labels, ready to train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import DataError


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

    def _each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        features, own = (tuple(map(change, each)) for each in (self.features, self.own))
        return Rows(features, own, change(self.labels), None if self.days is None else change(self.days))


@dataclass(frozen=True)
class Table:
    """The inputs of a table: what `tacit.models.wide_deep` takes.

    Features are always the pair (codes, numbers), either of which may have no column; so are the label party's own
    ones, where it has any.
    """

    cardinalities: tuple[int, ...]  # the number of codes of each categorical column of the feature party
    numeric: int  # its numeric columns
    own_cardinalities: tuple[int, ...] = ()  # the same of the label party
    own_numeric: int = 0  # its numeric columns


@dataclass(frozen=True)
class Pictures:
    """The inputs of pictures, (rows, channels, size, size): what `tacit.models.conv` takes."""

    channels: int
    size: int


@dataclass(frozen=True)
class Data:
    """A data set, encoded for both parties with what was fitted on its training rows alone."""

    name: str  # as `tacit.lab.data.load` knows it
    train: Rows  # the training rows
    test: Rows  # the test rows
    inputs: Table | Pictures  # what a network must be built for
    skipped: int = 0  # rows of the source that could not be read and were left out

    @property
    def share(self) -> float:
        """The share of positives among the training rows."""
        return float(self.train.labels.double().mean())

    def to(self, device: torch.device | str) -> Data:
        """The same on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))
