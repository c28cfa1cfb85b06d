"""Numbers below the order of the group: from a key, from a peer, as challenges, and secret ones in the library."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError, UsageError
from tacit.hidden_sums._library import library

# how many points there are (SEC 2, section 2.4.1); q in the pseudo-code that is followed
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

Scalars = NDArray[np.uint8]  # numbers below `ORDER`, most significant byte first (count, 32)

SHORT = 16  # bytes of the challenges that rows are weighed with: the chance to cheat them is below rows / 2**128
_SIZE = 32


def scalars_of(numbers: list[int]) -> Scalars:
    """Numbers below 2**256 as bytes."""
    joined = b"".join([number.to_bytes(_SIZE, "big") for number in numbers])
    return np.frombuffer(joined, np.uint8).reshape(-1, _SIZE)


def ints_of(scalars: NDArray[np.uint8]) -> list[int]:
    """The numbers that rows of bytes are, of any length."""
    raw, size = scalars.tobytes(), scalars.shape[1]
    return [int.from_bytes(raw[at : at + size], "big") for at in range(0, len(raw), size)]


def below_order(scalars: Scalars) -> tuple[list[int], bool]:
    """A peer's numbers, and whether all are below `ORDER`: a larger one is a second spelling of another."""
    numbers = ints_of(scalars)
    return numbers, max(numbers, default=0) < ORDER


def keyed(secret: bytes, count: int, *parts: bytes) -> Scalars:
    """Random numbers that only the owner of a secret can draw, and draws again: SHAKE256 of the secret and the parts.

    All that they depend on goes in, each part with its length before it. A number of 256 bits is not below the order
    once in 2**128 times, which is left to chance.
    """
    if len(secret) < _SIZE:
        raise UsageError("the secret is too short: pass at least 32 random bytes")
    state = hashlib.shake_256(b"tacit hidden sums keyed 1")
    for part in (secret, *parts):
        state.update(len(part).to_bytes(8, "big") + part)
    return np.frombuffer(state.digest(_SIZE * count), np.uint8).reshape(count, _SIZE)


class Transcript:
    """What two parties have said, in order: challenges are hashes of everything said before them (Fiat and Shamir).

    The known way to get this wrong is to leave something out of the hash. So a transcript begins with what the proof is
    for, takes every part of the statement and every commitment with its name and length, and there is no other way to a
    challenge.
    """

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


# --- secret numbers, which never become integers of Python -----------------------------------------------------------


def multiplied(left: Scalars, right: Scalars) -> Scalars:
    """Row by row the product, in the library, in time that does not depend on the numbers; none may be 0."""
    lib, context = library().lib, library().context
    return _each(lambda at, by: lib.secp256k1_ec_seckey_tweak_mul(context, at, by), left, right)


def added(left: Scalars, right: Scalars) -> Scalars:
    """Row by row the sum, as `multiplied`; the left one and the sum may not be 0."""
    lib, context = library().lib, library().context
    return _each(lambda at, by: lib.secp256k1_ec_seckey_tweak_add(context, at, by), left, right)


def negatives(scalars: Scalars) -> Scalars:
    """Row by row the number that is missing to 0, as `multiplied`."""
    lib, context = library().lib, library().context
    return _each(lambda at, _: lib.secp256k1_ec_seckey_negate(context, at), scalars, scalars)


def _each(act: Callable[[Any, Any], int], left: Scalars, right: Scalars) -> Scalars:
    """What the library makes of each pair of rows; a single row stands for as many as there are in the other."""
    left, right = np.broadcast_arrays(left, right)
    result, other = np.array(left, np.uint8, order="C"), np.ascontiguousarray(right)
    target, source = library().bytes(result), library().bytes(other)
    good = True
    for place in range(0, _SIZE * len(result), _SIZE):
        good &= act(target + place, source + place) == 1
    if not good:
        raise TacitError("a secret scalar is 0, or not below the order, which chance does once in 2**128: do it again")
    return result
