"""Finding runs and sweeps, and reading them: all that those need who show them."""

from tacit.views.finding import DAMAGE, Place, damage, find
from tacit.views.run import RunReader
from tacit.views.series import Series
from tacit.views.sweep import SweepReader
from tacit.views.tables import frame, matrix

__all__ = [
    "DAMAGE",
    "Place",
    "Reader",
    "RunReader",
    "Series",
    "SweepReader",
    "damage",
    "find",
    "frame",
    "matrix",
    "reader",
]

Reader = RunReader | SweepReader
"""What reads a place."""


def reader(place: Place) -> Reader:
    """What reads a place."""
    return RunReader(place) if place.kind == "run" else SweepReader(place)
