"""Where runs are: every folder under some roots that one has left its mark in; and what damaged ones say."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import TacitError

_DEEPEST = 8  # folders below a root
_NEVER = frozenset({"journal", "checkpoints", "transcript", "inputs", "keys", "trusted", "node_modules"})

DAMAGE = (TacitError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What a reader may raise at files that were damaged or changed by hand; one such place must not hide the others."""


@dataclass(frozen=True)
class Place:
    """A party's part of a training."""

    id: str  # short, and the same whenever it is found again
    path: Path  # its folder
    name: str  # to be read by people: "airline / flights"


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
    """All runs under some folders, newest first; links are not followed, what can't be read is left out."""
    places: dict[Path, tuple[float, Place]] = {}
    for root in roots:
        for folder in _marked(Path(root).resolve()):
            try:
                changed = (folder / "status.json").stat().st_mtime
            except OSError:
                continue
            short = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
            places[folder] = changed, Place(short, folder, _name(folder))
    return [place for _, place in sorted(places.values(), key=lambda pair: (-pair[0], pair[1].name))]


def _marked(root: Path) -> Iterator[Path]:
    for at, inner, files in os.walk(root):
        folder = Path(at)
        deep = len(folder.relative_to(root).parts)
        never = () if folder.name == "runs" else _NEVER  # a run may have any name
        inner[:] = sorted(name for name in inner if deep < _DEEPEST and name not in never and not name.startswith("."))
        if "status.json" in files:
            yield folder
            inner.clear()


def _name(folder: Path) -> str:
    """A run lies in `PARTY/runs/RUN`; whose it is says more than where."""
    above = folder.parent
    if above.name == "runs" and above.parent.name:
        return f"{above.parent.name} / {folder.name}"
    return f"{above.name} / {folder.name}" if above.name else folder.name
