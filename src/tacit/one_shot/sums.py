"""Sums of labels over groups of rows that the feature party chose, with discrete Gaussian noise.

A label is in one group of each partition, whatever the groups are, crafted ones included, so what the answers tell
about it is what as many noisy copies of it tell: computed from the noise's own distribution, not from a formula for
continuous noise, which is too low where there is little of it. In the clear the label party sees which rows are alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from statistics import NormalDist
from typing import Any

import gmpy2  # type: ignore[import-untyped]
import numpy as np
from gmpy2 import mpfr
from numpy.typing import NDArray

from tacit.errors import LabelsError, ProtocolError, UsageError
from tacit.one_shot.flips import check_parameters, limit_of, odds_of, share_of, word_of
from tacit.one_shot.loss import Loss, product

_NAMES, _VERSION = ("sums", "hidden sums"), 1
_PARTS = 1 << 16  # variances are whole parts of this
_MOST = {"partitions": 256, "groups": 1 << 20, "span": 1023}
_LITTLE = 64 * _PARTS  # a variance below which the formula is off by more than 1e-5
_WIDEST = 20_000  # standard deviation of a sum over all partitions whose distribution is computed, in seconds
_FAR = 12.0  # deviations of the noise that never come up
BITS = 96  # `masses_of` gives probabilities in parts of 2**BITS
_ENDS = 1 << 20  # of 2**96: so little at either end is cut off
_LEAST = {"partitions": 1, "groups": 2, "span": 1}
_FIXED = {"classes": 2, "rows": 1}  # said to a peer and a book: of the labels, and of one unit in a partition

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Sums:
    """The mechanism; made by `sums`, or read from a peer by `Sums.read`."""

    scaled: int  # the noise's variance, in parts of 2**-16
    partitions: int  # how many are answered, once each
    groups: int  # how many rows a group has, about; at least half of that in each
    span: int = 1  # numbers go from 0 to this; 1 for two classes
    # whether the label party sees no groups; the certificate then takes that proofs and ciphertexts hold
    hidden: bool = field(default=False, kw_only=True)

    @property
    def variance(self) -> Fraction:
        """Of the discrete Gaussian on each sum, as a parameter; that of the noise is the same but where it is small."""
        return Fraction(self.scaled, _PARTS)

    @cached_property
    def _loss(self) -> Loss:
        _, masses = masses_of(self.variance, self.partitions)
        blank = (0,) * min(self.partitions * self.span, len(masses))
        return Loss.counted(zip(masses + blank, blank + masses, strict=True), 1 << BITS)

    def loss(self) -> Loss:
        """Of one label over all partitions, from the discrete noise; probabilities rounded down, the rest revealed."""
        return self._loss

    @property
    def auc(self) -> float:
        """The leak AUC of a label, over all partitions; never below it."""
        return self._loss.auc()

    def odds(self, delta: float) -> float:
        """The factor that odds pass for at most this share of rows (`Loss.odds`); for all rows there is none."""
        return self._loss.odds(delta)

    @property
    def series(self) -> str:
        """What makes answers comparable: nothing is nested here, so all that the mechanism is."""
        said = self.parameters()
        return " ".join([str(said.pop("mechanism")), *(f"{name} {value}" for name, value in said.items())])

    def check(self, partition: NDArray[Any], rows: int) -> int:
        """How many groups a peer's partition has; one that is none, or has too small a group, is refused."""
        if not isinstance(partition, np.ndarray) or partition.shape != (rows,) or partition.dtype.kind not in "iu":
            raise ProtocolError(f"a partition is a whole number for each of {rows} rows")
        if not rows or partition.min() < 0 or partition.max() >= rows:
            raise ProtocolError("a partition's groups are counted from 0 on, none left out")
        sizes = np.bincount(partition.astype(np.int64))
        if sizes.min() < max(2, self.groups // 2):
            raise ProtocolError(
                f"group {int(sizes.argmin())} of a partition has {int(sizes.min())} rows: "
                f"at least {max(2, self.groups // 2)} are agreed"
            )
        return len(sizes)

    def answer(self, secret: bytes, partition: NDArray[Any], labels: Numbers, *, number: int, run: str) -> Numbers:
        """Each group's sum of labels plus noise.  (groups,)

        Noise is keyed by the whole partition: asked again, the answer is the same; another partition has noise that has
        nothing to do with it. So whoever answers keeps the first partition of each number and refuses others: each one
        more that is answered tells more than is certified. A row with the label -1 has none and adds nothing.
        """
        labels = self._checked_labels(labels)
        groups = self.check(partition, len(labels))
        where = partition.astype("<i8")
        totals = np.bincount(where, weights=np.maximum(labels, 0), minlength=groups).astype(np.int64)
        whole = hashlib.sha256(where.tobytes()).digest()
        return np.asarray(totals + self.noise(secret, whole, totals.shape, number=number, run=run))

    def noise(self, secret: bytes, whole: bytes, shape: tuple[int, ...], *, number: int, run: str) -> NDArray[np.int64]:
        """The noise of an answer: the same for the same question, and nothing to do with that of another one.

        `whole` is a digest of all that was asked: of a partition, or of the batch that hides one.
        """
        if not isinstance(secret, bytes) or len(secret) < 32:
            raise UsageError("sums: the secret is too short: pass at least 32 random bytes")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < self.partitions:
            raise ProtocolError(f"partition {number!r}: {self.partitions} are agreed, counted from 0")
        bits = KeyedBits(
            secret, b"tacit sums 1", self.series.encode(), run.encode(), number.to_bytes(8, "little"), whole
        )
        drawn = [discrete_gaussian(bits, self.variance) for _ in range(math.prod(shape))]
        return np.array(drawn, np.int64).reshape(shape)

    @property
    def reach(self) -> int:
        """How far from 0 noise never comes: 12 deviations, once in 10**32 times."""
        return math.ceil(_FAR * math.sqrt(self.variance))

    def _checked_labels(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        labels = np.asarray(labels)
        top = self.span
        if labels.ndim != 1 or labels.dtype.kind != "i" or ((labels < -1) | (labels > top)).any():
            raise LabelsError(f"labels are whole numbers from 0 to {top}, one for each row, or -1 where there is none")
        return labels.astype(np.int64)

    def parameters(self) -> dict[str, int | str]:
        """The mechanism for a peer or a ledger, for JSON."""
        return {
            "mechanism": _NAMES[self.hidden], "version": _VERSION, "scaled": str(self.scaled),
            "partitions": self.partitions, "groups": self.groups, "classes": _FIXED["classes"], "span": self.span,
            "rows": _FIXED["rows"],
        }  # fmt: skip

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Sums:
        """What `parameters` gave, from somebody who may send anything: what is none is a `ProtocolError`."""
        hidden = parameters.get("mechanism") == _NAMES[True]
        check_parameters(parameters, _NAMES[hidden], _VERSION, ("scaled", *_MOST, *_FIXED))
        scaled, wrong = word_of(parameters["scaled"]), _wrong({name: parameters[name] for name in _MOST})
        for name, value in _FIXED.items():
            if type(parameters[name]) is not int or parameters[name] != value:
                wrong = f"{name} = {str(parameters[name])[:40]}: only {value} is possible"
        if wrong or not scaled:
            raise ProtocolError(f"sums: {wrong or 'no noise'}")
        found = cls(scaled, *(parameters[name] for name in _MOST), hidden=hidden)
        if found.partitions * found.variance > _WIDEST**2:
            raise ProtocolError(f"sums: noise of variance {float(found.variance):.4g} is beyond what is computed")
        return found


def sums(
    limit: float,
    *,
    odds: float | None = None,
    delta: float | None = None,
    groups: int = 32,
    partitions: int = 4,
    span: int = 1,
    hidden: bool = False,
) -> Sums:
    """The least noise that keeps a label to the limits over all partitions, whatever the groups are.

    Args:
        limit: leak AUC, above 0.5 and below 1.
        odds: a factor that odds pass for a share of at most `delta` of the rows; both or neither.
        delta: that share. Gaussian noise has no factor that holds for all rows.
        groups: rows of a group, about.
        partitions: how many are answered.
        span: for numbers, which are whole from 0 to this (cells of a public range); 1 for two classes.
        hidden: whether the label party is to see no groups: the same noise, under another name.

    >>> mechanism = sums(0.6)
    >>> mechanism.auc <= 0.6, round(float(mechanism.variance), 1), round(mechanism.odds(0.005), 1)
    (True, 31.1, 3.0)
    """
    sizes = {"partitions": partitions, "groups": groups, "span": span}
    wrong = _wrong(sizes)
    if wrong:
        raise UsageError(f"sums: {wrong}")
    if (odds is None) != (delta is None):
        raise UsageError("sums: Gaussian noise has no odds that hold for all rows: set odds and delta, or use flips")
    allowed = limit_of(limit)
    most, share = (None, 0.0) if odds is None else (odds_of(odds), float(share_of(delta, "delta")))
    if most is not None and not 2.0**-40 < share < 1:
        raise UsageError(f"sums: delta = {delta!r}: a share of the rows above 1e-12 and below 1, as 0.002")

    def holds(scaled: int) -> bool:
        made = Sums(scaled, *sizes.values())
        return made.auc <= allowed and (most is None or made.odds(share) <= most)

    first = partitions * span**2 / (2 * NormalDist().inv_cdf(float(allowed)) ** 2) * _PARTS
    if partitions * first > _WIDEST**2 * _PARTS / 2:
        raise UsageError("sums: this needs more noise than can be certified: raise limit, or lower span or partitions")
    return Sums(_least(math.ceil(first * (1 + 2.0**-30)), holds), *sizes.values(), hidden=hidden)


def _least(first: int, holds: Callable[[int], bool]) -> int:
    """About the least number that holds, to 1 in 1,000: near `first`, the formula's, but for little noise."""
    low, high, step = first // 2 if first < _LITTLE else first - 1, first, max(1, first >> 20)
    while not holds(high):
        low, high, step = high, high + step, 4 * step
    while high - low > max(1, high >> 10):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _wrong(sizes: Mapping[str, Any]) -> str:
    """What is wrong with the sizes, if anything."""
    for name, value in sizes.items():
        if type(value) is not int or not _LEAST[name] <= value <= _MOST[name]:
            return f"{name} = {str(value)[:40]}: from {_LEAST[name]} to {_MOST[name]} are possible"
    return ""


# --- discrete Gaussian noise: exact samples from a keyed stream, and its distribution rounded down --------------------


class KeyedBits:
    """Whole numbers from the blocks of a keyed hash; the same secret and parts, each with its length, give the same."""

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
    powers = [_without_ends(-reach, tuple(half[:0:-1] + half))]
    for _ in range(count.bit_length() - 1):
        powers.append(_added(powers[-1], powers[-1]))
    return reduce(_added, (power for place, power in enumerate(powers) if count >> place & 1))


def _added(one: tuple[int, tuple[int, ...]], other: tuple[int, tuple[int, ...]]) -> tuple[int, tuple[int, ...]]:
    masses = product(one[1], other[1], 2 * BITS)
    return _without_ends(one[0] + other[0], tuple(mass >> BITS for mass in masses))


def _without_ends(first: int, masses: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Without its ends; it is symmetric, so as much goes off both."""
    low, left = 0, _ENDS
    while low < len(masses) // 2 and masses[low] <= left:
        left -= masses[low]
        low += 1
    return first + low, masses[low : len(masses) - low]
