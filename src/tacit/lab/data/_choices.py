"""What a streamed table is made with: whose columns they are, and which rows are used for what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.align.tables import scramble
from tacit.errors import UsageError
from tacit.lab.data._cells import DAY
from tacit.lab.data._fitting import Scaling

__all__ = ["TEST", "TRAIN", "Options", "Schema", "shared"]

TRAIN, TEST = 1, 2
"""What a row is for."""


@dataclass(frozen=True)
class Schema:
    """Which columns of a source are used, and by whom.

    Attributes:
        name: of the data set.
        label: the column of the label.
        categorical: columns of the feature party that become codes.
        numeric: its columns of numbers.
        own_categorical: the same of the label party.
        own_numeric: its columns of numbers.
        days: whether the source gives the day of each row.
    """

    name: str
    label: str
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    own_categorical: tuple[str, ...] = ()
    own_numeric: tuple[str, ...] = ()
    days: bool = False

    @property
    def files(self) -> dict[str, tuple[str, ...]]:
        """The columns of each encoded file of codes or numbers."""
        own = {"own_codes": self.own_categorical, "own_numbers": self.own_numeric}
        has_own = self.own_categorical or self.own_numeric
        return {"codes": self.categorical, "numbers": self.numeric, **(own if has_own else {})}

    @property
    def columns(self) -> list[str]:
        """All of them, each once."""
        names = [self.label, *(name for each in self.files.values() for name in each)]
        return list(dict.fromkeys((*names, *((DAY,) if self.days else ()))))


@dataclass(frozen=True)
class Options:
    """Which rows are used, and how they are encoded.

    Attributes:
        rows: only the first so many rows of the source; None for all.
        sample: the share of these that is used, drawn at random.
        test_share: the share of the used rows that is for testing.
        seed: of both draws: whether a row is used, and for what, depends on its number and the seed alone.
        min_count: a category that fewer training rows have shares the code 0 with those that none has.
        scaling: of the numbers.
    """

    rows: int | None = None
    sample: float = 1.0
    test_share: float = 0.1
    seed: int = 0
    min_count: int = 1
    scaling: Scaling = "range"

    def __post_init__(self) -> None:
        for name, right, wanted in (
            ("rows", self.rows is None or self.rows > 1, "at least 2"),
            ("sample", 0 < self.sample <= 1, "above 0 and at most 1"),
            ("test_share", 0 < self.test_share < 1, "between 0 and 1"),
            ("min_count", self.min_count >= 1, "at least 1"),
            ("scaling", self.scaling in ("range", "standard"), "range or standard"),
        ):
            if not right:
                raise UsageError(f"{name}={getattr(self, name)!r}: give one that is {wanted}")

    def side(self, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        """For each row number 1 for training, 2 for testing and 0 for neither."""
        drawn = scramble(rows, self.seed)
        side = np.where(drawn < self.sample * self.test_share, TEST, TRAIN)
        return np.where(drawn < self.sample, side, 0).astype(np.int8)

    def told(self) -> list[str]:
        """What it does to the data, for `Data.made`."""
        told = [] if self.rows is None else [f"Only the first {self.rows:,} rows of the file were used."]
        if self.sample < 1:
            told.append(f"A share of {self.sample:g} of the rows was drawn at random (seed {self.seed}).")
        told.append(f"A share of {self.test_share:g} of them, drawn at random (seed {self.seed}), is for testing.")
        rare = "is in no training row" if self.min_count == 1 else f"is in fewer than {self.min_count} of them"
        told.append(
            f"Categories became codes by falling frequency in the training rows; a missing one has a code of its own, "
            f"1, and one that {rare} has the code 0."
        )
        told.append(
            "Numbers were scaled linearly to [0, 1] by their range in the training rows, after a missing one had "
            "become 0; what lies outside was moved to the border."
            if self.scaling == "range"
            else "Numbers were scaled to mean 0 and variance 1 in the training rows; a missing one became the mean."
        )
        return told


def shared(own: str) -> tuple[bool, str]:
    """Whether both parties have all columns, from the `own` of a loader, and how `Data.made` says it."""
    if own not in ("none", "all"):
        raise UsageError(f'own={own!r}: give "none" or "all"')
    if own == "none":
        return False, "The feature party has all columns, the label party only the labels."
    return True, "Both parties have all columns, as in the papers: the label party for the wide part of the model."
