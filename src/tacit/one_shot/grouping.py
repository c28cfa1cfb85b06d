"""Groups of rows that are alike, made without any label, and what sums over them tell about each row.

A partition cuts the rows in two again and again, each time at the middle of another direction, until a group has about
as many rows as were agreed on; groups that nobody sees have exactly as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Inputs
from tacit.one_shot.floor import pca

_DIRECTIONS = 24  # of the rows that are cut along


class Averages:
    """What a learner is told about targets that are averages of sums: numbers, as they are."""

    classes = None

    def value_of(self, sent: NDArray[np.float64]) -> NDArray[np.float64]:
        """The number that a target stands for."""
        return sent


def partitions(
    inputs: Inputs, size: int, count: int, *, seed: int, taking_part: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """The number of each row's group, of about so many rows, in each of some partitions.  (rows, count)

    `taking_part` says for groups that are hidden which rows are in each partition (rows, count); then all groups have
    exactly this size. Fewer rows than that are left over, drawn by lot, and have -1 as have those that take no part.
    """
    z, draw = _space_of(inputs, seed), np.random.default_rng(seed)
    found = np.full((len(z), count), -1, np.int64)
    for place in range(count):
        rows = np.arange(len(z)) if taking_part is None else np.flatnonzero(taking_part[:, place])
        cut = _groups(z, size, draw) if taking_part is None else _equal_groups(z[rows], size, draw)
        for number, group in enumerate(cut):
            found[rows[group], place] = number
    return found


def _space_of(inputs: Inputs, seed: int) -> NDArray[np.float32]:
    """Where rows lie that are cut: directions in which they differ, each of the same spread.  (rows, directions)"""
    z = pca(inputs, min(_DIRECTIONS, sum(inputs.cardinalities) + inputs.numeric.shape[1]), seed=seed).embed(inputs)
    spread = z.std(axis=0)
    return (z / np.where(spread > 0, spread, 1.0)).astype(np.float32)


def _groups(z: NDArray[np.float32], size: int, draw: np.random.Generator) -> list[NDArray[np.intp]]:
    """Halves of halves: all are of one size but for a row."""
    groups: list[NDArray[np.intp]] = [np.arange(len(z))]
    while len(groups[0]) >= 2 * size:
        ordered = (_in_order(z, rows, draw) for rows in groups)
        groups = [half for rows in ordered for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :])]
    return groups


def _equal_groups(z: NDArray[np.float32], size: int, draw: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    """Groups of exactly so many rows."""
    whole = len(z) // size
    waiting: list[tuple[NDArray[np.intp], int]] = [(draw.permutation(len(z))[: whole * size], whole)]
    while waiting:
        rows, groups = waiting.pop()
        if groups == 1:
            yield rows
            continue
        order, half = _in_order(z, rows, draw), groups // 2
        waiting += [(order[: half * size], half), (order[half * size :], groups - half)]


def _in_order(z: NDArray[np.float32], rows: NDArray[np.intp], draw: np.random.Generator) -> NDArray[np.intp]:
    """Rows in their order along a direction; of three directions that along which they differ most."""
    directions = draw.normal(size=(z.shape[1], 3)).astype(np.float32) ** 3  # near to single axes
    along = z[rows] @ (directions / np.linalg.norm(directions, axis=0))
    return np.asarray(rows[np.argsort(along[:, along.var(axis=0).argmax()], kind="stable")])


def averages(groups: NDArray[np.int64], answers: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """For each row the mean, over all partitions, of its groups' averages; of all groups where it was left over (-1).

    Groups are of one size, or nearly so: all averages have the same variance, and their plain mean the least.
    """
    found: NDArray[np.float64] = np.zeros(len(groups))
    for partition, sums in zip(groups.T, answers, strict=True):
        each = sums / np.bincount(partition[partition >= 0])
        found += np.where(partition >= 0, each[partition], each.mean()) / groups.shape[1]
    return found
