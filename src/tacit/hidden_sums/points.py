"""Points of secp256k1 as rows of arrays, with all arithmetic in libsecp256k1 (the extra `[sums]`).

The group has prime order, so a point that decodes needs no other check. The library adds up any number of points in one
call: a product with a fixed point is a sum over a table of its multiples, a sum of products (Pippenger) a few sums over
many points. Which entries of a table are read depends on the scalar, so someone who shares the processor's cache could
watch it; `products_of_base` has no such table, and a label party uses nothing else for what depends on labels.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ProtocolError, TacitError, UsageError
from tacit.hidden_sums._library import ENCODED, POINT, encoded, library
from tacit.hidden_sums.scalars import ORDER, Scalars, scalars_of

# points in the library's form, one in each row; all zeros for the neutral element (count, 64)
Points = NDArray[np.uint8]

Encoded = NDArray[np.uint8]  # points as they cross the wire; the neutral element has no such form (count, 33)

_FEW = 64  # points that are multiplied one by one in less time than all together
_BASE = bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")


# --- to and from bytes -----------------------------------------------------------------------------------------------


def decode(encoded: Encoded) -> Points:
    """Points from bytes, each checked to be on the curve; what is none is a `ProtocolError`."""
    points, good = decode_any(encoded)
    if not good:
        raise ProtocolError("what should be points of secp256k1 are none")
    return points


def decode_any(encoded: Encoded) -> tuple[Points, bool]:
    """Points from a peer, and whether all of them are; in the place of one that is none stands G, to go on with."""
    loaded = library()
    parse, context = loaded.lib.secp256k1_ec_pubkey_parse, loaded.context
    result = np.zeros((len(encoded), POINT), np.uint8)
    target, raw = loaded.points(result), encoded.tobytes()
    good = True
    for place in range(len(encoded)):
        good &= parse(context, target + place, raw[ENCODED * place : ENCODED * place + ENCODED], ENCODED) == 1
    if not good:
        result[is_zero(result)] = base()[0]
    return result, good


def encode(points: Points) -> Encoded:
    """Points as bytes, which are the same wherever they were computed; none may be the neutral element."""
    if is_zero(points).any():
        raise TacitError("the neutral element came up where chance has a probability of 2**-256 for it: do it again")
    return encoded(library(), points)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def base() -> Points:
    """The base point G.  (1, 64)"""
    return decode(np.frombuffer(_BASE, np.uint8).reshape(1, -1))


def is_zero(points: Points) -> NDArray[np.bool_]:
    """Which of the points are the neutral element.  (count,)"""
    return np.asarray(np.logical_not(points.any(axis=1)))


def negated(points: Points) -> Points:
    """The inverse of each point."""
    result, loaded = np.array(points, order="C"), library()
    target = loaded.points(result)
    for place in np.flatnonzero(~is_zero(result)).tolist():
        loaded.lib.secp256k1_ec_pubkey_negate(loaded.context, target + place)
    return result


def total(points: Points) -> Points:
    """The sum of all points.  (1, 64)"""
    rows = np.ascontiguousarray(points[~is_zero(points)])
    result = np.zeros((1, POINT), np.uint8)
    if len(rows):
        loaded, addresses = library(), addresses_of(rows)
        loaded.lib.secp256k1_ec_pubkey_combine(
            loaded.context, loaded.points(result), loaded.pointers(addresses), len(rows)
        )  # leaves zeros where the sum is the neutral element
    return result


def sums_of_each(*columns: NDArray[np.uint64]) -> Points:
    """For each row the sum of the points whose addresses stand in it; none may be the neutral element.  (rows, some)"""
    loaded = library()
    addresses = np.ascontiguousarray(np.concatenate(columns, axis=1))
    result = np.zeros((len(addresses), POINT), np.uint8)
    target, source, width = loaded.points(result), loaded.pointers(addresses), addresses.shape[1]
    combine, context = loaded.lib.secp256k1_ec_pubkey_combine, loaded.context
    for place in range(len(addresses)):
        combine(context, target + place, source + width * place, width)
    return result


def addresses_of(points: Points) -> NDArray[np.uint64]:
    """Where each of the points lies, for `sums_of_each`; the array must outlive them.  (count, 1)"""
    if not points.flags.c_contiguous:
        raise UsageError("points must lie in one piece for the library to find them")
    where: NDArray[np.uint64] = np.uint64(points.ctypes.data) + np.arange(len(points), dtype=np.uint64) * POINT
    return where[:, None]


def products_of_base(scalars: Scalars) -> Points:
    """Each scalar times G, in time that does not depend on the scalars; none of them may be 0."""
    loaded = library()
    create, context = loaded.lib.secp256k1_ec_pubkey_create, loaded.context
    result = np.zeros((len(scalars), POINT), np.uint8)
    target, raw, good = loaded.points(result), scalars.tobytes(), True
    for place in range(len(scalars)):
        good &= create(context, target + place, raw[32 * place : 32 * place + 32]) == 1
    if not good:
        raise TacitError("a scalar is 0 or not below the order, which chance does once in 2**128: do it again")
    return result


class Table:
    """Multiples of a point, for about so many products with it: more are worth a larger table.

    Entry d of place w is (d + 1) 2**(window w) P: never the neutral element, and the ones that are too many are taken
    off the number before.
    """

    def __init__(self, point: Points, count: int) -> None:
        self._window = 11 if count > 20_000 else 8 if count > 1000 else 4
        self._places = -(-256 // self._window)
        self._entries = np.zeros((self._places << self._window, POINT), np.uint8)
        self._extra = sum(1 << self._window * place for place in range(self._places))
        step = point
        for place in range(self._places):
            step = self._fill(place << self._window, step)

    def _fill(self, first: int, step: Points) -> Points:
        """Multiples 1, 2, ... of a step; the last of them is the next step."""
        loaded, entries = library(), self._entries
        entries[first] = step[0]
        addresses = np.array([0, entries.ctypes.data + first * POINT], np.uint64)
        pair, target = loaded.pointers(addresses), loaded.points(entries)
        after = first + (1 << self._window)
        for place in range(first + 1, after):
            addresses[0] = entries.ctypes.data + (place - 1) * POINT
            loaded.lib.secp256k1_ec_pubkey_combine(loaded.context, target + place, pair, 2)
        return entries[after - 1 : after]

    def addresses(self, numbers: list[int]) -> NDArray[np.uint64]:
        """For each number where the points lie whose sum is its product.  (count, places)"""
        digits = _digits(scalars_of([(number - self._extra) % ORDER for number in numbers]), self._window)
        entries = digits.astype(np.uint64) + (np.arange(self._places, dtype=np.uint64) << np.uint64(self._window))
        return np.asarray(np.uint64(self._entries.ctypes.data) + entries * np.uint64(POINT))

    def products(self, numbers: list[int]) -> Points:
        """Each number times the point."""
        return sums_of_each(self.addresses(numbers))


def product(point: Points, number: int) -> Points:
    """A point times a number that is public: the time that it takes depends on it.  (1, 64)"""
    loaded, result = library(), np.array(point, order="C")
    scalar = number % ORDER
    if not scalar or is_zero(result)[0]:
        return np.zeros_like(result)
    loaded.lib.secp256k1_ec_pubkey_tweak_mul(loaded.context, loaded.points(result), scalar.to_bytes(32, "big"))
    return result


def weighted_sum(points: Points, weights: NDArray[np.uint8]) -> Points:
    """The sum of all points, each times its weight, a whole number with its most significant byte first.  (1, 64)"""
    present = ~is_zero(points)
    rows, weights = np.ascontiguousarray(points[present]), weights[present]
    if len(rows) <= _FEW:
        each = [product(row[None], int.from_bytes(weight, "big")) for row, weight in zip(rows, weights, strict=True)]
        return total(np.concatenate([np.zeros((1, POINT), np.uint8), *each]))
    return _sum_by_digits(rows, weights)


def _sum_by_digits(rows: Points, weights: NDArray[np.uint8]) -> Points:
    """`weighted_sum` as Pippenger does it: for each digit, points of the same digit are added up before."""
    window = min(12, max(4, len(rows).bit_length() - 5))
    digits = _digits(weights, window)
    result = np.zeros((1, POINT), np.uint8)
    for place in reversed(range(digits.shape[1])):
        buckets = _buckets(rows, digits[:, place], 1 << window)
        for bit in reversed(range(window)):
            chosen = buckets[(np.arange(1 << window) >> bit & 1).astype(bool)]
            result = total(np.concatenate([result, result, total(chosen)]))
    return result


def _buckets(rows: Points, digits: NDArray[np.uint16], count: int) -> Points:
    """For each digit the sum of the points that have it; for 0 nothing, since it counts for nothing."""
    loaded = library()
    order = np.argsort(digits, kind="stable")
    addresses = np.uint64(rows.ctypes.data) + order.astype(np.uint64) * np.uint64(POINT)
    sizes = np.bincount(digits, minlength=count)
    starts = (np.cumsum(sizes) - sizes).tolist()
    result = np.zeros((count, POINT), np.uint8)
    target, source = loaded.points(result), loaded.pointers(addresses)
    combine, context = loaded.lib.secp256k1_ec_pubkey_combine, loaded.context
    for digit, size in enumerate(sizes.tolist()):
        if digit and size:
            combine(context, target + digit, source + starts[digit], size)
    return result


def _digits(scalars: NDArray[np.uint8], window: int) -> NDArray[np.uint16]:
    """Scalars in digits of so many bits, 12 at most, the least significant first.  (count, digits)"""
    places = -(-8 * scalars.shape[1] // window)
    padded = np.zeros((scalars.shape[1] + 3, len(scalars)), np.uint32)
    padded[:-3] = scalars.T[::-1]
    digits = np.empty((places, len(scalars)), np.uint16)
    for place in range(places):
        byte, shift = divmod(place * window, 8)
        word = padded[byte] | padded[byte + 1] << np.uint32(8) | padded[byte + 2] << np.uint32(16)
        digits[place] = word >> np.uint32(shift) & np.uint32((1 << window) - 1)
    return np.ascontiguousarray(digits.T)


# --- points that nobody knows a relation of --------------------------------------------------------------------------


def generators(count: int, domain: bytes) -> Points:
    """Points whose discrete logarithms nobody knows: hashes taken as x until there is a point (try and increment).

    Everything that goes in is public, so that this takes more or less time does not matter. Fewer are the first of
    more.
    """
    loaded = library()
    result = np.zeros((count, POINT), np.uint8)
    target, parse, context = loaded.points(result), loaded.lib.secp256k1_ec_pubkey_parse, loaded.context
    prefix = hashlib.sha256(b"tacit hidden sums generators 1" + len(domain).to_bytes(8, "big") + domain)
    for place in range(count):
        tries = 0
        while True:
            state = prefix.copy()
            state.update(place.to_bytes(8, "big") + tries.to_bytes(8, "big"))
            if parse(context, target + place, b"\x02" + state.digest(), ENCODED):
                break
            tries += 1
    return result
