"""What is learnt from training rows that come batch by batch: vocabularies, and how numbers are scaled."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align._columns import Coding, Scaling, kind_of, values_of
from tacit.errors import DataError

_PENDING = 1 << 20  # different values that wait to be counted together, at least


@dataclass
class Vocabulary:
    """How often each value of one column was seen, as far as its rows have come."""

    name: str
    dtype: pl.DataType = field(default_factory=pl.String)
    counts: list[pl.DataFrame] = field(default_factory=list)  # those counted together first, then single batches
    waiting: int = 0  # rows of the single batches

    def add(self, column: pl.Series) -> None:
        values = values_of(column).drop_nulls()
        if not self.counts:
            self.dtype = values.dtype
        if not len(values):
            return
        if values.dtype != self.dtype:
            raise DataError(
                f"the column {self.name!r} holds values of the kind {kind_of(values)} after such of the kind "
                f"{kind_of(pl.Series(dtype=self.dtype))}: convert it to one of them"
            )
        self.counts.append(values.alias("value").value_counts(name="count"))
        self.waiting += len(self.counts[-1])
        if self.waiting > max(_PENDING, len(self.counts[0])):
            self.counts, self.waiting = [self._together()], 0

    def _together(self) -> pl.DataFrame:
        nothing = pl.DataFrame(schema={"value": self.dtype, "count": pl.UInt32})
        return pl.concat([nothing, *self.counts]).group_by("value").agg(pl.col("count").sum())

    def learnt(self, coding: Coding) -> tuple[pl.Series, NDArray[np.int32]]:
        """The values that were seen often enough, sorted, and the place of each by falling frequency.

        Of equally frequent ones the smaller comes first.
        """
        kept = self._together().filter(pl.col("count") >= coding.min_count).sort("value")
        order = np.argsort(-kept["count"].to_numpy().astype(np.int64), kind="stable")
        ranks = np.empty(len(kept), np.int32)
        ranks[order] = np.arange(len(kept), dtype=np.int32)
        return kept["value"].rechunk().alias(self.name), ranks


@dataclass
class Moments:
    """Range, mean and variance of one column of numbers, as far as its rows have come."""

    name: str
    scaling: Scaling
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: NDArray[np.float64]) -> None:
        seen = np.nan_to_num(values, nan=0.0) if self.scaling == "range" else values[~np.isnan(values)]
        if not len(seen):
            return
        self.low, self.high = min(self.low, float(seen.min())), max(self.high, float(seen.max()))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = float(seen.mean()), float(seen.var())
        if not self.count:  # to the last bit what all rows at once give, where they come at once
            self.count, self.mean, self.variance = len(seen), mean, variance
            return
        self.count += len(seen)
        share, gap = len(seen) / self.count, mean - self.mean
        self.variance += share * (variance - self.variance) + share * (1 - share) * gap * gap
        self.mean += share * gap

    def learnt(self) -> tuple[float, float]:
        """What is subtracted and what divides then; a column without spread keeps its unit, or its range is all 0."""
        if not self.count:
            return 0.0, 1.0
        if self.low == self.high:  # the rounding of a sum must not pass for a spread
            return self.low, math.inf if self.scaling == "range" else 1.0
        shift, spread = self.mean, math.sqrt(self.variance) or 1.0
        if self.scaling == "range":
            shift, spread = self.low, self.high - self.low
        if not math.isfinite(shift) or not math.isfinite(spread):
            raise DataError(
                f"the numbers of the column {self.name!r} are too large to be standardised: scale them down"
            )
        return shift, spread
