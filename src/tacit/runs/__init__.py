"""What runs and sweeps leave in their folders, found and read for those who show it: the live page, exports.

Nothing here touches a running party: files are read, again and again, only as far as they are new.
"""

from tacit.runs.across import frame, matrix
from tacit.runs.damage import DAMAGE, damage
from tacit.runs.finding import Place, find
from tacit.runs.run import RunReader
from tacit.runs.series import Series
from tacit.runs.sweep import SweepReader

__all__ = ["DAMAGE", "Place", "RunReader", "Series", "SweepReader", "damage", "find", "frame", "matrix", "reader"]


def reader(place: Place) -> RunReader | SweepReader:
    """What reads a place."""
    return RunReader(place) if place.kind == "run" else SweepReader(place)
