"""A prediction under way, in a folder of its own below the run's: what was matched, and what has come whole."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.arrays import numbers
from tacit.company.folder import Folder
from tacit.contracts import Message
from tacit.disk import held, known_json, make_folder, replaced, storing, write_json
from tacit.errors import RefusedError, StorageError

CHUNK = 1 << 20
"""Bytes of a message, at most: small enough to stay in a processor's cache on its way to the disk."""

_NAME = re.compile(r"[0-9a-f]{32}")
_FACTS, _SENT, _MATCHED, _ROWS = "facts.json", "sent.json", "matched.json", "rows.npy"


def rows_of_chunk(width: int) -> int:
    """Rows of a message, of so many bytes each."""
    return max(1, CHUNK // width)


@dataclass(frozen=True)
class Matched:
    """Which rows of a file are asked for, in the order in which they are sent."""

    id: str  # what both sides call it
    rows: NDArray[np.int64]  # their numbers in the file, read from disk as they are used; -1 for one that is not there

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.rows)


@contextmanager
def alone(where: Path) -> Iterator[None]:
    """One process predicts with a run, or serves it, at a time."""
    make_folder(where / "predictions")
    busy = "another process predicts with this run, or serves it: wait until it is done, or stop it"
    with held(where / "predictions" / "lock", busy):
        yield


class Job:
    """A prediction's folder.

    The label party gives the name, 32 hex digits, and nothing else becomes a path. Facts are what it hangs on at this
    party; where any of them has changed, nothing that was begun is used.
    """

    def __init__(self, run: Path, name: str, facts: Mapping[str, Any]) -> None:
        if not _NAME.fullmatch(name):
            raise RefusedError("job", f"{name[:40]!r} is no name of a prediction: 32 hex digits are")
        self.name = name
        self.folder = run / "predictions" / name
        self._facts = dict(facts)
        if known_json(self.folder / _FACTS) != self._facts:
            self.discard()

    @staticmethod
    def named(folder: Folder, facts: Mapping[str, Any]) -> str:
        """The name of a prediction that hangs on these facts: nobody else can tell them from it."""
        said = b"tacit prediction " + json.dumps(facts, sort_keys=True).encode()
        return hmac.digest(folder.secret, said, "sha256").hex()[:32]

    def discard(self) -> None:
        """Begin anew."""
        with storing(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
        make_folder(self.folder)
        write_json(self.folder / _FACTS, self._facts)

    def remove(self) -> None:
        """It is over, and nothing of it is needed any more."""
        with storing(self.folder):
            shutil.rmtree(self.folder)

    def all_sent(self, about: Mapping[str, int]) -> None:
        """Write down that the last of it is about to leave, and what all of it is."""
        write_json(self.folder / _SENT, about)

    def settle(self, id: str, rows: NDArray[np.int64]) -> None:
        """Write down which rows are asked for: their numbers first, then the file that says they are there."""
        path = self.folder / _ROWS
        replaced(path, lambda file: np.lib.format.write_array(file, rows, version=(1, 0)))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        write_json(self.folder / _MATCHED, {"id": id, "rows": digest})

    @property
    def matched(self) -> Matched | None:
        """Which rows are asked for; None where that is not settled yet, or torn or spoilt, and so settled again."""
        said = known_json(self.folder / _MATCHED)
        if not isinstance(said, dict) or set(said) != {"id", "rows"}:
            return None
        try:
            with (self.folder / _ROWS).open("rb") as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == said["rows"]
            return Matched(str(said["id"]), numbers(self.folder / _ROWS, "int64")) if whole else None
        except (OSError, ValueError):
            return None


def last_sent(run: Path, facts: Mapping[str, Any]) -> tuple[str, dict[str, int]] | None:
    """The newest prediction with these facts of which everything has left, and nobody has said that it came, if any."""
    for folder in _newest_first(run):
        sent = known_json(folder / _SENT)
        if sent is not None and known_json(folder / _FACTS) == dict(facts):
            return folder.name, sent
    return None


def forget_sent(run: Path, but: str = "") -> None:
    """Nobody waits any longer to hear that predictions came, one excepted."""
    for folder in _newest_first(run):
        if folder.name != but:
            with storing(folder):
                (folder / _SENT).unlink(missing_ok=True)


def tidy(run: Path, but: str, *, most: int, days: int) -> int:
    """Remove what was begun and never ended, beyond the newest ones and after a time, but for one; how many.

    A label party names its predictions as it likes, and may begin any number of them.
    """
    others = [folder for folder in _newest_first(run) if folder.name != but]
    gone = [folder for k, folder in enumerate(others) if k >= most or _begun(folder) < time.time() - 86400 * days]
    for folder in gone:
        with storing(folder):
            shutil.rmtree(folder)
    return len(gone)


def _newest_first(run: Path) -> list[Path]:
    found = [path for path in (run / "predictions").glob("*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=_begun, reverse=True)


def _begun(folder: Path) -> float:
    try:
        return (folder / _FACTS).stat().st_mtime
    except OSError:  # killed before it was written
        return 0.0


class Inbox:
    """The embeddings of one feature party: a file that is there when all of them have come, and are on the disk."""

    def __init__(self, path: Path, count: int, width: int) -> None:
        self._path, self.count, self._width = path, count, width

    @property
    def whole(self) -> bool:
        """Whether everything is here."""
        return self._path.exists()

    def store(self, following: Callable[[], Message], told: Callable[[int], None] = lambda _: None) -> None:
        """Keep all messages, and tell how many rows have come; what ends before the last one leaves nothing here."""

        def write(file: IO[bytes]) -> None:
            if size := self.count * self._width:
                with storing(self._path, needed=size):
                    os.posix_fallocate(file.fileno(), 0, size)
            rows = rows_of_chunk(self._width)
            for step, start in enumerate(range(0, self.count, rows)):
                message = following()
                part, expected = message.payload.numpy(), (min(rows, self.count - start), self._width)
                if message.step != step or part.shape != expected:
                    raise RefusedError(
                        "embedding",
                        f"part {message.step} with {part.shape} bytes came where part {step} with {expected} must",
                    )
                if (part[:, 0] > 1).any():
                    raise RefusedError("embedding", f"part {step} has rows that are neither known nor unknown")
                file.write(np.ascontiguousarray(part).data)
                told(start + len(part))

        replaced(self._path, write)

    def read(self) -> NDArray[np.uint8]:
        """All rows, from the disk as they are used.  (rows, width)"""
        return stored_rows(self._path, self.count, self._width)


def stored_rows(path: Path, count: int, width: int) -> NDArray[np.uint8]:
    """Rows of bytes from a file, read from the disk as they are used; writing to them leaves the file.  (count, width)

    torch takes no array that can't be written to.
    """
    if not count:
        return np.empty((0, width), np.uint8)
    return np.memmap(path, np.uint8, "c", shape=(count, width))


def parts(path: Path, count: int, width: int) -> Iterator[NDArray[np.uint8]]:
    """The messages of a file of rows, each where the one before it was.  (rows, width) each

    They are read, for a page of a file is mapped in more time than it is copied.
    """
    size = rows_of_chunk(width)
    room = np.empty((min(size, count), width), np.uint8)
    with storing(path, "read"), path.open("rb") as file:
        for start in range(0, count, size):
            some = room[: count - start]
            if file.readinto(some.data) < some.nbytes:
                raise StorageError(f"{path} ends before row {start + len(some)}: give the same command again")
            yield some
