"""Rows of a table by the keys of their ids, in any order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Directory:
    """Rows of a table by key; no two of the keys (ids, 16) are alike.

    >>> keys = np.arange(48, dtype=np.uint8).reshape(3, 16)
    >>> Directory(keys, np.array([7, 8, 9])).rows(np.stack([keys[2], keys[0] + 1])).tolist()
    [9, -1]
    """

    def __init__(self, keys: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
        words = np.ascontiguousarray(keys).view(np.uint64)
        order = np.argsort(words[:, 0])
        self._words, self._rows = words[order], rows[order]

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The row of each key; -1 for one that is of no id of the table."""
        if not len(self._rows):
            return np.full(len(keys), -1, np.int64)
        asked = np.ascontiguousarray(keys).view(np.uint64)
        at = np.minimum(np.searchsorted(self._words[:, 0], asked[:, 0]), len(self._rows) - 1)
        return np.where((self._words[at] == asked).all(axis=1), self._rows[at], -1)
