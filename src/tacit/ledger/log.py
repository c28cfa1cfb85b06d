"""The ledger's file, read and checked: when a run starts, and by any number of processes while one adds.

How its bytes lie is in `tacit.ledger.book`, which adds to it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tacit.disk import storing, write
from tacit.errors import StorageError
from tacit.ledger.book import CHAIN, FACT, KINDS, LOG, MARK, SYNCED, Frame, chained, damaged

VERSION = 1
MAGIC = b"TACITLDG"
_HEAD = struct.Struct("<8sI4x16s")
HEAD_SIZE = _HEAD.size + CHAIN  # where the first record begins
_LEAST = FACT.size + CHAIN
_MOST = 1 << 20  # no record is longer: a length beyond it is no length
_CHUNK = 1 << 24  # bytes that are read at a time


def begin(secret_check: bytes) -> tuple[bytes, bytes]:
    """The beginning of a file, and the chain after it."""
    plain = _HEAD.pack(MAGIC, VERSION, secret_check)
    chain = chained(b"", plain)
    return plain + chain, chain


def read_head(path: Path, raw: bytes) -> tuple[bytes, bytes]:
    """The check of the secret, and the chain after the beginning of a file."""
    if len(raw) < HEAD_SIZE or not raw.startswith(MAGIC):
        raise damaged(path, 0, "it does not begin as a ledger does")
    _, version, secret_check = _HEAD.unpack_from(raw)
    if version != VERSION:
        raise StorageError(
            f"{path}: written in version {version} of the ledger's format, this is version {VERSION}: go on with the "
            "version of Tacit that wrote it"
        )
    chain = raw[_HEAD.size : HEAD_SIZE]
    if chained(b"", raw[: _HEAD.size]) != chain:
        raise damaged(path, 0, "its beginning is not what was written")
    return secret_check, chain


def records(data: bytes | memoryview, start: int, chain: bytes) -> Iterator[Frame]:
    """The records in these bytes, as far as they are whole and follow each other."""
    view, place = memoryview(data), 0
    while place + _LEAST <= len(view):
        length = int.from_bytes(view[place : place + 4], "little")
        kind, end = view[place + 4], place + length
        if not _LEAST <= length <= _MOST or end > len(view) or kind >= len(KINDS):
            return
        body = bytes(view[place : end - CHAIN])
        chain = chained(chain, body)
        if chain != view[end - CHAIN : end]:
            return
        yield Frame(start + place, start + end, KINDS[kind], body, chain)
        place = end


class Reader:
    """What lies in the file, read on from where the last reading ended.

    A small file beside it, `synced`, says how far the disk was known to hold it, and the chain there: what is missing
    or changed before that place is damage, and never taken for a write that a crash cut short.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LOG
        self.secret_check = b""
        self.chain = b""
        self.end = 0  # of the last good record
        self.tail = 0  # bytes behind it when it was last read

    def exists(self) -> bool:
        """Whether there is a ledger."""
        return self.path.exists()

    def create(self, secret_check: bytes) -> None:
        """Begin the file, where there is none and never was."""
        if (self.folder / SYNCED).exists():
            raise damaged(self.path, 0, "the file is missing")
        raw, chain = begin(secret_check)
        write(self.path, raw)
        write(self.folder / SYNCED, MARK.pack(len(raw), chain))

    def new(self) -> Iterator[Frame]:
        """The records that were not read yet; damage among those that were synced is a `StorageError`."""
        place, chain = self._synced()
        with storing(self.path, "read"), self.path.open("rb") as file:
            if not self.end:
                self.secret_check, self.chain = read_head(self.path, file.read(HEAD_SIZE))
                self.end = HEAD_SIZE
                self._compare(place, chain)
            yield from self._read(file, place, chain)
        if self.end < place:
            what = "a record is not what was written" if self.tail else "records are missing, this is an older copy"
            raise damaged(self.path, self.end, what)

    def _read(self, file: IO[bytes], place: int, chain: bytes) -> Iterator[Frame]:
        while True:
            file.seek(self.end)
            data = file.read(_CHUNK)
            before = self.end
            for frame in records(data, self.end, self.chain):
                self.end, self.chain = frame.end, frame.chain
                self._compare(place, chain)
                yield frame
            self.tail = len(data) - (self.end - before)
            if self.end == before or len(data) < _CHUNK:
                return

    def _synced(self) -> tuple[int, bytes]:
        """How far the disk was known to hold the file, and the chain there."""
        path = self.folder / SYNCED
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return 0, b""
        if len(raw) != MARK.size:
            raise damaged(path, 0, f"it has {len(raw)} bytes, not {MARK.size}")
        place, chain = MARK.unpack(raw)
        return place, chain

    def _compare(self, place: int, chain: bytes) -> None:
        if not place and self.end > HEAD_SIZE:
            raise damaged(self.folder / SYNCED, 0, "the file is missing")
        if self.end == place and self.chain != chain:
            raise damaged(self.path, place, "these are the records of another ledger")
