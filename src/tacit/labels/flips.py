"""Labels of classes, flipped once: the coin that an owner's limits mean, and the bound that it gives.

This is randomized response (Warner 1965), memoized as in RAPPOR: what is sent of a label is drawn once, for good.

A label is sent as it is with probability keep/2**64, and is otherwise redrawn: a bit that is 1 with probability
ones/2**64, or any of K classes with the same probability. The limits are turned into these whole numbers by exact
arithmetic, rounded to the safe side, and every bound is computed from the whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from typing import Any

from tacit.errors import ProtocolError, UsageError
from tacit.labels.loss import Loss, up

WHOLE = 1 << 64  # probabilities of coins are whole parts of this
MAX_ODDS = 20
MAX_CLASSES = 32767  # a sent class is an int16
RARE = ("positive", "negative", "neither")
_NAME, _VERSION = "flips", 1


@dataclass(frozen=True)
class Flips:
    """A coin for labels of classes; made by `flips`, or read from a peer by `Flips.read`."""

    classes: int  # how many there are
    keep: int  # the label itself is sent with probability keep/2**64
    # for two classes, a redrawn bit is 1 with probability ones/2**64; 0 for more classes, which are redrawn uniformly
    # over all of them
    ones: int
    # the leak AUC that was asked for, if any. Not known of a coin that was read, and no part of equality
    limit: float | None = field(default=None, compare=False)
    asked_odds: float | None = field(default=None, compare=False)  # the odds that were asked for, if any; likewise

    @property
    def a(self) -> Fraction:
        """How likely 1 is sent for a 1; with more classes, a class for itself. Exact."""
        return Fraction(self.keep, WHOLE) + self.b

    @property
    def b(self) -> Fraction:
        """How likely 1 is sent for a 0; with more classes, a class for any given other. Exact."""
        redrawn = Fraction(self.ones, WHOLE) if self.classes == 2 else Fraction(1, self.classes)
        return (1 - Fraction(self.keep, WHOLE)) * redrawn

    p, q = a, b  # as they are called with K classes

    @property
    def exact_auc(self) -> Fraction:
        """The best AUC of telling any two classes apart, exact."""
        if self.classes == 2:
            return (1 + self.a - self.b) / 2
        return (1 + (self.p - self.q) * (2 - self.p - self.q)) / 2

    @property
    def exact_odds(self) -> Fraction:
        """The largest factor by which what is sent changes the odds of any two classes, exact."""
        a, b = self.a, self.b
        return max(a / b, (1 - b) / (1 - a)) if self.classes == 2 else a / b

    @property
    def auc(self) -> float:
        """`exact_auc` as a float that is not below it."""
        return up(self.exact_auc)

    @property
    def odds(self) -> float:
        """`exact_odds` as a float that is not below it."""
        return up(self.exact_odds)

    @property
    def series(self) -> str:
        """What makes coins comparable: of coins of one series a weaker limit's tells all that a stronger one's does."""
        return f"{_NAME} {_VERSION} classes {self.classes} ones {self.ones}"

    @property
    def why(self) -> str:
        """A sentence where the odds decided instead of the limit; else empty."""
        if self.limit is None or self.exact_auc >= Fraction(self.limit) - Fraction(1, 1 << 40):
            return ""
        return (
            f"odds of {self.asked_odds or MAX_ODDS:g} decide: they allow a leak AUC of {float(self.exact_auc):.4g}, "
            f"less than the limit of {self.limit:g}"
        )

    def posterior(self, share: float) -> tuple[float, float]:
        """How likely the label is 1 after a 0 was sent, and after a 1 was sent, where it is for this public share.

        With more classes: how likely a class of this share is after another one was sent, and after it was sent.
        """
        prior = share_of(share)
        return tuple(  # type: ignore[return-value]
            float(one * prior / (one * prior + other * (1 - prior)))
            for one, other in ((1 - self.a, 1 - self.b), (self.a, self.b))
        )

    def loss(self) -> Loss:
        """Of one label sent once, exact; with more classes that of any two of them."""
        if self.classes == 2:
            return Loss.of([(self.a, self.b), (1 - self.a, 1 - self.b)])
        return Loss.of([(self.p, self.q), (1 - self.p - self.q, 1 - self.p - self.q), (self.q, self.p)])

    def parameters(self) -> dict[str, int | str]:
        """The coin for a peer or a book, for JSON: whole numbers of 64 bits are texts."""
        return {
            "mechanism": _NAME,
            "version": _VERSION,
            "classes": self.classes,
            "keep": str(self.keep),
            "ones": str(self.ones),
        }

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Flips:
        """What `parameters` gave, from somebody who may send anything.

        Raises:
            ProtocolError: it is no coin, or one whose odds are over 20.
        """
        check_parameters(parameters, _NAME, _VERSION, ("classes", "keep", "ones"))
        classes, keep, ones = parameters["classes"], word_of(parameters["keep"]), word_of(parameters["ones"])
        if type(classes) is not int or not 2 <= classes <= MAX_CLASSES:
            raise ProtocolError(f"a coin for {str(classes)[:40]} classes: from 2 to {MAX_CLASSES} are possible")
        if keep == 0 or (ones == 0) != (classes > 2):
            raise ProtocolError(
                f"a coin of {classes} classes with keep {keep} and ones {ones} is none that flips makes"
            )
        found = cls(classes, keep, ones)
        if found.exact_odds > MAX_ODDS:
            raise ProtocolError(f"a coin whose odds are {found.odds:.4g}: at most {MAX_ODDS} are possible")
        return found


def flips(limit: float | None = None, odds: float | None = None, *, classes: int = 2, rare: str = "neither") -> Flips:
    """The coin that keeps to both limits.

    Args:
        limit: leak AUC: nobody tells a label from another with a better one, whatever is known besides. Above 0.5 and
            below 1.
        odds: no label's odds change by more than this factor, e to the epsilon. Above 1, at most 20; 20 where only
            `limit` is given. Needed with three classes or more.
        classes: how many there are.
        rare: which of two classes is rare, as the contract says it in public. With both limits the coin then tells
            as much as it may of that class. Else it is symmetric.

    Chances are rounded to parts of 2**64 so that neither the exact leak AUC nor the exact odds are above what is asked.
    Of many classes with a public prior, send the likely ones only: renumber these from 0 and give others as -1, which
    are drawn uniformly from the likely ones (randomized response on the top k; the bound holds for all).

    >>> coin = flips(0.6)
    >>> coin.auc, round(coin.odds, 6), flips(0.6, 3, rare="positive").why
    (0.6, 1.5, '')
    >>> [round(float(chance), 3) for chance in (flips(0.6, 7.4, rare="positive").a, flips(0.6, 7.4, rare="positive").b)]
    [0.231, 0.031]
    >>> flips(0.9, 3).why
    'odds of 3 decide: they allow a leak AUC of 0.75, less than the limit of 0.9'
    """
    if isinstance(classes, bool) or not isinstance(classes, int) or not 2 <= classes <= MAX_CLASSES:
        raise UsageError(f"flips: classes = {classes!r}: from 2 to {MAX_CLASSES} are possible")
    if rare not in RARE:
        raise UsageError(f"flips: rare = {rare!r}: one of {', '.join(RARE)}")
    if limit is None and odds is None:
        raise UsageError("flips: set limit (leak AUC, as 0.6), odds (as 3), or both")
    most = odds_of(MAX_ODDS if odds is None else odds)
    allowed = None if limit is None else limit_of(limit)
    asked = (None if limit is None else float(limit), None if odds is None else float(odds))
    if classes > 2:
        if odds is None or rare != "neither":
            raise UsageError(f"flips: with {classes} classes odds must be set, and rare is 'neither'")
        keep = int(WHOLE * (most - 1) / (most - 1 + classes))
        return Flips(classes, keep if allowed is None else min(keep, _widest(classes, allowed)), 0, *asked)
    by_odds = int(WHOLE * (most - 1) / (most + 1))
    keep = by_odds if allowed is None else int((2 * allowed - 1) * WHOLE)
    if keep >= by_odds or rare == "neither" or odds is None:
        return Flips(2, min(keep, by_odds), WHOLE // 2, *asked)
    ones = math.ceil(keep * WHOLE / ((WHOLE - keep) * (most - 1)))
    return Flips(2, keep, ones if rare == "positive" else WHOLE - ones, *asked)


def _widest(classes: int, limit: Fraction) -> int:
    """The largest `keep` whose leak AUC is not above the limit: it rises with `keep`."""
    low, high = 0, WHOLE - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if Flips(classes, middle, 0).exact_auc <= limit else (low, middle - 1)
    return low


# --- limits as an owner sets them, and whole numbers as a peer sends them, checked -----------------------------------


def limit_of(value: Any) -> Fraction:
    """A leak AUC that can be kept to: the float as it is, exactly."""
    limit = _number("limit", value)
    if not Fraction(1, 2) < limit < 1:
        raise UsageError(f"limit = {value!r}: a leak AUC above 0.5, a coin flip, and below 1, as 0.6")
    return limit


def odds_of(value: Any) -> Fraction:
    """A factor of odds that can be kept to."""
    odds = _number("odds", value)
    if not 1 < odds <= MAX_ODDS:
        raise UsageError(f"odds = {value!r}: a factor above 1 and at most {MAX_ODDS}, as 3")
    return odds


def share_of(value: Any) -> Fraction:
    """A share of rows or labels."""
    share = _number("share", value)
    if not 0 <= share <= 1:
        raise UsageError(f"share = {value!r}: it lies between 0 and 1")
    return share


def check_parameters(parameters: Any, mechanism: str, version: int, names: Collection[str]) -> None:
    """Refuse what a peer sent if it has other names than the parameters of this mechanism, or is of another one."""
    wanted = {"mechanism", "version", *names}
    if not isinstance(parameters, Mapping) or set(parameters) != wanted:
        raise ProtocolError(f"{mechanism} have {sorted(wanted)} and nothing else: both sides need the same version")
    said = parameters["mechanism"], type(parameters["version"]), parameters["version"]
    if said != (mechanism, int, version):
        raise ProtocolError(f"no {mechanism} of version {version}: both sides need the same version")


def word_of(text: Any) -> int:
    """A whole number below 2**64 that a peer sent as text, in the one way to write it."""
    if not isinstance(text, str) or len(text) > 20 or not (text.isascii() and text.isdigit()):
        raise ProtocolError("a mechanism's numbers are texts of digits: both sides need the same version")
    if str(int(text)) != text or int(text) >= WHOLE:
        raise ProtocolError(f"{text} is no whole number below 2**64")
    return int(text)


def _number(name: str, value: Any) -> Fraction:
    usable = isinstance(value, Real) and not isinstance(value, bool)
    if not usable or not abs(value) < 1e9:
        raise UsageError(f"{name} = {value!r} is not a number that can be used")
    return value if isinstance(value, Fraction) else Fraction(float(value))
