"""Where runs and sweeps are: every folder under some roots that one has left its mark in; and what damaged ones say."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tacit.errors import TacitError

_DEEPEST = 8  # folders below a root
_NEVER = frozenset({"journal", "checkpoints", "transcript", "inputs", "keys", "trusted", "node_modules"})

DAMAGE = (TacitError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What a reader may raise at files that were damaged or changed by hand; one such place must not hide the others."""


@dataclass(frozen=True)
class Place:
    """A run or a sweep."""

    id: str  # short, and the same whenever it is found again
    kind: Literal["run", "sweep"]  # a party's part of a training, or a sweep of trainings in the lab
    path: Path  # its folder
    name: str  # to be read by people: "airline / flights", "sweep-flights"


def damage(place: Place, error: Exception) -> str:
    """What happened, to which place, in one line."""
    what = str(error) if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
    return f"{place.path} can't be shown ({what[:300]}): a file in it was damaged or changed by hand"


def marks(paths: Iterable[Path]) -> list[tuple[str, int, int, int]]:
    """A word for each file that changes whenever the file does: its name, time, size and number; 0 where it is not."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
            found.append((path.name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append((path.name, 0, 0, 0))
    return found


def find(roots: Sequence[Path | str]) -> list[Place]:
    """All runs and sweeps under some folders, newest first; links are not followed, what can't be read is left out."""
    places: dict[Path, tuple[float, Place]] = {}
    for root in roots:
        for folder, mark, kind in _marked(Path(root).resolve()):
            try:
                changed = mark.stat().st_mtime
            except OSError:
                continue
            short = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
            places[folder] = changed, Place(short, kind, folder, _name(folder, kind))
    return [place for _, place in sorted(places.values(), key=lambda pair: (-pair[0], pair[1].name))]


def _marked(root: Path) -> Iterator[tuple[Path, Path, Literal["run", "sweep"]]]:
    for at, inner, files in os.walk(root):
        folder = Path(at)
        deep = len(folder.relative_to(root).parts)
        never = () if folder.name == "runs" else _NEVER  # a run may have any name
        inner[:] = sorted(name for name in inner if deep < _DEEPEST and name not in never and not name.startswith("."))
        if "status.json" in files:
            yield folder, folder / "status.json", "run"
            inner.clear()
        elif "results.parquet" in files:
            yield folder, folder / "results.parquet", "sweep"
            inner.clear()
        elif "waves" in inner:
            yield folder, folder / "waves", "sweep"
            inner.clear()


def _name(folder: Path, kind: str) -> str:
    """A run lies in `PARTY/runs/RUN`; whose it is says more than where."""
    above = folder.parent
    if kind == "run" and above.name == "runs" and above.parent.name:
        return f"{above.parent.name} / {folder.name}"
    return f"{above.name} / {folder.name}" if above.name else folder.name
