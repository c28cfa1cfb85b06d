"""Ids as tokens: what a party asks for by, under a key that the alignment of the training has left with all parties.

Whoever sees tokens without the key learns nothing of the ids. A party of the run has the key: it can tell whether a
token is that of an id that it thinks of, as it can put any id into its own table.
"""

from __future__ import annotations

import hmac

import numpy as np
from numpy.typing import NDArray

from tacit.company.align import Aligned
from tacit.one_shot.records import Keys, keyed

SIZE = 16
"""Bytes of a token."""


def token_key(rows: Aligned) -> bytes:
    """The key of a run's tokens: of the keyed digest of the aligned rows, which all parties have and nobody else."""
    return hmac.digest(bytes.fromhex(rows.digest), b"tacit tokens 1 " + rows.id.encode(), "sha256")


def tokens_of(key: bytes, hashes: NDArray[np.uint8]) -> Keys:
    """The tokens of some ids, whose hashes `read_ids` gives.  (ids, 16)"""
    return keyed(key, hashes, "token")


class Directory:
    """Which row of a table a token means; no two of the tokens (ids, 16) are alike."""

    def __init__(self, tokens: Keys, rows: NDArray[np.int64]) -> None:
        words = np.ascontiguousarray(tokens).view(np.uint64)
        order = np.argsort(words[:, 0])
        self._words, self._rows = words[order], rows[order]

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, tokens: Keys) -> NDArray[np.int64]:
        """The row of each token; -1 for one that is of no id of the table."""
        if not len(self._rows):
            return np.full(len(tokens), -1, np.int64)
        asked = np.ascontiguousarray(tokens).view(np.uint64)
        at = np.minimum(np.searchsorted(self._words[:, 0], asked[:, 0]), len(self._rows) - 1)
        return np.where((self._words[at] == asked).all(axis=1), self._rows[at], -1)
