"""Sums of labels from sums of ciphertexts; single ciphertexts are never opened."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError
from tacit.hidden_sums._library import library
from tacit.hidden_sums.points import Points, addresses_of, base, encode, is_zero, negated, product, sums_of_each, total
from tacit.hidden_sums.scalars import Scalars


def decrypt_sums(a: Points, b: Points, sk: Scalars, group: int) -> NDArray[np.int64]:
    """The sum of the labels of each group; rows after the last whole group are left out.

    (A, B) = the sum of a group's ciphertexts, and B = m G + sk A. The library multiplies sk and A in constant time, and
    hands out a hash of the product; it is compared with that of B - m G for all m, the right one or not.

    Args:
        a: first halves, in the order in which they were shuffled.  (rows, 64)
        b: second halves.
        sk: the secret key.  (1, 32)
        group: rows of each group.
    """
    count = len(a) // group
    steps = np.concatenate([product(negated(base()), m) for m in range(1, group + 1)])
    sums = np.full(count, -1, np.int64)
    for place in range(count):
        rows = slice(group * place, group * (place + 1))
        shared, whole = _hashed_product(total(a[rows]), sk), total(b[rows])
        less = sums_of_each(np.repeat(addresses_of(whole), group, axis=0), addresses_of(steps))
        rests = np.concatenate([whole, less])
        possible = np.flatnonzero(~is_zero(rests))  # sk A is a point
        for m, rest in zip(possible.tolist(), encode(rests[possible]), strict=True):  # all of them, whichever it is
            if hashlib.sha256(rest.tobytes()).digest() == shared:
                sums[place] = m
    if (sums < 0).any():
        raise TacitError("a group's sum is none that labels have, though all was proven: report this, and stop the run")
    return sums


def _hashed_product(point: Points, sk: Scalars) -> bytes:
    """SHA-256 of sk times a point, encoded: what the library calls a Diffie-Hellman secret."""
    loaded, result, rows = library(), np.zeros(32, np.uint8), np.ascontiguousarray(point)
    null = loaded.ffi.NULL
    key = sk.tobytes()
    if is_zero(rows)[0] or not loaded.lib.secp256k1_ecdh(
        loaded.context, loaded.bytes(result), loaded.points(rows), key, null, null
    ):
        raise TacitError("a group's ciphertexts add up to nothing, which chance does once in 2**256: do it again")
    return result.tobytes()
