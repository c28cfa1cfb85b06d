"""Cells of a score: a row is sent as the number of the cell that it lies in, never as the score itself.

The first number of an embedding, the score, is cut where its cells keep most information about what was received of
labels: their rates by score, then the dynamic programme over where to cut. Rates are a logistic curve of the score (a
line of numbers), from which what was received of neighbouring rows departs as far as it surely does: a coin's noise
alone would move cuts to where it happens to be large. All other numbers, and those of an embedding that no label had a
part in, are cut in equal shares.

>>> cells = Cells.fit(np.array([[0.0], [1.0], [2.0], [4.0]]), bits=1, smallest=0.25)
>>> cells.code(np.array([[-9.0], [1.0], [2.0], [99.0]])).ravel().tolist()
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
from scipy.special import xlogy
from sklearn.isotonic import isotonic_regression
from sklearn.linear_model import LinearRegression, LogisticRegression

from tacit.errors import DataError, TensorError
from tacit.exchange._rows import Target as Target
from tacit.exchange._rows import received_target as received_target

_GROUPS = 512  # of neighbouring scores at most, between which a cut may lie
_ROWS = 20  # rows of a group at least
_BLOCK = 1 << 18  # rows that are looked up at a time

Numbers = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Cells:
    """For each number of an embedding, the edges between its cells.

    An edge lies midway between two values of training rows, so that no training row sits on one and the last digit of
    a sum never decides a cell.
    """

    bits: int  # a number has 2**bits cells at most
    # for each number its edges, rising: cell c holds what lies from edge c - 1 on and below edge c
    edges: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(cls, z: Numbers, *, bits: int, smallest: float, received: Target | None = None) -> Self:
        """Cells from the embedding of training rows.

        Args:
            z: the numbers, the score first.  (rows, numbers)
            bits: 1 to 5.
            smallest: the share of these rows that each cell has at least, as far as their scores differ.
            received: what was received of their labels; None cuts the first number in equal shares as well.
        """
        z, most = _checked(z), 1 << bits
        edges = [_equal_shares(column, most, smallest) for column in z.T]
        if received is not None:
            edges[0] = _informative(z[:, 0], received, most, smallest)
        return cls(bits, tuple(edges))

    @property
    def numbers(self) -> int:
        """How many numbers a row has."""
        return len(self.edges)

    def code(self, z: Numbers) -> NDArray[np.uint8]:
        """The cells of any rows.  (rows, numbers)"""
        z = _checked(z)
        if z.shape[1] != self.numbers:
            raise TensorError(f"the embedding has {z.shape[1]} numbers a row, the cells are for {self.numbers}")
        codes = np.empty(z.shape, dtype=np.uint8)
        for place, edges in enumerate(self.edges):
            for start in range(0, len(z), _BLOCK):
                some = slice(start, start + _BLOCK)
                codes[some, place] = np.searchsorted(np.asarray(edges), z[some, place], side="right")
        return codes

    def state(self) -> dict[str, Any]:
        """A form that JSON can hold without loss."""
        return {"bits": self.bits, "edges": [list(each) for each in self.edges]}

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> Self:
        """What `state` gave, cells again; anything else is refused."""
        try:
            bits, edges = int(state["bits"]), tuple(tuple(map(float, each)) for each in state["edges"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"these are no cells ({error!r}): take what Cells.state() gave") from None
        rising = all(first < second for each in edges for first, second in pairwise(each))
        whole = all(len(each) < 1 << bits and all(map(math.isfinite, each)) for each in edges)
        if not 1 <= bits <= 8 or not rising or not whole:
            raise DataError("these are no cells (edges must rise, fewer than 2**bits): take what Cells.state() gave")
        return cls(bits, edges)


def _equal_shares(column: Numbers, most: int, smallest: float) -> tuple[float, ...]:
    """Edges such that each cell has about as many rows; equal values share one, and what is left too small is merged
    with the smaller of its neighbours.
    """
    ordered = np.sort(column)
    wanted = np.ceil(np.arange(1, most) * (len(ordered) / most)).astype(np.intp)
    edges = list(_between(ordered, np.searchsorted(ordered, ordered[np.minimum(wanted, len(ordered) - 1)])))
    while edges:
        sizes = np.diff([0, *np.searchsorted(ordered, edges), len(ordered)])
        least = int(sizes.argmin())
        if sizes[least] >= math.floor(smallest * len(ordered)):
            break
        before = least == len(edges) or (least > 0 and sizes[least - 1] <= sizes[least + 1])
        edges.pop(least - before)
    return tuple(edges)


def _between(ordered: Numbers, places: NDArray[np.intp]) -> tuple[float, ...]:
    """The middle between the values before and after each place of a sorted column; places at its ends are dropped."""
    places = np.unique(places)
    places = places[(places > 0) & (places < len(ordered))]
    low, high = ordered[places - 1].astype(np.float64), ordered[places].astype(np.float64)
    return tuple(np.unique(((low + high) / 2)[low < high]).tolist())


def _informative(score: Numbers, received: Target, most: int, smallest: float) -> tuple[float, ...]:
    """Edges of the cells, each with a share of the rows, that keep most information about what was received."""
    order = np.argsort(score, kind="stable")
    ordered, rows = score[order], len(order)
    groups = max(1, min(_GROUPS, rows // _ROWS))
    starts = np.searchsorted(ordered, ordered[np.arange(groups) * rows // groups])  # where a value begins
    starts = np.unique(starts)
    size = np.diff(np.append(starts, rows)).astype(np.float64)
    sums = np.add.reduceat(_indicators(received)[order], starts, axis=0)
    sums = _rates(np.add.reduceat(ordered.astype(np.float64), starts) / size, size, sums, received) * size[:, None]
    kept = _kept(size, sums, numbers=received.classes is None)
    return _between(ordered, starts[_cuts(size, kept, most, math.ceil(smallest * rows))])


def _rates(
    score: NDArray[np.float64], size: NDArray[np.float64], sums: NDArray[np.float64], received: Target
) -> NDArray[np.float64]:
    """The rate of what was received in each group of rows, drawn to a curve of the score as far as chance may explain
    the difference (empirical Bayes). Rates of two classes and numbers rise with the score.  (groups, columns)
    """
    means = sums / size[:, None]
    curve, spread = _curve(score, size, means, received)
    beyond = (size[:, None] * np.square(means - curve) / spread).sum() - means.size  # 0 where all of it is chance
    true = min(max(beyond, 0.0) / max(float((size - 1).sum()) * means.shape[1], 1.0), 1.0)  # in units of the spread
    weight = true / (true + (1 - true) / size[:, None])
    rates = curve + weight * (means - curve)
    if rates.shape[1] == 1:
        rates = isotonic_regression(rates[:, 0], sample_weight=size)[:, None]
    return np.asarray(rates)


def _curve(
    score: NDArray[np.float64], size: NDArray[np.float64], means: NDArray[np.float64], received: Target
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the score alone says of each group's rates, and the variance of one row about that.  (groups, columns)"""
    level = (score - np.average(score, weights=size))[:, None]
    level /= max(float(np.sqrt(np.average(np.square(level[:, 0]), weights=size))), 1e-12)
    if received.classes is None:
        curve = LinearRegression().fit(level, means, size).predict(level)
        return curve, np.full_like(curve, max(float(received.values.var()), 1e-12))
    every = means if means.shape[1] > 1 else np.concatenate([1 - means, means], axis=1)
    seen = np.flatnonzero(every.any(axis=0))
    if len(seen) < 2:  # one class alone: there is nothing to tell apart
        return means, np.ones_like(means)
    groups, weight = len(level), (size[:, None] * every[:, seen]).T.ravel()
    model = LogisticRegression(C=1e6).fit(np.tile(level, (len(seen), 1)), np.repeat(seen, groups), weight)
    curve = np.zeros_like(every)
    curve[:, seen] = model.predict_proba(level)
    curve = curve[:, -means.shape[1] :]
    return curve, np.maximum(curve * (1 - curve), 1e-9)


