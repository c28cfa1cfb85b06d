"""What a label party does to the gradient before it is sent: one file for each protection, named after it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

from tacit.contracts import Protection
from tacit.errors import UsageError

__all__ = ["names", "protection"]


def __getattr__(name: str) -> ModuleType:
    """The module of a protection, on first use: `tacit.protect.gradient.marvell.solve`."""
    if name in names():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def names() -> list[str]:
    """The names of all gradient protections: those of the public files in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def protection(name: str, **options: Any) -> Protection:
    """A gradient protection by its name, as it stands in configs and on the command line.

    >>> protection("marvell", scale=4.0).name
    'marvell'
    >>> protection("marvel", scale=4.0)
    Traceback (most recent call last):
    ...
    tacit.errors.UsageError: there is no protection 'marvel'; there are: clip, iso, label_distance_correlation, ...
    """
    if name not in names():
        raise UsageError(f"there is no protection {name!r}; there are: {', '.join(names())}")
    factory = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(f"protection {name!r}: {error}; it takes {inspect.signature(factory)}") from None
    made: Protection = factory(**options)
    return made
