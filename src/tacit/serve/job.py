"""A prediction under way, in a folder of its own below the run's: what was matched, and what has come whole."""

from __future__ import annotations

import hmac
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.arrays import let_go, new_file, numbers
from tacit.company.folder import Folder
from tacit.contracts import Message
from tacit.disk import held, known_json, make_folder, storing, write_json
from tacit.errors import RefusedError, StorageError
from tacit.made_once import made_once
from tacit.serve.conversation import ROWS

_NAME = re.compile(r"[0-9a-f]{32}")


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
        self.name, self.folder, self._facts = name, run / "predictions" / name, dict(facts)
        if known_json(self.folder / "facts.json") != self._facts:
            self.discard()

    @staticmethod
    def named(folder: Folder, facts: Mapping[str, Any]) -> str:
        """The name of a prediction that hangs on these facts: nobody else can tell them from it."""
        said = b"tacit prediction " + json.dumps(facts, sort_keys=True).encode()
        return hmac.digest(folder.secret, said, "sha256").hex()[:32]

    def discard(self) -> None:
        """Begin anew."""
        self.remove()
        write_json(self.folder / "facts.json", self._facts)

    def remove(self) -> None:
        """Nothing of it is needed any more."""
        with storing(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)

    def remove_others(self) -> int:
        """Remove what was begun in this run and never ended, but for this one; how many there were."""
        others = [one for one in self.folder.parent.iterdir() if _NAME.fullmatch(one.name) and one != self.folder]
        for other in others:
            with storing(other):
                shutil.rmtree(other)
        return len(others)

    def settle(self, id: str, rows: NDArray[np.int64]) -> None:
        """Write down which rows are asked for."""

        def write(fresh: Path) -> None:
            np.save(fresh / "rows.npy", rows)
            (fresh / "id.json").write_text(json.dumps(id))

        made_once(self.folder, "matched", write)

    @property
    def matched(self) -> Matched | None:
        """Which rows are asked for; None where that is not settled yet."""
        path = self.folder / "matched"
        if not path.exists():
            return None
        return Matched(str(known_json(path / "id.json")), numbers(path / "rows.npy", "int64"))


# --- rows of bytes in a file, whose messages have `ROWS` of them each ------------------------------------------------


def stored_rows(path: Path, count: int, width: int) -> NDArray[np.uint8]:
    """Rows of bytes from a file, read from the disk as they are used; writing to them leaves the file.  (count, width)

    torch takes no array that can't be written to.
    """
    if not count:
        return np.empty((0, width), np.uint8)
    return np.memmap(path, np.uint8, "c", shape=(count, width))


def sent_rows(path: Path, count: int, width: int) -> Iterator[NDArray[np.uint8]]:
    """The messages of a file of rows, each where the one before it was.  (rows, width) each

    They are read, for a page of a file is mapped in more time than it is copied.
    """
    room = np.empty((min(ROWS, count), width), np.uint8)
    with storing(path, "read"), path.open("rb") as file:
        for start in range(0, count, ROWS):
            some = room[: count - start]
            if file.readinto(some.data) < some.nbytes:
                raise StorageError(f"{path} ends before row {start + len(some)}: give the same command again")
            yield some


def store_rows(
    path: Path, places: NDArray[np.int64], total: int, width: int, following: Callable[[], Message],
    told: Callable[[int], None] = lambda _: None,
) -> None:  # fmt: skip
    """Keep the rows of all messages, each at its place in a file of so many rows, and tell how many have come."""
    rows: NDArray[np.uint8] = new_file(path, "uint8", [total, width])
    for step, start in enumerate(range(0, len(places), ROWS)):
        message, at = following(), places[start : start + ROWS]
        part = message.payload.numpy()
        if message.step != step or part.shape != (len(at), width):
            raise RefusedError(
                "embedding",
                f"part {message.step} with {part.shape} bytes came where part {step} with {(len(at), width)} must",
            )
        if (part[:, 0] > 1).any():
            raise RefusedError("embedding", f"part {step} has rows that are neither known nor unknown")
        rows[at] = part
        let_go(rows)
        told(start + len(part))
