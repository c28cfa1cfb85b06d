"""The ledger's file on disk: only added to, by one process at a time, read by any number of them meanwhile."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tacit.disk import locked, make_folder, replaced, storing, sync_file, write_at
from tacit.errors import StorageError
from tacit.ledger import _frames as frames
from tacit.ledger._frames import Answer, Frame

__all__ = ["Reader", "Writer"]

_LOG, _SYNCED, _LOCK = "log", "synced", "lock"
_MARK = struct.Struct("<Q16s")
_CHUNK = 1 << 24  # bytes that are read at a time


class Reader:
    """What lies in the file, read on from where the last reading ended.

    A small file beside it, `synced`, says how far the disk was known to hold it, and the chain there: what is missing
    or changed before that place is damage, and never taken for a write that a crash cut short.

    Args:
        folder: of the ledger.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / _LOG
        self.secret_check = b""
        self.chain = b""
        self.end = 0  # of the last good record
        self.tail = 0  # bytes behind it when it was last read

    def exists(self) -> bool:
        """Whether there is a ledger."""
        return self.path.exists()

    def new(self) -> Iterator[Frame]:
        """The records that were not read yet; damage among those that were synced is a `StorageError`."""
        place, chain = self._synced()
        with storing(self.path, "read"), self.path.open("rb") as file:
            if not self.end:
                self.secret_check, self.chain = frames.read_head(self.path, file.read(frames.HEAD_SIZE))
                self.end = frames.HEAD_SIZE
                self._compare(place, chain)
            yield from self._read(file, place, chain)
        if self.end < place:
            what = "a record is not what was written" if self.tail else "records are missing, this is an older copy"
            raise frames.damaged(self.path, self.end, what)

    def _read(self, file: IO[bytes], place: int, chain: bytes) -> Iterator[Frame]:
        while True:
            file.seek(self.end)
            data = file.read(_CHUNK)
            before = self.end
            for frame in frames.records(data, self.end, self.chain):
                self.end, self.chain = frame.end, frame.chain
                self._compare(place, chain)
                yield frame
            self.tail = len(data) - (self.end - before)
            if self.end == before or len(data) < _CHUNK:
                return

    def at(self, offset: int) -> Frame:
        """The record that begins at a place where one was found before."""
        with self.path.open("rb") as file:
            file.seek(offset)
            length = int.from_bytes(file.read(4), "little")
            body = length.to_bytes(4, "little") + file.read(length - 4)
        return Frame(offset, offset + length, frames.KINDS[body[4]], body[:-16], body[-16:])

    def _synced(self) -> tuple[int, bytes]:
        """How far the disk was known to hold the file, and the chain there."""
        path = self.folder / _SYNCED
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return 0, b""
        if len(raw) != _MARK.size:
            raise frames.damaged(path, 0, f"it has {len(raw)} bytes, not {_MARK.size}")
        place, chain = _MARK.unpack(raw)
        return place, chain

    def _compare(self, place: int, chain: bytes) -> None:
        if not place and self.end > frames.HEAD_SIZE:
            raise frames.damaged(self.folder / _SYNCED, 0, "the file is missing")
        if self.end == place and self.chain != chain:
            raise frames.damaged(self.path, place, "these are the records of another ledger")


class Writer(Reader):
    """The one who adds to the file. Take everything from `new` before the first record is added.

    What is added is with the operating system at once, so it survives the end of the process; after `sync` it also
    survives the end of the machine's power.

    Args:
        folder: of the ledger; made where there is none.
        secret_check: what a new file is to say of the secret.
    """

    def __init__(self, folder: Path, secret_check: bytes) -> None:
        super().__init__(folder)
        make_folder(folder)
        self._lock = locked(folder / _LOCK)
        self._fd = -1
        self._dead: StorageError | None = None
        try:
            if not self.exists():
                self._create(secret_check)
            self._fd = os.open(self.path, os.O_RDWR)
        except BaseException:
            self.close()
            raise

    def _create(self, secret_check: bytes) -> None:
        if (self.folder / _SYNCED).exists():
            raise frames.damaged(self.path, 0, "the file is missing")
        raw, chain = frames.begin(secret_check)
        replaced(self.path, lambda file: file.write(raw))
        replaced(self.folder / _SYNCED, lambda file: file.write(_MARK.pack(len(raw), chain)))

    def cut(self) -> int:
        """Take off what a crash left of a last write; how many bytes they were."""
        if self.tail:
            os.ftruncate(self._fd, self.end)
            sync_file(self._fd, self.path)
        torn, self.tail = self.tail, 0
        if not (self.folder / _SYNCED).exists():  # a crash came between the making of the two files
            self._mark()
        return torn

    def answer(self, answer: Answer) -> Frame:
        """Add an answer."""
        return self._append(answer.kind, *frames.encode_answer(answer, self.chain))

    def fact(self, kind: str, fact: Mapping[str, Any] | Sequence[Any]) -> Frame:
        """Add a record of another kind."""
        return self._append(kind, *frames.encode_fact(kind, fact, self.chain))

    def _append(self, kind: str, raw: bytes, chain: bytes) -> Frame:
        if self._fd < 0 or self._dead is not None:
            raise StorageError(f"{self.path}: nothing can be added after {self._dead or 'it was closed'}: open it anew")
        try:
            write_at(self._fd, self.path, [raw], self.end)
        except StorageError as error:
            self._dead = error
            raise
        frame = Frame(self.end, self.end + len(raw), kind, raw[:-16], chain)
        self.end, self.chain = frame.end, chain
        return frame

    def sync(self) -> None:
        """Return once the disk holds everything, and knows that it does."""
        if self._synced()[0] < self.end:
            sync_file(self._fd, self.path)
            self._mark()

    def _mark(self) -> None:
        replaced(self.folder / _SYNCED, lambda file: file.write(_MARK.pack(self.end, self.chain)))

    def close(self) -> None:
        """Sync, and let another process add."""
        try:
            if self._fd >= 0 and self._dead is None and not self.tail:
                self.sync()
        finally:
            for fd in (self._fd, self._lock):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._lock = -1
