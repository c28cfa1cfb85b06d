"""Challenges that are hashes of everything said before them (Fiat and Shamir's way to do without a verifier's coins).

The known way to get this wrong is to leave something out of the hash. So a transcript begins with what the proof is
for, takes every part of the statement and every commitment with its name and length, and there is no other way to a
challenge.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tacit.hidden_sums.scalars import ORDER

SHORT = 16
"""Bytes of the challenges that rows are weighed with: the chance to cheat them is below rows / 2**128."""


class Transcript:
    """What two parties have said, in order."""

    def __init__(self, proof: str, context: bytes) -> None:
        self._state = hashlib.shake_256(b"tacit hidden sums transcript 1")
        self.add("proof", proof.encode())
        self.add("context", context)

    def add(self, name: str, value: bytes | NDArray[np.uint8]) -> None:
        """Take in a part."""
        for part in (name.encode(), value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()):
            self._state.update(len(part).to_bytes(8, "big"))
            self._state.update(part)

    def challenge(self, name: str) -> int:
        """A number below the order of the group, off from uniform by less than 2**-250."""
        self.add("challenge", name.encode())
        return int.from_bytes(self._state.digest(64), "big") % ORDER

    def challenges(self, name: str, count: int) -> NDArray[np.uint8]:
        """Short numbers, one for each row.  (count, 16)"""
        self.add("challenges", name.encode())
        return np.frombuffer(self._state.digest(SHORT * count), np.uint8).reshape(count, SHORT)

    def digest(self) -> bytes:
        """Of all that was taken in so far.  32 bytes."""
        return self._state.digest(32)
