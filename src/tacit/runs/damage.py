"""What files that nothing of ours has written can do to those who read them, and how it is told."""

from __future__ import annotations

from tacit.errors import TacitError
from tacit.runs.finding import Place

__all__ = ["DAMAGE", "damage"]

DAMAGE = (TacitError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What a reader may raise at files that were damaged or changed by hand; one such place must not hide the others."""


def damage(place: Place, error: Exception) -> str:
    """What happened, to which place, in one line.

    Args:
        place: that could not be read.
        error: one of `DAMAGE`.
    """
    what = str(error) if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
    return f"{place.path} can't be shown ({what[:300]}): a file in it was damaged or changed by hand"
