"""Embeddings in at most 256 ranks a number: an exact float of a tree score is a fingerprint of its row, a rank is not.

>>> ranks = Ranks.fit(np.array([[0.0], [1.0], [2.0], [4.0]]), levels=2)
>>> ranks.code(np.array([[-9.0], [1.0], [2.0], [99.0]])).ravel().tolist()
[0, 0, 1, 1]
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError, TensorError, UsageError

MOST = 256  # the most ranks that a number may have: a rank is one byte
_BLOCK = 1 << 16  # rows that are ranked, or added up, at a time: of many rows nothing is there twice in full precision

Numbers = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Ranks:
    """For each number of an embedding where its ranks end, and what stands for each rank.

    An edge lies midway between two values of training rows, so that no training row sits on one and the last digit of
    a sum never decides a rank.
    """

    # for each number its edges, rising: rank r holds what lies from edge r - 1 on and below edge r
    edges: tuple[tuple[float, ...], ...]
    # for each number the mean of the training rows of each rank; one more than edges
    values: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(cls, z: NDArray[np.floating[Any]], levels: int = MOST) -> Self:
        """Ranks that hold about equally many training rows each; equal values always share one.

        Args:
            z: the embedding of the training rows, and of no others.  (rows, width)
            levels: how many ranks at most, 2 to 256.
        """
        if not isinstance(levels, int) or isinstance(levels, bool) or not 2 <= levels <= MOST:
            raise UsageError(f"levels must be a whole number from 2 to {MOST}, not {levels!r}: a rank is one byte")
        columns = [_fit(column, levels) for column in _checked(z).T]
        return cls(tuple(edges for edges, _ in columns), tuple(values for _, values in columns))

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return len(self.edges)

    def code(self, z: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
        """The ranks of any rows; what lies outside of the training rows gets the first or the last one."""
        z = _checked(z)
        if z.shape[1] != self.width:
            raise TensorError(f"the embedding has {z.shape[1]} numbers a row, the ranks are for {self.width}")
        codes = np.empty(z.shape, dtype=np.uint8)
        for place, edges in enumerate(self.edges):
            for start in range(0, len(z), _BLOCK):
                some = slice(start, start + _BLOCK)
                codes[some, place] = np.searchsorted(np.asarray(edges), z[some, place], side="right")
        return codes

    def state(self) -> dict[str, Any]:
        """A form that JSON can hold without loss."""
        return {"edges": [list(each) for each in self.edges], "values": [list(each) for each in self.values]}

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> Self:
        """What `state` gave, ranks again; anything else is refused."""
        try:
            edges, values = (tuple(tuple(map(float, each)) for each in state[key]) for key in ("edges", "values"))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"these are no ranks ({error!r}): take what Ranks.state() gave") from None
        fits = [len(edges) == len(values)]
        for low, mean in zip(edges, values, strict=False):
            fits += [len(mean) == len(low) + 1 <= MOST, all(map(math.isfinite, (*low, *mean)))]
            fits += [first < second for first, second in pairwise(low)]
        if not all(fits):
            raise DataError("these are no ranks (edges must rise, one value more than edges): take Ranks.state()")
        return cls(edges, values)


def _fit(column: Numbers, levels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Edges and values of one number. Rows are put in order once; all else is looked up there."""
    ordered: Numbers = np.sort(column)
    steps = _steps(ordered, levels)
    edges = np.unique((ordered[steps - 1].astype(np.float64) + ordered[steps]) / 2)
    # numpy would search in a copy of all rows, in full precision
    bounds = [0, *(bisect_left(ordered, edge) for edge in edges), len(ordered)]
    values = [_sum(ordered[low:high]) / max(high - low, 1) for low, high in pairwise(bounds)]
    return tuple(edges.tolist()), tuple(values)


def _steps(ordered: Numbers, levels: int) -> NDArray[np.intp]:
    """Where new values begin: each of them, where there are few; else the first from each rank's share of rows on."""
    rows, found = len(ordered), list[int]()
    step = int(np.searchsorted(ordered, ordered[0], side="right"))
    while step < rows:
        found.append(step)
        if len(found) == levels:
            break
        step = int(np.searchsorted(ordered, ordered[step], side="right"))
    if len(found) < levels:  # each value has a rank of its own
        return np.array(found, dtype=np.intp)
    wanted = np.ceil(np.arange(1, levels) * (rows / levels)).astype(np.intp)
    last = np.searchsorted(ordered, ordered[-1])
    steps = np.searchsorted(ordered, ordered[wanted - 1], side="right")  # the first beyond the value before
    return np.unique(np.minimum(steps, last))


def _sum(numbers: Numbers) -> float:
    """From the first to the last, one after the other, in full precision."""
    total = 0.0
    for start in range(0, len(numbers), _BLOCK):
        total = float(np.cumsum(np.append(total, numbers[start : start + _BLOCK]), dtype=np.float64)[-1])
    return total


def _checked(z: NDArray[np.floating[Any]]) -> Numbers:
    """The embedding, if it is a table of finite numbers with at least one row; in full precision if not in single."""
    z = np.asarray(z)
    full = z if z.dtype == np.float32 else np.asarray(z, dtype=np.float64)
    if full.ndim != 2 or not len(full):
        raise TensorError(f"an embedding must be of shape (rows, width) with at least one row, not {full.shape}")
    if not np.isfinite(full).all():
        row, place = np.argwhere(~np.isfinite(full))[0]
        raise TensorError(
            f"the embedding holds {full[row, place]} in row {row}, number {place}: its learner has diverged"
        )
    return full
