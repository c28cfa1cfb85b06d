"""Ids as tokens: what a party asks for by, under a key that the alignment of the training has left with all parties.

Whoever sees tokens without the key learns nothing of the ids. A party of the run has the key: it can tell whether a
token is that of an id that it thinks of, as it can put any id into its own table.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.arrays import let_go
from tacit.align.directory import Directory
from tacit.align.ids import IdReport, Reading, distinct
from tacit.align.sources import Source
from tacit.company.aligned import Aligned
from tacit.disk import storing
from tacit.one_shot.records import Keys, keyed

SIZE = 16
"""Bytes of a token."""

_ENTRY = np.dtype([("token", np.uint64, (2,)), ("row", np.int64)])


def token_key(rows: Aligned) -> bytes:
    """The key of a run's tokens: of the keyed digest of the aligned rows, which all parties have and nobody else."""
    return hmac.digest(bytes.fromhex(rows.digest), b"tacit tokens 1 " + rows.id.encode(), "sha256")


def tokens_of(key: bytes, hashes: NDArray[np.uint8]) -> Keys:
    """The tokens of some ids, whose hashes `read_ids` gives.  (ids, 16)"""
    return keyed(key, hashes, "token")


# --- the tokens of a large table, in a file; its directory is in memory ----------------------------------------------
#
# The file lies in the folder of a prediction, without a name: it ends with the process, however that ends.


@dataclass(frozen=True)
class TokenTable:
    """The tokens of a table."""

    entries: NDArray[Any]  # token and row of each id, in the order of the table
    directory: Directory  # which row a token means; one that several rows have means none
    report: IdReport  # what became of all rows

    @classmethod
    def read(cls, source: Source, columns: tuple[str, ...], key: bytes, folder: Path) -> TokenTable:
        """Of the ids of a table."""
        reading = Reading(source, columns)
        with storing(folder), TemporaryFile(dir=folder) as file:
            for hashes, rows in reading.blocks():
                some = np.empty(len(rows), _ENTRY)
                some["token"] = tokens_of(key, np.frombuffer(hashes, np.uint8).reshape(len(rows), -1)).view(np.uint64)
                some["row"] = rows
                file.write(some.tobytes())
            file.flush()
            entries = _mapped(file)
        return cls(entries, *_directory(reading, entries))

    def __len__(self) -> int:
        return len(self.entries)

    def tokens(self, start: int, count: int) -> Keys:
        """Some of them, in the order of the table.  (tokens, 16)"""
        found = np.ascontiguousarray(self.entries[start : start + count]["token"]).view(np.uint8).reshape(-1, SIZE)
        let_go(self.entries)
        return found

    def rows(self, start: int, count: int) -> NDArray[np.int64]:
        """The rows of the same ones."""
        found = np.array(self.entries[start : start + count]["row"])
        let_go(self.entries)
        return found


def _directory(reading: Reading, entries: NDArray[Any]) -> tuple[Directory, IdReport]:
    """Of the entries whose token is there once."""
    tokens, rows = np.ascontiguousarray(entries["token"]), np.ascontiguousarray(entries["row"])
    let_go(entries)
    once, repeated, example = distinct(tokens.view(np.uint8))
    where = None if example is None else (int(rows[example[0]]), int(rows[example[1]]))
    report = reading.report(repeated, len(rows) - int(once.sum()), where)
    return Directory(tokens[once].view(np.uint8), rows[once]), report


def _mapped(file: IO[bytes]) -> NDArray[Any]:
    """All entries of a file, from the disk as they are used."""
    if not os.fstat(file.fileno()).st_size:
        return np.empty(0, _ENTRY)
    return np.memmap(file, _ENTRY, "r")
