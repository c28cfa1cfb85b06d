"""Limits as an owner sets them and whole numbers as a peer sends them, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from numbers import Real
from typing import Any

from tacit.errors import ProtocolError, UsageError

WHOLE = 1 << 64
"""Probabilities of coins are whole parts of this."""

MAX_ODDS = 20


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


def share_of(value: Any, name: str = "share") -> Fraction:
    """A share of rows or labels."""
    share = _number(name, value)
    if not 0 <= share <= 1:
        raise UsageError(f"{name} = {value!r}: it lies between 0 and 1")
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
