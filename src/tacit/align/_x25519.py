"""Curve25519 on plain bytes: from hashes to points, and points times a key. Worker processes load this and little else.

**On the curve, never on its twist.** Half of all u belong to points of the curve, the other half to its twist, and a
multiplication leaves each where it is. Whoever took the hash itself as u would therefore tell the other party one bit
about each id, the same bit in every run.
"""

from __future__ import annotations

import hashlib
import os

import gmpy2  # type: ignore[import-untyped]
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from gmpy2 import mpz

PRIME = 2**255 - 19

LOW_ORDER = (
    0,
    1,
    PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
"""Every u below p whose point, on the curve or on the twist, has an order that divides 8."""

_SIZE = 32
_P = mpz(PRIME)
_A = 486662
_OTHER = _P - _A
_GROUPS = 128


def points(hashes: bytes, domain: bytes) -> bytearray:
    """A point for each hash of 32 bytes, by Elligator 2 (RFC 9380, section 6.7.1).

    r = H(domain, hash) mod p;  v = -486662 / (1 + 2 r^2);  u is v or -486662 - v, whichever is on the curve: one always
    is. All divisions of a call cost one inversion and three products each. The point may have any order that the curve
    knows; X25519 multiplies by 8 along with the key, so what is sent has prime order.
    """
    base = hashlib.blake2b(len(domain).to_bytes(8, "little") + domain, digest_size=_SIZE)
    below, products = [], [mpz(1)]  # 1 + 2 r^2 is never 0, since -1/2 is not a square
    for start in range(0, len(hashes), _SIZE):
        state = base.copy()
        state.update(hashes[start : start + _SIZE])
        r = mpz.from_bytes(state.digest(), "little")
        below.append((2 * r * r + 1) % _P)
        products.append(products[-1] * below[-1] % _P)
    scaled = gmpy2.invert(products[-1], _P) * -_A % _P  # -A over the product of all
    found = []
    for place in reversed(range(len(below))):
        v = scaled * products[place] % _P
        scaled = scaled * below[place] % _P
        u = v if gmpy2.jacobi(v * (v * (v + _A) + 1), _P) == 1 else (_OTHER - v) % _P
        found.append(u.to_bytes(_SIZE, "little"))
    return bytearray().join(reversed(found))


def multiply(joined: bytes, key: bytes) -> bytearray:
    """Products of all points with one key; a point of low order gives 0."""
    secret = X25519PrivateKey.from_private_bytes(key)
    result = bytearray()
    for start in range(0, len(joined), _SIZE):
        point = X25519PublicKey.from_public_bytes(joined[start : start + _SIZE])
        try:
            result += secret.exchange(point)
        except ValueError:  # what cryptography raises where the product is 0
            result += bytes(_SIZE)
    return result


def all_on_curve(joined: bytes) -> bool:
    """True where all products are on the curve, up to chance.

    Two things can put one on the twist: a peer that sent a point of the twist, and a library that multiplies wrongly.
    The second is no theory: `crypto_mb` loses a carry for some points that someone may choose, and wrong products of
    chosen points can tell about the key bit by bit. A wrong product is on the twist half of the time, so a peer that
    asks for them is found out before it has learned more than a bit or two.

    The product of squares is a square: each value goes into one of 128 groups by lot, and one symbol is computed for a
    group. An odd number of values of the twist in a group is found; which ones share a group nobody knows beforehand.
    """
    groups = [mpz(1)] * _GROUPS
    for start, group in zip(range(0, len(joined), _SIZE), os.urandom(len(joined) // _SIZE), strict=True):
        u = mpz.from_bytes(joined[start : start + _SIZE], "little")
        group %= _GROUPS
        groups[group] = groups[group] * (u * (u * (u + _A) + 1)) % _P
    return all(gmpy2.jacobi(group, _P) == 1 for group in groups)
