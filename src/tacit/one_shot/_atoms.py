"""What can be sent, with its probability under the one label and under the other: exact, in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gmpy2 import mpz  # type: ignore[import-untyped]


def up(value: Fraction) -> float:
    """The smallest float that is not below an exact value.

    >>> up(Fraction(1, 3)), up(Fraction(1, 2))
    (0.33333333333333337, 0.5)
    """
    try:
        near = float(value)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


@dataclass(frozen=True)
class Atoms:
    """Outcomes by falling likelihood ratio, no two of the same one; nothing is rounded."""

    # how likely each outcome is under the one label and under the other, in parts of `whole`, both above 0
    pairs: tuple[tuple[int, int], ...]
    # what the two columns of `pairs` would sum to if nothing were left out. What is left out of a column is mass that
    # only this label can have: an outcome that gives the label away
    whole: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]], whole: int) -> Atoms:
        """From outcomes in any order. Equal ratios become one outcome, which loses nothing that tells labels apart.

        Two ratios of numbers up to `whole` that differ at all differ by at least 1/whole**2, so whole parts of half
        of that tell them apart.
        """
        shift = 2 * whole.bit_length() + 1
        merged: dict[mpz, tuple[int, int]] = {}
        for one, other in pairs:
            if one and other:
                ratio = (mpz(one) << shift) // other
                had = merged.get(ratio, (0, 0))
                merged[ratio] = (had[0] + one, had[1] + other)
        return cls(tuple(merged[ratio] for ratio in sorted(merged, reverse=True)), whole)

    @property
    def only(self) -> tuple[int, int]:
        """Mass that only the one label can have, and mass that only the other can, in parts of `whole`."""
        return self.whole - sum(p for p, _ in self.pairs), self.whole - sum(q for _, q in self.pairs)

    def swapped(self) -> Atoms:
        """The same with the labels' parts exchanged."""
        return Atoms(tuple((q, p) for p, q in reversed(self.pairs)), self.whole)

    def then(self, other: Atoms) -> Atoms:
        """Both seen, drawn independently given the label."""
        products = ((p * r, q * s) for p, q in self.pairs for r, s in other.pairs)
        return Atoms.of(products, self.whole * other.whole)

    def auc(self) -> Fraction:
        """The best AUC of telling the labels apart: that of the likelihood ratio, ties counted half."""
        only_one, only_other = self.only
        below = only_other  # under the other label, of outcomes with a lower ratio
        twice = 0
        for p, q in reversed(self.pairs):
            twice += p * (2 * below + q)
            below += q
        return Fraction(twice + 2 * only_one * below, 2 * self.whole**2)

    def odds(self, delta: Fraction) -> Fraction | None:
        """The smallest factor that no event of a probability above `delta` passes, either way; None: none is finite.

        `delta` lies between 0 and 1, both excluded.
        """
        found = [atoms._factor(delta) for atoms in (self, self.swapped())]
        return None if None in found else max(Fraction(1), *(factor for factor in found if factor is not None))

    def _factor(self, delta: Fraction) -> Fraction | None:
        """`delta` over the least probability under the other label of an event that has `delta` under the one."""
        left, other = delta * self.whole - self.only[0], Fraction(0)
        if left <= 0:
            return None
        for p, q in self.pairs:  # they hold more than `left`, as delta is below 1
            if left <= p:
                other += left * q / p
                break
            left, other = left - p, other + q
        return delta * self.whole / other
