"""Ids as tokens: what a party asks for by, under a key that the alignment of the training has left with all parties.

Whoever sees tokens without the key learns nothing of the ids. A party of the run has the key: it can tell whether a
token is that of an id that it thinks of, as it can put any id into its own table.
"""

from __future__ import annotations

import hmac

import numpy as np
from numpy.typing import NDArray

from tacit.company.aligned import Aligned
from tacit.labels.records import Keys, keyed

SIZE = 16
"""Bytes of a token."""


def token_key(rows: Aligned) -> bytes:
    """The key of a run's tokens: of the keyed digest of the aligned rows, which all parties have and nobody else."""
    return hmac.digest(bytes.fromhex(rows.digest), b"tacit tokens 1 " + rows.id.encode(), "sha256")


def tokens_of(key: bytes, hashes: NDArray[np.uint8]) -> Keys:
    """The tokens of some ids, whose hashes `read_ids` gives.  (ids, 16)"""
    return keyed(key, hashes, "token")
