"""The public steps in which a strength is raised: each doubles the noise power of the one before.

A party that steers its protection by what it measures tells the peer something by the steps that it takes. So there are
few of them, all alike, and everybody knows them: level n is the configured strength with 2^n times the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

from tacit.contracts import EmbeddingProtection, Event, Protection
from tacit.protect.embedding.gaussian import Gaussian
from tacit.protect.gradient._chain import Chain
from tacit.protect.gradient.iso import Iso
from tacit.protect.gradient.marvell import Marvell
from tacit.protect.gradient.matched import Matched

__all__ = ["HIGHEST", "spelled", "stronger", "stronger_embedding"]

_DERIVED = ("knob", "strength", "sum_kl", "warmup")  # what a strength is made of, or brings along

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
    factor = float(2**level)
    if isinstance(protect, Iso):
        return replace(protect, t=protect.t * factor)
    if isinstance(protect, Marvell | Matched):
        strength, sum_kl = _spent(protect, factor)
        return replace(protect, strength=strength, sum_kl=sum_kl)
    if isinstance(protect, Chain):
        raised = [stronger(link, level) for link in protect.links]
        if any(link is not None for link in raised):
            return Chain(tuple(new or old for new, old in zip(raised, protect.links, strict=True)))
    return None


def _spent(protect: Marvell | Matched, factor: float) -> tuple[float, float]:
    """A strength in its own spelling that allows so many times less, and the sumKL that it allows."""
    if protect.knob == "scale":
        scale = float(protect.strength) * factor
        return scale, 1 / scale
    allowed = float(protect.sum_kl) / factor
    if protect.knob == "leak_auc":
        return NormalDist().cdf((allowed / 2) ** 0.5), allowed
    if protect.knob == "detection_error":
        return (2 - allowed**0.5) / 4, allowed
    return allowed, allowed


def stronger_embedding(protect: Sequence[EmbeddingProtection], level: int) -> list[EmbeddingProtection] | None:
    """The protections with the noise so many levels above; None where none of them adds noise."""
    if not any(isinstance(one, Gaussian) for one in protect):
        return None
    factor = float(2**level)
    return [
        replace(
            one,
            std=None if one.std is None else one.std * factor**0.5,
            snr=None if one.snr is None else one.snr / factor,
        )
        if isinstance(one, Gaussian)
        else one
        for one in protect
    ]


def spelled(event: Event) -> str:
    """What was done, in one line: the mechanism with its strength.

    >>> spelled(Event("matched", {"knob": "leak_auc", "strength": 0.6, "sum_kl": 0.128, "visits": 3}))
    'matched(leak_auc=0.6, visits=3)'
    """
    if event.parts:
        return " + ".join(spelled(part) for part in event.parts)
    own = event.parameters
    told = [(str(own["knob"]), own["strength"])] if "knob" in own else []
    told += [(name, value) for name, value in own.items() if name not in _DERIVED and value is not None]
    given = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in told]
    return f"{event.mechanism}({', '.join(given)})" if given else event.mechanism
