"""The public steps in which a strength is raised: each doubles the noise power of the one before.

A party that steers its protection by what it measures tells the peer something by the steps that it takes. So there are
few of them, all alike, and everybody knows them: level n is the configured strength with 2^n times the noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.contracts import EmbeddingProtection, Event, Protection
from tacit.protect.facts import louder, options_of

HIGHEST = 10
"""The last level: a thousand times the configured noise."""


def stronger(protect: Protection, level: int) -> Protection | None:
    """The protection so many levels above; None where it has no strength that could be raised.

    >>> from tacit.protect.gradient import protection
    >>> stronger(protection("iso", t=2.0), 3).t
    16.0
    """
    if level == 0:
        return protect
    raised: Protection | None = protect.louder(2.0**level) if hasattr(protect, "louder") else None
    return raised


def stronger_embedding(protect: Sequence[EmbeddingProtection], level: int) -> list[EmbeddingProtection] | None:
    """The protections with the noise so many levels above; None where none of them adds noise."""
    return list(protect) if level == 0 else louder(protect, 2.0**level)


def spelled(event: Event) -> str:
    """What was done, in one line: the mechanism with its strength.

    >>> spelled(Event("matched", {"knob": "leak_auc", "strength": 0.6, "sum_kl": 0.128, "visits": 3}))
    'matched(leak_auc=0.6, visits=3)'
    """
    if event.parts:
        return " + ".join(spelled(part) for part in event.parts)
    options = options_of(event).items()
    given = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in options]
    return f"{event.mechanism}({', '.join(given)})" if given else event.mechanism


def described(protect: Protection | Sequence[EmbeddingProtection]) -> str:
    """What a party does to what it sends, in one line; somebody's own protection may not say more than its repr."""
    if isinstance(protect, Sequence):
        return " + ".join(spelled(each.event) for each in protect) or "none"
    event = getattr(protect, "event", None)
    return repr(protect) if event is None else spelled(event)
