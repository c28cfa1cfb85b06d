"""Discrete Gaussian noise: exact samples from a keyed stream, and its distribution rounded down."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import reduce

import gmpy2  # type: ignore[import-untyped]
from gmpy2 import mpfr

from tacit.one_shot._lattice import product

BITS = 96
"""`masses_of` gives probabilities in parts of 2**BITS."""

_ENDS = 1 << 20  # of 2**96: so little at either end is cut off


class KeyedBits:
    """Whole numbers from the blocks of a keyed hash, counted from 0; the same key and parts give the same numbers.

    Args:
        secret: of the owner.
        parts: what the numbers are for; each goes in with its length before it.
    """

    def __init__(self, secret: bytes, *parts: bytes) -> None:
        self._base = hashlib.blake2b(key=hashlib.sha256(secret).digest())
        for part in parts:
            self._base.update(len(part).to_bytes(8, "little") + part)
        self._block, self._left = 0, b""

    def below(self, bound: int) -> int:
        """Uniform below a bound, exactly: numbers that are too large are thrown away."""
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            number = int.from_bytes(self._bytes(size), "little") & ((1 << bits) - 1)
            if number < bound:
                return number

    def _bytes(self, size: int) -> bytes:
        while len(self._left) < size:
            block = self._base.copy()
            block.update(self._block.to_bytes(8, "little"))
            self._left += block.digest()
            self._block += 1
        taken, self._left = self._left[:size], self._left[size:]
        return taken


def discrete_gaussian(bits: KeyedBits, variance: Fraction) -> int:
    """One sample, exact: whole numbers x with chances in proportion to exp(-x**2 / (2 variance)).

    Canonne, Kamath, Steinke, The discrete Gaussian for differential privacy, 2020, algorithms 1 to 3.
    """
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    while True:
        found = _laplace(bits, scale)
        if _chance_exp(bits, (abs(found) - variance / scale) ** 2 / (2 * variance)):
            return found


def _laplace(bits: KeyedBits, scale: int) -> int:
    """Whole numbers x with chances in proportion to exp(-|x| / scale)."""
    while True:
        part = bits.below(scale)
        if not _chance_exp(bits, Fraction(part, scale)):
            continue
        times = 0
        while _chance_exp(bits, Fraction(1)):
            times += 1
        size, negative = part + scale * times, bits.below(2)
        if size or not negative:
            return -size if negative else size


def _chance_exp(bits: KeyedBits, exponent: Fraction) -> bool:
    """True with probability exp(-exponent)."""
    while exponent > 1:
        if not _chance_exp(bits, Fraction(1)):
            return False
        exponent -= 1
    count, top, bottom = 1, exponent.numerator, exponent.denominator
    while bits.below(bottom * count) < top:
        count += 1
    return count % 2 == 1


def masses_of(variance: Fraction, count: int) -> tuple[int, tuple[int, ...]]:
    """The distribution of the sum of independent samples: its lowest value, and probabilities from there on.

    None is above the truth; together they are less than 1 by about 2**-70.
    """
    reach = math.isqrt(math.ceil(variance * 130)) + 1  # beyond, less than 2**-93 of what is at 0
    with gmpy2.context(precision=256):
        rate = mpfr(variance.denominator) / (2 * variance.numerator)
        weights = [gmpy2.exp(-rate * (place * place)) for place in range(reach + 1)]
        total = weights[0] + 2 * gmpy2.fsum(weights[1:])
        scale = mpfr(1 << BITS) / (total * (1 + mpfr(2) ** -72))  # more than all that is left out and rounded
        half = [int(gmpy2.floor(weight * scale)) for weight in weights]
    powers = [_cut(-reach, tuple(half[:0:-1] + half))]
    for _ in range(count.bit_length() - 1):
        powers.append(_sum(powers[-1], powers[-1]))
    return reduce(_sum, (power for place, power in enumerate(powers) if count >> place & 1))


def _sum(one: tuple[int, tuple[int, ...]], other: tuple[int, tuple[int, ...]]) -> tuple[int, tuple[int, ...]]:
    masses = product(one[1], other[1], 2 * BITS)
    return _cut(one[0] + other[0], tuple(mass >> BITS for mass in masses))


def _cut(first: int, masses: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Without its ends; it is symmetric, so as much goes off both."""
    low, left = 0, _ENDS
    while low < len(masses) // 2 and masses[low] <= left:
        left -= masses[low]
        low += 1
    return first + low, masses[low : len(masses) - low]
