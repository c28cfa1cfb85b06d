"""What turns labels into what is sent of them: one of these, by the parameters that it is written down with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.config import Exchange
from tacit.errors import ProtocolError
from tacit.labels.flips import Flips, flips
from tacit.labels.numbers import NumberFlips, number_flips

Mechanism = Flips | NumberFlips  # two limits of one `series` are nested, and cost what the weaker of them costs

_WHOLE = 2.0**64


def read_mechanism(parameters: Mapping[str, Any]) -> Mechanism:
    """A mechanism from its parameters, which may come from a peer: whatever is not one is a `ProtocolError`."""
    name = parameters.get("mechanism")
    if name == "flips":
        return Flips.read(parameters)
    if name == "number flips":
        return NumberFlips.read(parameters)
    raise ProtocolError(f"there is no mechanism {str(name)[:40]!r}; there are: flips, number flips")


def agreed_mechanism(exchange: Exchange, limit: float | None, odds: float | None) -> Mechanism:
    """The mechanism for what was agreed on, at the label party's limit and odds."""
    if exchange.target == "number":
        assert exchange.low is not None  # the contract was checked
        assert exchange.high is not None
        return number_flips(limit, odds, low=exchange.low, high=exchange.high, cells=exchange.cells)
    return flips(limit, odds, classes=exchange.classes, rare=exchange.rare)


def check_agreed(mechanism: Mechanism, exchange: Exchange) -> None:
    """Refuse a peer's mechanism that is not of the kind that was agreed on: more outcomes would steer more."""
    said: tuple[Any, ...]
    agreed: tuple[Any, ...]
    if isinstance(mechanism, NumberFlips):
        said = ("flips", mechanism.low, mechanism.high, mechanism.cells)
    else:
        said = ("flips", mechanism.classes)
    if exchange.target == "number":
        agreed = ("flips", exchange.low, exchange.high, exchange.cells)
    else:
        agreed = ("flips", exchange.classes)
    if said != agreed:
        raise ProtocolError(f"the label party's mechanism is {said}, where the contract says {agreed}")
    if isinstance(mechanism, NumberFlips) and outcomes(mechanism) > mechanism.cells:
        raise ProtocolError(
            f"the label party's mechanism sends {outcomes(mechanism)} different numbers, where the contract says "
            f"{mechanism.cells} cells, which need no more"
        )


def outcomes(mechanism: Mechanism) -> int:
    """How many different things may be sent of a row."""
    return mechanism.classes if isinstance(mechanism, Flips) else len(mechanism.outputs)


def shares(mechanism: Mechanism) -> list[tuple[float, float]]:
    """For each thing that may be sent the least and the most that its share comes to, whatever the labels are."""
    if isinstance(mechanism, NumberFlips):
        return [(min(column) / _WHOLE, max(column) / _WHOLE) for column in zip(*mechanism.table, strict=True)]
    low, high = float(mechanism.b), float(mechanism.a)
    return [(1 - high, 1 - low), (low, high)] if mechanism.classes == 2 else [(low, high)] * mechanism.classes


def sent_dtype(mechanism: Mechanism) -> np.dtype[Any]:
    """Of what is sent, as `Coins.draw` gives it."""
    two = isinstance(mechanism, Flips) and mechanism.classes == 2
    return np.dtype(np.uint8 if two else np.int16)


def described(mechanism: Mechanism) -> str:
    """In a few words, for people."""
    what = "numbers, each randomized once,"
    if isinstance(mechanism, Flips):
        what = "flips" if mechanism.classes == 2 else f"flips of {mechanism.classes} classes"
    return f"{what} at AUC {mechanism.auc:.4g}, odds {mechanism.odds:.4g}"
