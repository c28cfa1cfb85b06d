"""Many releases added up where their outcomes are too many to keep apart: on a lattice, and never below the truth.

The likelihood ratios of a lattice are whole powers of 2049/2048, and what it keeps is each outcome's probability under
the one label, in parts of 2**64; that under the other label follows from the ratio. Three steps lose exactness, all of
them to the safe side:

- An outcome between two powers is split between them so that its probability under either label stays: whoever sees
  which of the two it became can only know more (Doroshenko et al., Connect the dots, 2022).
- Probabilities are rounded down, and what is missing of 1 counts as an outcome that gives the label away.
- Ratios beyond 2**64 either way, and the last 2**-44 of probability at either end, count as given away, too.

Sums of indices are products of ratios, so adding up is a product of polynomials with whole coefficients, here one
product of two long integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import gmpy2  # type: ignore[import-untyped]
from gmpy2 import mpfr, mpz

from tacit.one_shot._atoms import Atoms

_BITS = 64
_WHOLE = 1 << _BITS
_STEP = Fraction(2049, 2048)
_END = _BITS * 1420  # 2049/2048 to this power is 2**64
_PRECISION = 256  # of intermediate results; what is rounded is smaller by far than what `_SAFE` takes off
_SAFE = 1 - Fraction(1, 1 << 70)
_ENDS = 1 << 20  # of 2**64: so little at either end is cut off


@dataclass(frozen=True)
class Lattice:
    """Outcomes on the lattice."""

    first: int  # the power that `masses` begin at
    masses: tuple[int, ...]  # under the one label, of each power from `first` on, in parts of 2**64

    @classmethod
    def over(cls, atoms: Atoms) -> Lattice:
        """The lattice that tells at least as much as these outcomes."""
        found: dict[int, int] = {}
        with gmpy2.context(precision=_PRECISION):
            step = mpfr(_STEP.numerator) / _STEP.denominator
            for p, q in atoms.pairs:
                power = int(gmpy2.floor(gmpy2.log(mpfr(p) / q) / gmpy2.log(step)))
                high = (mpfr(p) - q * step**power) / (step - 1) * step  # its part of p at the next power
                scale = mpfr(_SAFE.numerator) / _SAFE.denominator * _WHOLE / atoms.whole
                for place, part in ((power, p - high), (power + 1, high)):
                    found[place] = found.get(place, 0) + max(0, int(gmpy2.floor(part * scale)))
        first = min(found, default=0)
        return _cut(first, [found.get(place, 0) for place in range(first, max(found, default=-1) + 1)])

    def then(self, other: Lattice) -> Lattice:
        """Both seen, drawn independently given the label."""
        masses = [mass >> _BITS for mass in product(self.masses, other.masses, 2 * _BITS)]
        return _cut(self.first + other.first, masses)

    def atoms(self) -> Atoms:
        """As outcomes with a probability under either label, rounded down."""
        pairs = []
        with gmpy2.context(precision=_PRECISION):
            step = mpfr(_STEP.denominator) / _STEP.numerator
            ratio = step**self.first * _SAFE.numerator / _SAFE.denominator
            for mass in self.masses:
                pairs.append((mass, int(gmpy2.floor(mass * ratio))))
                ratio *= step
        return Atoms(tuple((p, q) for p, q in reversed(pairs) if p and q), _WHOLE)

    def auc(self) -> Fraction:
        """As of `Atoms`, not below the truth."""
        return self.atoms().auc()

    def odds(self, delta: Fraction) -> Fraction | None:
        """As of `Atoms`, not below the truth."""
        return self.atoms().odds(delta)


def product(one: tuple[int, ...], other: tuple[int, ...], bits: int) -> list[int]:
    """The coefficients of the product of two polynomials, exact.

    Args:
        one: coefficients, from 0 on.
        other: likewise.
        bits: no coefficient of either, or of the product, is above 2**bits.
    """
    if not one or not other:
        return []
    slot = (bits + 8) // 8  # bytes that hold any coefficient of the product
    packed = [
        mpz(int.from_bytes(b"".join(mass.to_bytes(slot, "little") for mass in part), "little")) for part in (one, other)
    ]
    size = len(one) + len(other) - 1
    raw = int(packed[0] * packed[1]).to_bytes(slot * size, "little")
    return [int.from_bytes(raw[place : place + slot], "little") for place in range(0, slot * size, slot)]


def _cut(first: int, masses: list[int]) -> Lattice:
    """Without what lies beyond the ends, and without ends that hardly ever come up under the label they speak for."""
    low, high = max(0, -_END - first), max(0, min(len(masses), _END - first + 1))
    cut = 0.0
    while low < high:  # how likely under the other label, by floats: whatever is cut off, it is on the safe side
        cut += masses[low] * math.exp(-(first + low) * math.log(_STEP))
        if cut > _ENDS:
            break
        low += 1
    left = _ENDS
    while high > low and masses[high - 1] <= left:
        left -= masses[high - 1]
        high -= 1
    return Lattice(first + low, tuple(masses[low:high]))
