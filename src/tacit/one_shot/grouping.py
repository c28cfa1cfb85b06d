"""Groups of rows that are alike, made without any label, and what sums over them tell about each row.

For labels that are sent as sums: a partition cuts the rows in two again and again, each time at the middle of another
direction, until a group has about as many rows as were agreed on. Several partitions cut in other directions.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def partitions(inputs: Inputs, size: int, count: int, *, seed: int) -> NDArray[np.int64]:
    """The number of each row's group in each of some partitions.  (rows, count)

    Args:
        inputs: the rows.
        size: of a group, about.
        count: of partitions.
        seed: of the directions.
    """
    z = pca(inputs, min(_DIRECTIONS, sum(inputs.cardinalities) + inputs.numeric.shape[1]), seed=seed).embed(inputs)
    spread = z.std(axis=0)
    z = (z / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    draw = np.random.default_rng(seed)
    return np.stack([_partition(z, size, draw) for _ in range(count)], axis=1)


def _partition(z: NDArray[np.float32], size: int, draw: np.random.Generator) -> NDArray[np.int64]:
    groups = [np.arange(len(z))]
    while len(groups[0]) >= 2 * size:  # all are of one size but for a row
        groups = [half for rows in groups for half in _halves(z, rows, draw)]
    found = np.empty(len(z), np.int64)
    for number, rows in enumerate(groups):
        found[rows] = number
    return found


def _halves(z: NDArray[np.float32], rows: NDArray[np.intp], draw: np.random.Generator) -> list[NDArray[np.intp]]:
    """Rows cut in two at the middle of a direction; of three directions that along which they differ most."""
    directions = draw.normal(size=(z.shape[1], 3)).astype(np.float32) ** 3  # near to single axes
    along = z[rows] @ (directions / np.linalg.norm(directions, axis=0))
    best = along[:, along.var(axis=0).argmax()]
    order = rows[np.argsort(best, kind="stable")]
    return [order[: len(order) // 2], order[len(order) // 2 :]]


def averages(groups: NDArray[np.int64], answers: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """For each row the mean, over all partitions, of its groups' averages.

    Args:
        groups: as they were asked for.  (rows, partitions)
        answers: the noisy sum of each group, for each partition.
    """
    found: NDArray[np.float64] = np.zeros(len(groups))
    for partition, sums in zip(groups.T, answers, strict=True):
        found += (sums / np.bincount(partition))[partition] / groups.shape[1]
    return found
