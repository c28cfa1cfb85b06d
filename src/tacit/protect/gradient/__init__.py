"""What a label party does to the gradient before it is sent: one file for each protection, named after it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tacit.contracts import Protection
from tacit.protect import _listing

__all__ = ["names", "protection"]


def __getattr__(name: str) -> ModuleType:
    """The module of a protection, on first use: `tacit.protect.gradient.marvell.solve`."""
    return _listing.module(__name__, name)


def names() -> list[str]:
    """The names of all gradient protections: those of the public files in this folder."""
    return _listing.names(__name__)


def protection(name: str, **options: Any) -> Protection:
    """A gradient protection by its name, as it stands in configs and on the command line.

    >>> protection("marvell", scale=4.0).name
    'marvell'
    >>> protection("marvel", scale=4.0)
    Traceback (most recent call last):
    ...
    tacit.errors.UsageError: there is no protection 'marvel'; there are: clip, iso, label_distance_correlation, ...
    """
    made: Protection = _listing.made(__name__, "protection", name, options)
    return made
