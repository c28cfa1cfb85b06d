"""Rows of arrays that may be larger than memory: they are read from their files block by block, and let go again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.arrays import let_go
from tacit.disk import opened, write_at

BLOCK = 1 << 18
"""Rows that are looked at at once."""


class Gathered:
    """The rows of an array at some places, taken as they are asked for.

    Args:
        array: of the rows, in memory or mapped from a file.
        places: of the rows that are meant, likewise.

    >>> some = Gathered(np.array([[1], [2], [3]]), np.array([2, 0]))
    >>> len(some), some[:1].tolist(), [block.tolist() for block in some]
    (2, [[3]], [[[3], [1]]])
    """

    def __init__(self, array: NDArray[Any], places: NDArray[np.int64]) -> None:
        self.array = array
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        found = np.take(self.array, self.places[part], axis=0)
        let_go(self.array)
        let_go(self.places)
        return found

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[at : at + BLOCK] for at in range(0, len(self), BLOCK))


def chosen(numbers: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The numbers where the mask says so; those of a file go to another one beside it."""
    if not isinstance(numbers, np.memmap):
        return numbers[mask]
    places = (at + np.flatnonzero(mask[at : at + BLOCK]) for at in range(0, len(mask), BLOCK))
    return filed(Path(str(numbers.filename) + ".chosen"), (Gathered(numbers, each)[:] for each in places))


def filed(path: Path, blocks: Iterator[NDArray[np.int64]]) -> NDArray[np.int64]:
    """All numbers of these blocks in a file, mapped into memory."""
    size = 0
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        for block in blocks:
            size += write_at(fd, path, [np.ascontiguousarray(block).data], size)
    return np.memmap(path, np.int64, "r") if size else np.empty(0, np.int64)
