"""What a label party does to the gradient before it is sent: one file for each protection, named after it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tacit import plugins
from tacit.contracts import Protection
from tacit.split.protect.facts import Facts
from tacit.split.protect.gradient._base import (
    Batch,
    Drawn,
    GradientProtection,
    fused,
    positive_number,
    theorem_1,
    whole_number,
)
from tacit.split.protect.gradient._chain import Chain, chain
from tacit.split.protect.gradient._stack import Lanes, stacked

__all__ = [
    "Batch", "Chain", "Drawn", "GradientProtection", "Lanes", "chain", "facts", "fused", "names", "positive_number",
    "protection", "stacked", "theorem_1", "whole_number",
]  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    """The module of a protection, on first use: `tacit.split.protect.gradient.marvell.solve`."""
    return plugins.module(__name__, name)


def names() -> list[str]:
    """The names of all gradient protections: those of the public files in this folder."""
    return plugins.names(__name__)


def protection(name: str, **options: Any) -> Protection:
    """A gradient protection by its name, as it stands in configs and on the command line.

    >>> protection("marvell", scale=4.0).name
    'marvell'
    >>> protection("marvel", scale=4.0)
    Traceback (most recent call last):
    ...
    tacit.errors.UsageError: there is no protection 'marvel'; there are: clip, iso, marvell, matched, ...
    """
    made: Protection = plugins.call(__name__, "protection", name, options)
    return made


def facts(name: str) -> Facts:
    """What is known of a gradient protection before it is made: its options, and what it promises.

    >>> [option.name for option in facts("matched").strengths]
    ['leak_auc', 'scale']
    """
    known: Facts = plugins.facts(__name__, "protection", name)
    return known
