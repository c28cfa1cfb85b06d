"""What pages draw: curves, kept whole and shown thinned, tables of attacks by protections."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Group = Literal["utility", "leak", "gate", "exchange", "pace", "report"]
"""What a curve is about: the model, looks while training ran, the gate, an exchange, and so on."""

Cells = Mapping[tuple[str, str], Sequence[float | None]]
"""Value, lower and upper end of each attack, by its name and what it was tried on."""

_MEAN = 16  # looks of a running mean
_FIGURES = ("values", "low", "high")


def _numbers() -> array[float]:
    return array("d")


@dataclass
class Series:
    """Figures over steps, only added to."""

    name: str  # of the curve
    group: Group  # what it is about
    measure: str | None = None  # "leak_auc", "variance_read", or None for what is no leak
    x: array[float] = field(default_factory=_numbers)  # steps
    # figures; leak AUCs are folded, so that below 0.5 counts as much as above
    y: array[float] = field(default_factory=_numbers)
    low: array[float] = field(default_factory=_numbers)  # lower ends of intervals, where there are any
    high: array[float] = field(default_factory=_numbers)  # upper ends
    raw: array[float] = field(default_factory=_numbers)  # figures before they were folded, of looks

    def __len__(self) -> int:
        return len(self.x)

    def add(self, x: float, y: float, interval: tuple[float, float] | None = None) -> None:
        """One more figure; a look's is folded here."""
        self.x.append(x)
        if self.group == "leak":
            self.raw.append(y)
        self.y.append(folded(y) if self.measure == "leak_auc" else y)
        if interval is not None:
            self.low.append(interval[0])
            self.high.append(interval[1])

    def shown(self, points: int) -> dict[str, Any]:
        """The curve for a page: thinned to so many points; of looks also their running mean."""
        x = np.frombuffer(self.x) if len(self.x) else np.empty(0)
        y = np.frombuffer(self.y) if len(self.y) else np.empty(0)
        kept = thinned(y, points)
        curve: dict[str, Any] = {"name": self.name, "group": self.group, "measure": self.measure}
        curve |= {"x": finite(x[kept]), "y": finite(y[kept])}
        if len(self.low) == len(self.x) and self.low:
            curve |= {"low": finite(np.frombuffer(self.low)[kept]), "high": finite(np.frombuffer(self.high)[kept])}
        if self.raw:
            curve["mean"] = finite(self._running()[kept])
        return curve

    def mean(self, first: int, last: int) -> float:
        """Of the looks from one place to another, folded as a whole; NaN where none of them is a number."""
        known = [value for value in self.raw[max(0, first) : last] if math.isfinite(value)]
        mean = math.fsum(known) / len(known) if known else math.nan
        return folded(mean) if self.measure == "leak_auc" else mean

    def _running(self) -> NDArray[np.float64]:
        """The mean of each look and those before it, folded as a whole: chance evens out, what leaks does not."""
        raw = np.frombuffer(self.raw)
        known = np.isfinite(raw)
        sums = np.concatenate([[0.0], np.cumsum(np.where(known, raw, 0.0))])
        counts = np.concatenate([[0.0], np.cumsum(known)])
        ends = np.arange(1, len(raw) + 1)
        starts = np.maximum(0, ends - _MEAN)
        mean = (sums[ends] - sums[starts]) / np.maximum(1, counts[ends] - counts[starts])
        return np.asarray(np.maximum(mean, 1 - mean) if self.measure == "leak_auc" else mean)


def folded(value: float) -> float:
    """A leak AUC, whichever way round the attack reads it."""
    return max(value, 1 - value)


def finite(values: NDArray[np.float64] | Sequence[float]) -> list[float | None]:
    """Numbers for JSON, which knows no infinity."""
    return [value if math.isfinite(value) else None for value in map(float, values)]


def thinned(y: NDArray[np.float64], points: int) -> NDArray[np.int64]:
    """Which of many figures to draw: in each of equal pieces the smallest and the largest, so that no peak is lost."""
    count = len(y)
    if count <= max(points, 4):
        return np.arange(count)
    pieces = max(1, (points - 2) // 2)
    width = math.ceil(count / pieces)
    padded = np.full(width * math.ceil(count / width), np.nan)
    padded[:count] = y
    table = padded.reshape(-1, width)
    begin = np.arange(len(table)) * width
    smallest = begin + np.argmin(np.where(np.isnan(table), np.inf, table), axis=1)
    largest = begin + np.argmax(np.where(np.isnan(table), -np.inf, table), axis=1)
    ends = np.array([0, count - 1])
    kept = np.unique(np.concatenate([ends, smallest, largest]))
    return kept[kept < count]


def by_protection(columns: Sequence[tuple[str, Cells]]) -> dict[str, Any] | None:
    """One row for each attack, one column for each protection; None where there is neither."""
    names = dict.fromkeys(name for _, cells in columns for name in cells)
    if not names:
        return None
    nothing = [None] * len(_FIGURES)
    rows = [
        {"attack": attack, "on": on}
        | {
            which: [cells.get((attack, on), nothing)[place] for _, cells in columns]
            for place, which in enumerate(_FIGURES)
        }
        for attack, on in names
    ]
    return {"columns": [label for label, _ in columns], "rows": rows}
