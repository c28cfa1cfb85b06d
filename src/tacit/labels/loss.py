"""What releases tell about one label, added up exactly: leak AUC and odds of whoever knows everything but that label.

A release is a pair of distributions over what can be sent: given the one label, and given the other. All that matters
is how the two compare outcome by outcome, the distribution of the *privacy loss*. Several releases of one label are
the products of their outcomes. The best AUC and the largest change of odds are read off the result; AUCs themselves do
not add (two releases at 0.6 have 0.648 together, or 0.675 where odds are 7.4).

Rows of one unit add up in the same way, whatever direction their labels differ in: turning a release round leaves the
distribution of the difference of two losses, and so the AUC, as it is. Odds multiply at worst; here every
release is turned so that its larger factor stands first, which is that worst case.

Sums are exact while outcomes are few, as for 64 releases of one coin of any number of classes. Beyond, they are taken
on a `Lattice` that errs to the safe side, by less than 1e-4 of AUC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise

import gmpy2  # type: ignore[import-untyped]
from gmpy2 import mpfr, mpz

from tacit.errors import UsageError

_PAIRS = 1 << 13  # of outcomes that are multiplied out exactly: 64 releases of a coin and 64 more, just not
_EXACT = 1 << 15  # bits of a probability that is kept exactly
_BITS = 64
_WHOLE = 1 << _BITS
_STEP = Fraction(2049, 2048)
_END = _BITS * 1420  # 2049/2048 to this power is 2**64
_PRECISION = 256  # of intermediate results; what is rounded is smaller by far than what `_SAFE` takes off
_SAFE = 1 - Fraction(1, 1 << 70)
_ENDS = 1 << 20  # of 2**64: so little at either end is cut off


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


@dataclass(frozen=True)
class Lattice:
    """Outcomes that are too many to keep apart, on a lattice, and never below the truth.

    Its likelihood ratios are whole powers of 2049/2048, and what it keeps is each outcome's probability under the one
    label, in parts of 2**64; that under the other label follows from the ratio. Three steps lose exactness, all of them
    to the safe side:

    - An outcome between two powers is split between them so that its probability under either label stays: whoever sees
      which of the two it became can only know more (Doroshenko et al., Connect the dots, 2022).
    - Probabilities are rounded down, and what is missing of 1 counts as an outcome that gives the label away.
    - Ratios beyond 2**64 either way, and the last 2**-44 of probability at either end, count as given away, too.

    Sums of indices are products of ratios, so adding up is a product of polynomials with whole coefficients, here one
    product of two long integers.
    """

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


def product(one: tuple[int, ...], other: tuple[int, ...], bits: int) -> list[int]:
    """The coefficients of the product of two polynomials, exact; none of any is above 2**bits."""
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


@dataclass(frozen=True, repr=False)
class Loss:
    """What one release, or several, tell about a label. Never below the truth.

    >>> coin = Loss.of([(Fraction(3, 5), Fraction(2, 5)), (Fraction(2, 5), Fraction(3, 5))])
    >>> coin.auc() == 0.6000000000000001 == up(Fraction(3, 5)), coin.odds()
    (True, 1.5)
    >>> coin.then(coin).auc(), coin.then(coin).odds()
    (0.648, 2.25)
    """

    atoms: Atoms | Lattice  # outcomes and how likely they are under either label
    most: Fraction | None  # the largest factor by which any outcome changes the odds; None where none is finite

    def __repr__(self) -> str:
        return f"Loss(auc={self.auc():.6g}, odds={self.odds():.6g})"

    @classmethod
    def of(cls, pairs: Iterable[tuple[Fraction, Fraction]]) -> Loss:
        """From what can be sent: its probability under the one label and under the other, exact.

        What is missing of 1 counts as given away: it is as if the label itself had been sent.
        """
        kept = [(Fraction(p), Fraction(q)) for p, q in pairs]
        whole = math.lcm(*(part.denominator for pair in kept for part in pair))
        return cls.counted(((int(p * whole), int(q * whole)) for p, q in kept), whole)

    @classmethod
    def counted(cls, pairs: Iterable[tuple[int, int]], whole: int) -> Loss:
        """From probabilities in parts of `whole`."""
        kept = list(pairs)
        if (
            not kept
            or any(p < 0 or q < 0 for p, q in kept)
            or any(sum(side) > whole for side in zip(*kept, strict=True))
        ):
            raise UsageError("Loss: probabilities are not below 0, and those under one label sum to at most 1")
        atoms = Atoms.of(kept, whole)
        if not atoms.pairs or any(atoms.only):
            return cls(atoms, None)
        (p, q), (r, s) = atoms.pairs[0], atoms.pairs[-1]
        return cls(atoms if p * r >= s * q else atoms.swapped(), max(Fraction(p, q), Fraction(s, r)))

    @classmethod
    def dominating(cls, tables: Iterable[Sequence[tuple[int, int]]], whole: int) -> Loss:
        """One that tells at least as much as any of several, however they are added up with others.

        The best that can be done about a pair of distributions is its ROC curve; the upper hull of all curves is that
        of a pair that they can all be made from; the better directions were chosen, the lower it is. A pair that is
        turned round is covered by the result turned round, which adds up to the same AUC and the same odds.
        """
        points = {(0, 0), (whole, whole)}
        for table in tables:
            atoms = Atoms.of(table, whole)
            missed, found = 0, atoms.only[0]
            points.add((missed, found))
            for p, q in atoms.pairs:
                missed, found = missed + q, found + p
                points.add((missed, found))
        hull: list[tuple[int, int]] = []
        for point in sorted(points):
            while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        return cls.counted(((y - v, x - u) for (u, v), (x, y) in pairwise(hull)), whole)

    @classmethod
    def nothing(cls) -> Loss:
        """Of no release at all."""
        return cls(Atoms(((1, 1),), 1), Fraction(1))

    def then(self, other: Loss) -> Loss:
        """Both releases together: their coins are independent given the labels."""
        most = None if self.most is None or other.most is None else self.most * other.most
        if most is not None and most.denominator.bit_length() > _EXACT:  # too long to go on with: rounded up
            most = Fraction(math.ceil(most * (1 << 64)), 1 << 64)
        one, two = self.atoms, other.atoms
        if isinstance(one, Atoms) and isinstance(two, Atoms):
            few = len(one.pairs) * len(two.pairs) <= _PAIRS
            if few and (one.whole * two.whole).bit_length() <= _EXACT:
                return Loss(one.then(two), most)
        return Loss(_lattice(one).then(_lattice(two)), most)

    def times(self, count: int) -> Loss:
        """The same release `count` times, with independent coins: of one label, or of as many rows of one unit."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise UsageError(f"Loss.times({count!r}): count is a whole number from 0 on")
        powers = [self]
        for _ in range(count.bit_length() - 1):
            powers.append(powers[-1].then(powers[-1]))
        used = (power for place, power in enumerate(powers) if count >> place & 1)
        return reduce(Loss.then, used, Loss.nothing())

    @property
    def _outcomes(self) -> Atoms:
        return self.atoms.atoms() if isinstance(self.atoms, Lattice) else self.atoms

    def auc(self) -> float:
        """The leak AUC: the best that anybody reaches at telling the one label from the other; rounded up."""
        return min(1.0, up(self._outcomes.auc()))

    def odds(self) -> float:
        """The factor that the odds change by at most, rounded up; infinite for a mechanism that has none.

        It holds for every row and multiplies over releases.
        """
        return math.inf if self.most is None else up(self.most)


def _lattice(outcomes: Atoms | Lattice) -> Lattice:
    return outcomes if isinstance(outcomes, Lattice) else Lattice.over(outcomes)


def _turns_up(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Whether `middle` lies on or below the line from `first` to `last`."""
    (a, b), (c, d), (e, f) = first, middle, last
    return (d - b) * (e - a) <= (f - b) * (c - a)
