"""What turns labels into what is sent of them: one of these, by the parameters that it is written down with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.config import Exchange
from tacit.errors import ProtocolError
from tacit.one_shot.flips import Flips, flips

__all__ = ["Mechanism", "agreed_mechanism", "described", "outcomes", "read_mechanism", "sent_dtype"]

Mechanism = Flips
"""Any of them. Two limits of one `series` are nested, and cost together what the weaker of them costs."""

_READERS = {"flips": Flips.read}


def read_mechanism(parameters: Mapping[str, Any]) -> Mechanism:
    """A mechanism from its parameters, which may come from a peer: whatever is not one is a `ProtocolError`."""
    name = parameters.get("mechanism")
    if not isinstance(name, str) or name not in _READERS:
        raise ProtocolError(f"there is no mechanism {str(name)[:40]!r}; there are: {', '.join(_READERS)}")
    return _READERS[name](parameters)


def agreed_mechanism(exchange: Exchange, limit: float, odds: float | None) -> Mechanism:
    """The mechanism for what was agreed on, at the label party's limit and odds."""
    return flips(limit, odds, classes=exchange.classes, rare=exchange.rare)


def outcomes(mechanism: Mechanism) -> int:
    """How many different things may be sent of a row."""
    return mechanism.classes


def sent_dtype(mechanism: Mechanism) -> np.dtype[Any]:
    """Of what is sent of a row, as `Coins.draw` gives it."""
    return np.dtype(np.uint8 if outcomes(mechanism) == 2 else np.int16)


def described(mechanism: Mechanism) -> str:
    """In a few words, for people."""
    what = "flips" if mechanism.classes == 2 else f"flips of {mechanism.classes} classes"
    return f"{what} at AUC {mechanism.auc:.4g}, odds {mechanism.odds:.4g}"
