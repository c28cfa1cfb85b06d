"""What has left for serving, on record before it leaves: most of it without waiting for the disk.

How many rows left is entered in blocks: a line of the run's sealed record makes room for so many, and a service that
was killed leaves it at that. Of different rows each is entered once, by 16 bytes under the party's key: a row that was
asked for before, and whose bytes are the same, needs no entry. How much a feature party has of both is counted apart
from its folder, so that an older copy is known as one.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.company import seals
from tacit.company.departures import served_tally
from tacit.company.folder import Folder
from tacit.company.run_files import MARK, PREDICTIONS, SERVED
from tacit.company.verdict import now
from tacit.disk import opened, sync_file, write_at
from tacit.errors import StorageError
from tacit.one_shot.records import Keys, keyed

_BLOCK = 10_000


class Account:
    """How many rows leave to one party; one process has it at a time.

    What leaves are "tokens" or "embeddings". `writing` is held while a line is added, where several accounts share a
    record, and `counted` is around each line, where lines are counted apart from the folder; facts stand on record with
    it.
    """

    def __init__(
        self,
        where: Path,
        what: str,
        to: str,
        *,
        writing: threading.Lock | None = None,
        counted: Callable[[], AbstractContextManager[None]] = nullcontext,
        **facts: Any,
    ) -> None:
        self._path = where / PREDICTIONS
        self._writing, self._counted = writing or threading.Lock(), counted
        self._said = {"job": f"service {secrets.token_hex(8)}", "to": to}
        self._what, self._facts = what, facts
        self._used = self._room = 0  # of this service
        self.different = 0  # rows, for the record

    def take(self, rows: int) -> None:
        """Let so many leave: when this returns they are on record."""
        if self._used + rows > self._room:
            block = max(rows, _BLOCK)
            self._write(f"room for {self._what}", block)
            self._room += block
        self._used += rows

    def close(self) -> None:
        """Enter what has really left; nothing more does."""
        if self._room:
            self._write(self._what, self._used)
            self._room = 0

    def _write(self, what: str, rows: int) -> None:
        line = {"time": now(), **self._said, "what": what, "rows": rows, **self._facts}
        with self._writing, self._counted():
            seals.append(self._path, {**line, "different": self.different} if self.different else line)


class Marks:
    """Of which rows which bytes have left: 16 bytes of both under the party's key, in a file that only grows."""

    def __init__(self, folder: Folder, where: Path) -> None:
        self._path = where / SERVED
        self._key = hmac.digest(folder.secret, b"tacit served 1", "sha256")
        raw = self._path.read_bytes() if self._path.exists() else b""
        whole = len(raw) // MARK * MARK  # a crash may have cut the last one short: what it was for has not left
        self._known = {raw[at : at + MARK] for at in range(0, whole, MARK)}
        self._end = whole
        least = max((line.get("different", 0) for line in seals.read(where / PREDICTIONS)), default=0)
        if len(self._known) < least:
            raise StorageError(
                f"{self._path} knows of {len(self._known):,} rows, and {least:,} have left: it is an older copy, or "
                "gone; bring the newest one back"
            )
        self._tally = served_tally(folder, where)
        try:
            self._tally.begin(begun=bool(self._known))
            self._tally.check(len(self), len(self))
        except StorageError:
            self._tally.close()
            raise

    def __len__(self) -> int:
        return len(self._known)

    def fresh(self, keys: Keys, values: NDArray[np.uint8]) -> tuple[NDArray[np.int64], list[bytes]]:
        """Which of these rows have not left with these bytes, and their marks."""
        raw = keyed(self._key, np.concatenate([keys, values], axis=1), "served").tobytes()
        marks = [raw[at : at + MARK] for at in range(0, len(raw), MARK)]
        places = [at for at, mark in enumerate(marks) if mark not in self._known]
        return np.array(places, np.int64), [marks[at] for at in places]

    def add(self, marks: list[bytes]) -> None:
        """They are about to leave: on the disk when this returns."""
        with opened(self._path, os.O_RDWR | os.O_CREAT) as file:
            os.ftruncate(file, self._end)
            write_at(file, self._path, [b"".join(marks)], self._end)
            sync_file(file, self._path)
        self._end += MARK * len(marks)
        self._known.update(marks)
        self._tally.reach(len(self))

    def close(self) -> None:
        """Nothing leaves any more."""
        self._tally.close()
