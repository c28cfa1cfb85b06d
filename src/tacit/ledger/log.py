"""The ledger's file: only added to, by one process at a time, read by any number of them meanwhile.

Its records are small, and each is bound by a digest to all that stand before it:

::

    file      magic 8 | version 4 | 0 4 | check of the secret 16 | digest of all this 16
    answer    length 4 | kind 1 | form 1 | event 2 | run 4 | step 4 | turn 4 | rows 16 | figures 8 each | chain 16
    fact      length 4 | kind 1 | 0 3 | JSON | chain 16

`length` is that of the whole record. `chain` is BLAKE2b of the chain before and of all of the record before it, so a
record that was changed, left out, added or moved breaks the chain at its place. The mechanism behind an answer and the
names of its figures are long and few: each is a record of its own when it first occurs, and answers give its number.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tacit.disk import locked, make_folder, replaced, storing, sync_file, write_at
from tacit.errors import StorageError

VERSION = 1
KINDS = ("train", "evaluate", "run", "event", "figures", "epoch", "budget", "told")  # "epoch": of older ledgers
ANSWERS = ("train", "evaluate")  # the kinds of records that are answers; all others are facts in JSON
MAGIC = b"TACITLDG"
_HEAD = struct.Struct("<8sI4x16s")
_ANSWER = struct.Struct("<IBBHIII16s")
_FACT = struct.Struct("<IB3x")
_CHAIN = 16  # bytes
_LEAST = _FACT.size + _CHAIN
_MOST = 1 << 20  # no record is longer: a length beyond it is no length
_LOG, _SYNCED, _LOCK = "log", "synced", "lock"
_MARK = struct.Struct("<Q16s")
_CHUNK = 1 << 24  # bytes that are read at a time
HEAD_SIZE = _HEAD.size + _CHAIN  # where the first record begins


@dataclass(frozen=True)
class Answer:
    """One answered step, as it lies in the file."""

    kind: str  # "train" or "evaluate"
    run: int  # number of the run, in the order in which runs were declared
    step: int  # of this kind in this run
    turn: int  # in which it was answered
    rows: bytes  # digest of the batch
    event: int  # number of what was done to the rows
    form: int  # number of the names of the figures
    figures: tuple[float, ...]  # their values


@dataclass(frozen=True)
class Frame:
    """A record that is what was written: where it begins and ends, its kind, its bytes, and the chain after it."""

    start: int
    end: int
    kind: str
    body: bytes
    chain: bytes


def damaged(path: Path, offset: int, what: str) -> StorageError:
    """The error for bytes that can't be what was written: a count that may be too low is no count."""
    return StorageError(
        f"{path}: damaged at byte {offset}: {what}. What was answered before can't be counted any more: restore the "
        "folder from a copy of the same moment"
    )


def begin(secret_check: bytes) -> tuple[bytes, bytes]:
    """The beginning of a file, and the chain after it."""
    plain = _HEAD.pack(MAGIC, VERSION, secret_check)
    chain = _digest(b"", plain)
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
    if _digest(b"", raw[: _HEAD.size]) != chain:
        raise damaged(path, 0, "its beginning is not what was written")
    return secret_check, chain


def encode_answer(answer: Answer, chain: bytes) -> tuple[bytes, bytes]:
    """A record, and the chain after it."""
    length = _ANSWER.size + 8 * len(answer.figures) + _CHAIN
    fixed = _ANSWER.pack(
        length, KINDS.index(answer.kind), answer.form, answer.event, answer.run, answer.step, answer.turn, answer.rows
    )
    return _closed(fixed + struct.pack(f"<{len(answer.figures)}d", *answer.figures), chain)


def read_answer(body: bytes) -> Answer:
    """What `encode_answer` was given, from a frame's body."""
    _, kind, form, event, run, step, turn, rows = _ANSWER.unpack_from(body)
    figures = struct.unpack_from(f"<{(len(body) - _ANSWER.size) // 8}d", body, _ANSWER.size)
    return Answer(KINDS[kind], run, step, turn, rows, event, form, figures)


def encode_fact(kind: str, fact: Mapping[str, Any] | Sequence[Any], chain: bytes) -> tuple[bytes, bytes]:
    """A record of another kind, and the chain after it."""
    text = json.dumps(fact, separators=(",", ":"), sort_keys=True).encode()
    return _closed(_FACT.pack(_FACT.size + len(text) + _CHAIN, KINDS.index(kind)) + text, chain)


def read_fact(body: bytes) -> Any:
    """What `encode_fact` was given, from a frame's body."""
    return json.loads(body[_FACT.size :])


def records(data: bytes | memoryview, start: int, chain: bytes) -> Iterator[Frame]:
    """The records in these bytes, as far as they are whole and follow each other."""
    view, place = memoryview(data), 0
    while place + _LEAST <= len(view):
        length = int.from_bytes(view[place : place + 4], "little")
        kind, end = view[place + 4], place + length
        if not _LEAST <= length <= _MOST or end > len(view) or kind >= len(KINDS):
            return
        body = bytes(view[place : end - _CHAIN])
        chain = _digest(chain, body)
        if chain != view[end - _CHAIN : end]:
            return
        yield Frame(start + place, start + end, KINDS[kind], body, chain)
        place = end


def _closed(body: bytes, chain: bytes) -> tuple[bytes, bytes]:
    after = _digest(chain, body)
    return body + after, after


def _digest(chain: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(chain + body, digest_size=_CHAIN, person=b"tacit ledger").digest()


# --- on the disk ------------------------------------------------------------------------------------------------------


class Reader:
    """What lies in the file, read on from where the last reading ended.

    A small file beside it, `synced`, says how far the disk was known to hold it, and the chain there: what is missing
    or changed before that place is damage, and never taken for a write that a crash cut short.
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

    def at(self, offset: int) -> Frame:
        """The record that begins at a place where one was found before."""
        with self.path.open("rb") as file:
            file.seek(offset)
            length = int.from_bytes(file.read(4), "little")
            body = length.to_bytes(4, "little") + file.read(length - 4)
        return Frame(offset, offset + length, KINDS[body[4]], body[:-16], body[-16:])

    def _synced(self) -> tuple[int, bytes]:
        """How far the disk was known to hold the file, and the chain there."""
        path = self.folder / _SYNCED
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return 0, b""
        if len(raw) != _MARK.size:
            raise damaged(path, 0, f"it has {len(raw)} bytes, not {_MARK.size}")
        place, chain = _MARK.unpack(raw)
        return place, chain

    def _compare(self, place: int, chain: bytes) -> None:
        if not place and self.end > HEAD_SIZE:
            raise damaged(self.folder / _SYNCED, 0, "the file is missing")
        if self.end == place and self.chain != chain:
            raise damaged(self.path, place, "these are the records of another ledger")


class Writer(Reader):
    """The one who adds to the file. Take everything from `new` before the first record is added.

    What is added is with the operating system at once, so it survives the end of the process; after `sync` it also
    survives the end of the machine's power.
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
            raise damaged(self.path, 0, "the file is missing")
        raw, chain = begin(secret_check)
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
        return self._append(answer.kind, *encode_answer(answer, self.chain))

    def fact(self, kind: str, fact: Mapping[str, Any] | Sequence[Any]) -> Frame:
        """Add a record of another kind."""
        return self._append(kind, *encode_fact(kind, fact, self.chain))

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