def _indicators(received: Target) -> NDArray[np.float64]:
    """What was received as one column of two classes and of numbers, else one for each class."""
    values = received.values
    if received.classes is None or received.classes == 2:
        return np.asarray(values, dtype=np.float64)[:, None]
    return np.asarray(values[:, None] == np.arange(received.classes), dtype=np.float64)


def _kept(size: NDArray[np.float64], sums: NDArray[np.float64], *, numbers: bool) -> NDArray[np.float64]:
    """What a cell of the groups from i to before j keeps of what was received, up to a constant.  (i, j)"""
    rows = np.concatenate([[0.0], np.cumsum(size)])
    total = np.concatenate([np.zeros((1, sums.shape[1])), np.cumsum(sums, axis=0)])
    count = np.maximum(rows[None, :] - rows[:, None], 1e-12)
    inside = total[None, :] - total[:, None]
    if numbers:
        return np.asarray(np.square(inside[..., 0]) / count)
    if inside.shape[2] == 1:
        inside = np.concatenate([inside, count[..., None] - inside], axis=2)
    inside = np.maximum(inside, 0.0)
    return np.asarray(xlogy(inside, inside / count[..., None]).sum(2))


def _cuts(size: NDArray[np.float64], kept: NDArray[np.float64], most: int, least: int) -> NDArray[np.intp]:
    """The groups with which a new cell begins: of all ways to cut into so many cells at most, the one that keeps most.

    Each cell has `least` rows at least.
    """
    rows, groups = np.concatenate([[0.0], np.cumsum(size)]), len(size)
    gain = np.where(rows[None, :] - rows[:, None] >= max(1, least), kept, -np.inf)
    best, came = [gain[0]], []  # of the first groups up to each one, in one cell, in two, ...
    for _ in range(1, most):
        every = best[-1][:, None] + gain
        came.append(every.argmax(0))
        best.append(every.max(0))
    cells = int(np.argmax([each[groups] for each in best]))
    cuts, end = [], groups
    for place in reversed(came[:cells]):
        end = int(place[end])
        cuts.append(end)
    return np.array(cuts[::-1], dtype=np.intp)


def _checked(z: Numbers) -> Numbers:
    """The embedding, if it is a table of finite numbers with at least one row."""
    z = np.asarray(z)
    if z.ndim != 2 or not len(z):
        raise TensorError(f"an embedding must be of shape (rows, numbers) with at least one row, not {z.shape}")
    if not np.isfinite(z).all():
        row, place = np.argwhere(~np.isfinite(z))[0]
        raise TensorError(f"the embedding holds {z[row, place]} in row {row}, number {place}: its learner has diverged")
    return z
