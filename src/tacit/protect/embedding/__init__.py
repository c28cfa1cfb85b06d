"""What a feature party does so that its embeddings give less of its inputs away: one file for each, named after it.

`gaussian` and `quantize` change the embedding itself; `distance_correlation`, `adversarial` and `noise_regularization`
add a loss with which the bottom model learns to say less.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

from tacit.contracts import EmbeddingProtection
from tacit.errors import UsageError

__all__ = ["embedding_protection", "names"]


def __getattr__(name: str) -> ModuleType:
    """The module of a protection, on first use: `tacit.protect.embedding.gaussian`."""
    if name in names():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def names() -> list[str]:
    """The names of all embedding protections: those of the public files in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def embedding_protection(name: str, **options: Any) -> EmbeddingProtection:
    """An embedding protection by its name, as it stands in configs and on the command line.

    >>> embedding_protection("gaussian", std=0.5, clip=4.0)
    Gaussian(std=0.5, snr=None, clip=4.0)
    >>> embedding_protection("gauss", std=0.5)
    Traceback (most recent call last):
    ...
    tacit.errors.UsageError: there is no embedding protection 'gauss'; there are: adversarial, ..., quantize
    """
    if name not in names():
        raise UsageError(f"there is no embedding protection {name!r}; there are: {', '.join(names())}")
    factory = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(f"embedding protection {name!r}: {error}; it takes {inspect.signature(factory)}") from None
    made: EmbeddingProtection = factory(**options)
    return made
