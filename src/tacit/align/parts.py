"""Records in 256 files by a byte of each: what is too much for memory is sorted or compared file by file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.disk import opened, remove, write_at

PARTS = 256
"""As many as a byte has values; of a billion ids each has four million."""

_WAITING = 1 << 25

Records = NDArray[np.uint8]
"""One in each row, all of one width.  (count, width)"""


class Parts:
    """Records of so many bytes on the way to their files; each file is read once, and is gone then."""

    def __init__(self, folder: Path, name: str, width: int, waiting: int | None = None) -> None:
        self._most = waiting or _WAITING
        self._paths = [folder / f"{name}.{part:03}" for part in range(PARTS)]
        self._width = width
        self._sizes = [0] * PARTS  # bytes in each file
        self._waiting: list[tuple[Records, NDArray[np.uint8]]] = []
        for path in self._paths:  # of a process that was killed
            remove(path)

    def add(self, records: Records, parts: NDArray[np.uint8]) -> None:
        """Take in records and the part of each, which keeps them in their order."""
        self._waiting.append((records, parts))
        if sum(some.nbytes for some, _ in self._waiting) >= self._most:
            self._write()

    def size(self, part: int) -> int:
        """How many records a part has."""
        self._write()
        return self._sizes[part] // self._width

    def take(self, part: int) -> Records:
        """All records of a part."""
        self._write()
        path = self._paths[part]
        found = np.fromfile(path, np.uint8) if self._sizes[part] else np.empty(0, np.uint8)
        remove(path)
        self._sizes[part] = 0
        return found.reshape(-1, self._width)

    def __iter__(self) -> Iterator[Records]:
        return map(self.take, range(PARTS))

    def _write(self) -> None:
        if not self._waiting:
            return
        records = np.concatenate([some for some, _ in self._waiting])
        parts = np.concatenate([some for _, some in self._waiting])
        self._waiting = []
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=PARTS))
        records = np.take(records, order, axis=0)
        for part, (path, end) in enumerate(zip(self._paths, ends, strict=True)):
            start = ends[part - 1] if part else 0
            if end > start:
                self._sizes[part] += _appended(path, records[start:end], self._sizes[part])


def _appended(path: Path, records: Records, size: int) -> int:
    """Write records to the end of a file, which is made where there is none; no file stays open for the next ones."""
    with opened(path, os.O_WRONLY | os.O_CREAT) as fd:
        return write_at(fd, path, [records.data], size)
