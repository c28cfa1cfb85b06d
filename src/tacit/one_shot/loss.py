"""What releases tell about one label, added up exactly: leak AUC and odds of whoever knows everything but that label.

A release is a pair of distributions over what can be sent: given the one label, and given the other. All that matters
is how the two compare outcome by outcome, the distribution of the *privacy loss*. Several releases of one label are
the products of their outcomes. The best AUC and the largest change of odds are read off the result; AUCs themselves do
not add (two releases at 0.6 have 0.648 together, or 0.675 where odds are 7.4).

Rows of one unit add up in the same way, whatever direction their labels differ in: turning a release round leaves the
distribution of the difference of two losses, and so the AUC, as it is. Odds multiply at worst; here every
release is turned so that its larger factor stands first, which is that worst case.

Sums are exact while outcomes are few, as for 64 releases of one coin of any number of classes. Beyond, they are taken
on a lattice that errs to the safe side (`tacit.one_shot._lattice`), by less than 1e-4 of AUC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise

from tacit.errors import UsageError
from tacit.one_shot._atoms import Atoms, up
from tacit.one_shot._lattice import Lattice

_PAIRS = 1 << 13  # of outcomes that are multiplied out exactly: 64 releases of a coin and 64 more, just not
_EXACT = 1 << 15  # bits of a probability that is kept exactly


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
        of a pair that they can all be made from. A pair that is turned round is covered by the result turned round,
        which adds up to the same AUC and the same odds.

        Args:
            tables: for each, its outcomes, in parts of `whole`; the lower the hull, the better directions were chosen.
            whole: of both columns.
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
        most = None if self.most is None or other.most is None else _short(self.most * other.most)
        one, two = self.atoms, other.atoms
        if isinstance(one, Atoms) and isinstance(two, Atoms) and _few(one, two):
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

    def auc(self) -> float:
        """The leak AUC: the best that anybody reaches at telling the one label from the other; rounded up."""
        return min(1.0, up(self.atoms.auc()))

    def odds(self, delta: float = 0.0) -> float:
        """The factor that the odds change by at most, but for a share of the rows; rounded up.

        Args:
            delta: whatever anybody computes from what was sent, results that change the odds by more come up for no
                more than this share of the rows, under either label. With 0 the factor holds for every row and
                multiplies over releases; it is infinite for a mechanism that has no such factor.

        Above 0 it holds for labels that differ in the directions that were added up, which makes no difference but for
        rows of one unit under coins that are not symmetric: take 0 for these.
        """
        if not 0 <= delta < 1:
            raise UsageError(f"Loss.odds({delta!r}): delta is a share, from 0 to below 1")
        found = self.atoms.odds(Fraction(delta)) if delta else None
        bounds = [factor for factor in (found, self.most) if factor is not None]
        return up(min(bounds)) if bounds else math.inf


def _short(factor: Fraction) -> Fraction:
    """A factor of at least 1, rounded up where it has become too long to go on with."""
    return factor if factor.denominator.bit_length() <= _EXACT else Fraction(math.ceil(factor * (1 << 64)), 1 << 64)


def _few(one: Atoms, two: Atoms) -> bool:
    return len(one.pairs) * len(two.pairs) <= _PAIRS and (one.whole * two.whole).bit_length() <= _EXACT


def _lattice(outcomes: Atoms | Lattice) -> Lattice:
    return outcomes if isinstance(outcomes, Lattice) else Lattice.over(outcomes)


def _turns_up(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Whether `middle` lies on or below the line from `first` to `last`."""
    (a, b), (c, d), (e, f) = first, middle, last
    return (d - b) * (e - a) <= (f - b) * (c - a)
