"""A wave that is still training, kept on the disk now and then, so that an interruption costs minutes and no hours."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._version import __version__
from tacit.errors import StorageError
from tacit.lab.sweeping.wave import Wave
from tacit.wire.checkpoint import load, save

SUFFIX = ".checkpoint"
_SPARE = 20  # times as long as the last one took the next one waits, so that a slow disk costs 5% at most


@dataclass(frozen=True)
class Begun:
    """A wave that was interrupted."""

    path: Path  # its checkpoint
    numbers: tuple[int, ...]  # of its replicas, in order
    done: int  # updates before the checkpoint
    updates: int  # all that it has
    state: Mapping[str, Any]  # for `Wave.restore`


class Keeping:
    """Writes a wave down after a stretch, if the last time was long enough ago.

    Where the disk refuses, training is worth more than its checkpoints: it goes on without them, and `notes` says so.
    """

    def __init__(self, path: Path, what: Mapping[str, Any], every: float, notes: list[str]) -> None:
        self.path, self.what, self.every, self.notes = path, what, every, notes
        self._next = time.monotonic() + every

    def __call__(self, wave: Wave) -> None:
        """The end of a stretch."""
        start = time.monotonic()
        if start < self._next:
            return
        about = {"numbers": list(wave.numbers), "done": wave.done, "updates": wave.updates}
        try:
            save(self.path, wave.state(), {"version": __version__, "what": self.what, **about})
        except StorageError as error:
            self.notes.append(f"no more checkpoints were written: {error}")
            self._next = float("inf")
        else:
            end = time.monotonic()
            self._next = end + max(self.every, _SPARE * (end - start))


def begun_in(folder: Path, what: Mapping[str, Any]) -> tuple[list[Begun], list[str]]:
    """The waves of a sweep that were interrupted in a folder, and notes about checkpoints that are of no use."""
    found, notes = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            kept = load(path)
            if kept.meta.get("what") != what:
                raise StorageError(f"{path} is of another sweep")
            if kept.meta["version"] != __version__:
                raise StorageError(f"{path} was written by version {kept.meta['version']}, this is {__version__}")
            about = {name: kept.meta[name] for name in ("done", "updates")}
            found.append(Begun(path, tuple(kept.meta["numbers"]), **about, state=kept.state))
        except StorageError as error:
            notes.append(f"a checkpoint was left out and its wave began anew: {error}")
    return found, notes
