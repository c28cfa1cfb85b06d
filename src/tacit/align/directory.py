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
        self._words, self._rows = np.ascontiguousarray(keys).view(np.uint64), rows
        self._order = np.argsort(np.ascontiguousarray(self._words[:, 0]))
        self._first = self._words[self._order, 0]

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The row of each key; -1 for one that is of no id of the table."""
        found = np.full(len(keys), -1, np.int64)
        if not len(self._rows):
            return found
        asked = np.ascontiguousarray(keys).view(np.uint64)
        order = np.argsort(np.ascontiguousarray(asked[:, 0]))  # in their order they are found five times as fast
        asked = asked[order]
        at = self._order[np.minimum(np.searchsorted(self._first, asked[:, 0]), len(self._rows) - 1)]
        found[order] = np.where((self._words[at] == asked).all(axis=1), self._rows[at], -1)
        return found
