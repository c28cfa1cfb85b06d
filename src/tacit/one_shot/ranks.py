"""Embeddings in at most 256 ranks a number: an exact float of a tree score is a fingerprint of its row, a rank is not.

>>> ranks = Ranks.fit(np.array([[0.0], [1.0], [2.0], [4.0]]), levels=2)
>>> ranks.code(np.array([[-9.0], [1.0], [2.0], [99.0]])).ravel().tolist()
[0, 0, 1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError, TensorError, UsageError

MOST = 256  # the most ranks that a number may have: a rank is one byte


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
            codes[:, place] = np.searchsorted(np.asarray(edges), z[:, place], side="right")
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


def _fit(column: NDArray[np.float64], levels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    ordered = np.sort(column)
    steps = np.flatnonzero(np.diff(ordered)) + 1  # where a new value begins
    wanted = np.arange(1, levels) * (len(ordered) / levels)
    if len(steps) >= levels:  # else each value has a rank of its own
        steps = np.unique(steps[np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)])
    edges = np.unique((ordered[steps - 1] + ordered[steps]) / 2)
    ranks = np.searchsorted(edges, ordered, side="right")
    counts = np.bincount(ranks, minlength=len(edges) + 1)
    values = np.bincount(ranks, weights=ordered, minlength=len(edges) + 1) / np.maximum(counts, 1)
    return tuple(edges.tolist()), tuple(values.tolist())


def _checked(z: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The embedding in full precision, if it is a table of finite numbers with at least one row."""
    full = np.asarray(z, dtype=np.float64)
    if full.ndim != 2 or not len(full):
        raise TensorError(f"an embedding must be of shape (rows, width) with at least one row, not {full.shape}")
    if not np.isfinite(full).all():
        row, place = np.argwhere(~np.isfinite(full))[0]
        raise TensorError(
            f"the embedding holds {full[row, place]} in row {row}, number {place}: its learner has diverged"
        )
    return full
