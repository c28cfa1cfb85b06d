"""What each mechanism promises over many visits, as its own file says. One without such a file is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from tacit.contracts import Event
from tacit.errors import UsageError
from tacit.protect import embedding, gradient

__all__ = ["Promise", "embedding_sum_kl", "event_of", "facts_of", "promise", "strange"]

Promise = Literal["noise", "nothing"]
"""Whether a mechanism puts noise on every row, or leaves some as they are."""


def _known(role: str) -> list[str]:
    """The mechanisms that a party of this role may have; a feature party that does nothing is "none"."""
    return gradient.names() if role == "label" else ["none", *embedding.names()]


def strange(event: Event, role: str) -> str | None:
    """The name of a mechanism in here that the ledger does not know, for a party of this role; None where it knows all.

    >>> strange(Event("chain", parts=(Event("clip"), Event("mine"))), "label")
    'mine'
    """
    parts = event.parts if event.mechanism == "chain" else (event,)
    known = _known(role)
    inner = (strange(part, role) if part.parts else part.mechanism for part in parts)
    return next((name for name in inner if name is not None and name not in known), None)


def promise(event: Event) -> Promise:
    """What a label party's mechanism does for a row; a chain does what the best of its parts does.

    >>> promise(Event("chain", parts=(Event("clip"), Event("marvell"))))
    'noise'
    """
    _refuse_strange(event, "label")
    if event.mechanism == "chain":
        parts = [promise(part) for part in event.parts]
        return "noise" if "noise" in parts else "nothing"
    return "noise" if gradient.facts(event.mechanism).noise else "nothing"


def embedding_sum_kl(event: Event) -> float | None:
    """What one visit leaves between any two embeddings, in the worst case; None where that is not bounded.

    Precisions add up, so n visits leave n times that. Bare embeddings leave no bound at all: infinity.
    """
    _refuse_strange(event, "features")
    parts = event.parts if event.mechanism == "chain" else (event,)
    if all(part.mechanism == "none" for part in parts):
        return math.inf
    rules = [(part, embedding.facts(part.mechanism).visit_kl) for part in parts if part.mechanism != "none"]
    bounds = [rule(part.parameters) for part, rule in rules if rule is not None]
    return min((bound for bound in bounds if bound is not None), default=None)


def facts_of(event: Event) -> dict[str, Any]:
    """An event as plain values."""
    return {
        "mechanism": event.mechanism,
        "parameters": dict(event.parameters),
        "parts": [facts_of(part) for part in event.parts],
    }


def event_of(facts: Mapping[str, Any]) -> Event:
    """What `facts_of` was given."""
    return Event(facts["mechanism"], facts["parameters"], tuple(event_of(part) for part in facts["parts"]))


def _refuse_strange(event: Event, role: str) -> None:
    name = strange(event, role)
    if name is not None:
        known = ", ".join(_known(role))
        raise UsageError(
            f"the ledger does not know what {name!r} promises over many visits, and does not guess: it knows {known} "
            "and chains of them; say in the FACTS of its file what this one does"
        )
