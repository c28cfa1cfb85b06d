"""What a feature party does so that its embeddings give less of its inputs away: one file for each, named after it.

`gaussian` changes the embedding itself; `distance_correlation`, `adversarial` and `noise_regularization` add a loss
with which the bottom model learns to say less.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tacit import plugins
from tacit.contracts import EmbeddingProtection
from tacit.split.protect.embedding._reconstructor import Reconstructing
from tacit.split.protect.facts import Facts

__all__ = ["Reconstructing", "embedding_protection", "facts", "names"]


def __getattr__(name: str) -> ModuleType:
    """The module of a protection, on first use: `tacit.split.protect.embedding.gaussian`."""
    return plugins.module(__name__, name)


def names() -> list[str]:
    """The names of all embedding protections: those of the public files in this folder."""
    return plugins.names(__name__)


def embedding_protection(name: str, **options: Any) -> EmbeddingProtection:
    """An embedding protection by its name, as it stands in configs and on the command line.

    >>> embedding_protection("gaussian", std=0.5, clip=4.0)
    Gaussian(std=0.5, snr=None, clip=4.0)
    >>> embedding_protection("gauss", std=0.5)
    Traceback (most recent call last):
    ...
    tacit.errors.UsageError: there is no embedding protection 'gauss'; there are: adversarial, ..., noise_regularization
    """
    made: EmbeddingProtection = plugins.call(__name__, "embedding protection", name, options)
    return made


def facts(name: str) -> Facts:
    """What is known of an embedding protection before it is made: its options, and what it promises."""
    known: Facts = plugins.facts(__name__, "embedding protection", name)
    return known
