"""What is learnt from training rows that come part by part: vocabularies, and how numbers are scaled.

Memory grows with the different values of the categories, never with the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["FIRST", "MISSING", "UNKNOWN", "Counting", "Measuring", "Scale", "Scaling", "Vocabulary"]

UNKNOWN, MISSING, FIRST = 0, 1, 2
"""Codes: of what too few training rows have or none, of a missing value, and of the most frequent value."""

Scaling = Literal["range", "standard"]
"""How numbers are scaled: to [0, 1] with 0 for a missing one, as in the papers, or to mean 0 and variance 1."""

_PENDING = 1 << 20  # values that wait to be counted together, at least


@dataclass(frozen=True)
class Vocabulary:
    """The codes of one column's values.

    Attributes:
        values: sorted.
        codes: of these values, counted from `FIRST` on by falling frequency: rows of an embedding table that are used
            together lie together.  int32
    """

    values: pl.Series
    codes: NDArray[np.int32]

    @property
    def size(self) -> int:
        """The number of codes, those of unknown and missing values included."""
        return len(self.codes) + FIRST

    def encode(self, column: pl.Series) -> NDArray[np.int32]:
        """The code of each value."""
        different = column.unique().drop_nulls().sort()  # sorted, so that neighbours are found near each other
        codes = np.zeros(len(different), np.int32)
        if len(self.values) and len(different):
            places = self.values.search_sorted(different).to_numpy()
            places = np.minimum(places, len(self.values) - 1)
            known = (self.values.gather(places) == different).to_numpy()
            codes = np.where(known, self.codes[places], np.int32(UNKNOWN))
        found = column.to_frame("value").join(
            pl.DataFrame({"value": different, "code": codes}), on="value", how="left", maintain_order="left"
        )["code"]
        found = found.set(column.is_null(), MISSING)
        return found.to_numpy().astype(np.int32, copy=False)


@dataclass
class Counting:
    """How often each value of one column was seen so far."""

    known: pl.DataFrame | None = None
    pending: list[pl.DataFrame] = field(default_factory=list)

    def add(self, column: pl.Series) -> None:
        """Count these values as well; missing ones need no count."""
        self.pending.append(column.drop_nulls().alias("value").value_counts(name="count"))
        waiting = sum(map(len, self.pending))
        if waiting > max(_PENDING, 0 if self.known is None else len(self.known)):
            self._merge()

    def _merge(self) -> pl.DataFrame:
        tables = [*([] if self.known is None else [self.known]), *self.pending]
        self.known = pl.concat(tables).group_by("value").agg(pl.col("count").sum())
        self.pending = []
        return self.known

    def vocabulary(self, min_count: int) -> Vocabulary:
        """Codes of the values that were seen at least so often; of equally frequent ones the smaller comes first."""
        kept = self._merge().filter(pl.col("count") >= min_count).sort("value")
        order = np.argsort(-kept["count"].to_numpy().astype(np.int64), kind="stable")
        codes = np.empty(len(kept), np.int32)
        codes[order] = np.arange(FIRST, FIRST + len(kept), dtype=np.int32)
        return Vocabulary(kept["value"].rechunk(), codes)


@dataclass(frozen=True)
class Scale:
    """One column's numbers to where a network wants them.

    Attributes:
        missing: what stands in the place of a missing number.
        shift: is subtracted.
        factor: is multiplied with then.
        clipped: whether what lies outside [0, 1] in the end is moved to its border.
    """

    missing: float
    shift: float
    factor: float
    clipped: bool

    def encode(self, column: pl.Series) -> NDArray[np.float32]:
        """The scaled numbers."""
        values = (column.cast(pl.Float64).fill_null(self.missing).to_numpy() - self.shift) * self.factor
        return (np.clip(values, 0.0, 1.0) if self.clipped else values).astype(np.float32)


@dataclass
class Measuring:
    """Range, mean and variance of one column's numbers so far."""

    scaling: Scaling
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, column: pl.Series) -> None:
        """Take these numbers in as well."""
        numbers = column.cast(pl.Float64)
        seen = (numbers.fill_null(0.0) if self.scaling == "range" else numbers.drop_nulls()).to_numpy()
        if not len(seen):
            return
        self.low, self.high = min(self.low, float(seen.min())), max(self.high, float(seen.max()))
        self.count += len(seen)
        share, gap = len(seen) / self.count, float(seen.mean()) - self.mean
        self.variance += share * (float(seen.var()) - self.variance) + share * (1 - share) * gap * gap
        self.mean += share * gap

    def scale(self) -> Scale:
        """As learnt; a column without spread becomes 0."""
        spread = self.high - self.low if self.count else 0.0
        if self.scaling == "range":
            return Scale(0.0, self.low if self.count else 0.0, 1 / spread if spread > 0 else 0.0, clipped=True)
        deviation = math.sqrt(self.variance)
        return Scale(self.mean, self.mean, 1 / deviation if spread > 0 and deviation > 0 else 0.0, clipped=False)
