"""What a party sent and received, written down before it acts on it: a log that survives crashes and full disks.

::

    file      magic 8 | version 4 | 0 4 | mark 16 | first turn 8 | stale 8 | chain 32 | sha256 of all this 32
    record    mark 16 | kind 1 | parts 1 | peer's length 2 | 0 4 | turn 8 | durable 8 | digest 32 | chain 32
              | peer | length of each part 8 | sha256 of all this 32 | parts

The mark is drawn anew for each file and begins every record, so that what a reused file held before is never taken for
one. `digest` is the SHA-256 of the parts; `chain` is the header's SHA-256 of the record before, so that none can be
left out or exchanged. `durable` is how far the file was known to be synced when the record was written: a bad record
that a later one knew to be synced is damage; any other at the end is a write that a crash cut short.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.disk import Buffer, as_bytes, locked, make_folder, remove, storing, sync_file, sync_folder, write_at
from tacit.errors import StorageError, UsageError

MAGIC, VERSION = b"TACITJNL", 2
HEAD = struct.Struct("<8sI4x16sQQ32s")
FIXED = struct.Struct("<16sBBH4xQQ32s32s")
KINDS = ("sent", "received", "answered", "note")
MAX_PEER = 255  # bytes
MAX_PARTS = 64

_NAME = re.compile(r"journal-\d{12}\.log")
_LOCK, _SPARE = "lock", "spare"
_LARGEST_TURN = 10**12 - 1  # what the name of a file can hold
_MOST = FIXED.size + MAX_PEER + 8 * MAX_PARTS + 32  # the longest header of a record
_CHUNK = 1 << 20

HEAD_SIZE = HEAD.size + 32
"""Where the first record of a file begins."""


@dataclass(frozen=True)
class Place:
    """Where a record lies: the turn that its file begins with, and the byte there."""

    segment: int
    offset: int


@dataclass(frozen=True)
class Record:
    """One thing that was written down."""

    kind: str  # "sent", "received", "answered" or "note"
    turn: int  # the turn that it belongs to
    peer: str  # the peer's name; at most 255 bytes
    digest: bytes  # the SHA-256 of the parts, which the caller has anyway
    # the bytes, in up to 64 pieces that are written straight from their memory; read back as `bytes`
    parts: tuple[Buffer, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"a record of kind {self.kind!r}: the kinds are {', '.join(KINDS)}")
        if not 0 <= self.turn <= _LARGEST_TURN:
            raise UsageError(f"a record of turn {self.turn}: turns are counted from 0 to {_LARGEST_TURN}")
        if len(self.digest) != 32:
            raise UsageError(f"a record's digest is 32 bytes of SHA-256, not {len(self.digest)} bytes")
        if len(self.peer.encode()) > MAX_PEER or len(self.parts) > MAX_PARTS:
            raise UsageError(
                f"a record with a peer's name of {len(self.peer.encode())} bytes and {len(self.parts)} parts: at most "
                f"{MAX_PEER} bytes and {MAX_PARTS} parts fit"
            )


@dataclass(frozen=True)
class _File:
    path: Path
    first_turn: int  # the turn that its name and head give
    mark: bytes  # what each of its records begins with
    stale: int  # up to where it may hold what it held before it was reused, or nothing yet
    chain: bytes  # after its last good record
    end: int  # where its last good record ends
    last_turn: int  # the largest turn in it; one before the first where it is empty


@dataclass(frozen=True)
class _Header:
    kind: str
    turn: int
    peer: str
    digest: bytes
    durable: int
    before: bytes  # the chain that it goes on
    chain: bytes  # its own
    lengths: tuple[int, ...]
    size: int  # bytes of itself
    span: int  # bytes of header and parts


class Journal:
    """A write-ahead log in a folder of its own. One thread of one process uses it.

    What is appended is with the operating system at once, so it survives the end of the process; after `sync` it also
    survives the end of the machine's power. Opening reads and checks everything: a record that a crash cut short is
    taken off the end, and anything else that is not what was written is a `StorageError`. After an error in writing or
    syncing the object is of no more use, for the system may have thrown away what it could not write: open anew.

    It goes on in a new file at each checkpoint, so that old turns can be dropped. The file of dropped ones is kept as
    `spare` and written over by the next one: a disk syncs blocks that it already has in three fifths of the time of
    new ones.

    Args:
        folder: where the files are; made where there is none.
        sync: False leaves the syncing to the operating system, for trials where a power cut may cost the run.
        room: bytes that a new file is allocated with, as far as the disk has them.
    """

    def __init__(self, folder: str | Path, *, sync: bool = True, room: int = 0) -> None:
        self.folder, self.room = Path(folder), room
        self.torn = 0  # how many bytes of a write that was cut short were taken off when the journal was opened
        self._sync = sync
        self._dead: StorageError | None = None
        self._fd = -1
        make_folder(self.folder)
        self._lock = locked(self.folder / _LOCK)
        try:
            with self._deadly():
                self._files = self._open()
                if sync:  # what a killed process wrote may not be on the disk yet
                    sync_file(self._fd, self._newest.path)
        except BaseException:
            self._release()
            raise
        self._durable = self._newest.end

    # --- writing ---

    def append(self, record: Record) -> Place:
        """Hand a record to the operating system; it is durable after the next `sync`."""
        self._usable()
        file, parts = self._newest, [as_bytes(part) for part in record.parts]
        name, lengths = record.peer.encode(), [part.nbytes for part in parts]
        header = FIXED.pack(
            file.mark, KINDS.index(record.kind), len(parts), len(name), record.turn, self._durable, record.digest,
            file.chain,
        )  # fmt: skip
        header += name + struct.pack(f"<{len(lengths)}Q", *lengths)
        chain = hashlib.sha256(header).digest()
        with self._deadly():
            written = write_at(self._fd, file.path, [header + chain, *parts], file.end)
        last_turn = max(record.turn, file.last_turn)
        self._files[-1] = replace(file, chain=chain, end=file.end + written, last_turn=last_turn)
        return Place(file.first_turn, file.end)

    def sync(self) -> None:
        """Return once everything appended so far is durable."""
        self._usable()
        if self._durable < self._newest.end:
            if self._sync:
                with self._deadly():
                    sync_file(self._fd, self._newest.path)
            self._durable = self._newest.end

    def rotate(self, turn: int) -> None:
        """Go on in a new file that begins with this turn, so that the one before can be dropped some day."""
        self._usable()
        if not self._newest.first_turn <= turn <= _LARGEST_TURN:
            raise UsageError(
                f"{self.folder}: rotate({turn}) after rotate({self._newest.first_turn}): files follow the turns"
            )
        if turn == self._newest.first_turn:
            return
        self.sync()
        with self._deadly():
            self._trim()
            file, fd = self._create(turn, self._newest.chain)
        os.close(self._fd)
        self._files.append(file)
        self._fd, self._durable = fd, file.end

    def drop_before(self, turn: int) -> None:
        """Delete the oldest files, as far as they hold only turns before this one; never the newest."""
        self._usable()
        with self._deadly():
            while len(self._files) > 1 and self._files[0].last_turn < turn:
                path = self._files[0].path
                if (self.folder / _SPARE).exists():
                    remove(path)
                else:
                    path.rename(self.folder / _SPARE)
                sync_folder(self.folder)
                del self._files[0]

    def close(self) -> None:
        """Sync, and give the folder free for another process."""
        if self._fd < 0:
            return
        try:
            if self._dead is None:
                self.sync()
                self._trim()
        finally:
            self._release()

    # --- reading ---

    @property
    def size(self) -> int:
        """Bytes of all that is kept."""
        return sum(file.end for file in self._files)

    def read(self, place: Place) -> Record:
        """The record at a place that `append` or `records` gave, from disk and checked again."""
        self._usable()
        for file in self._files:
            if file.first_turn == place.segment:
                for record in self._read(file, place.offset, 0):
                    return record[1]
                raise _damaged(file.path, place.offset, "there is no whole record at this place")
        raise StorageError(
            f"{self.folder}: what was said from turn {place.segment} on was dropped: it is not needed from the last "
            "agreed checkpoint on"
        )

    def records(self, from_turn: int = 0) -> Iterator[tuple[Place, Record]]:
        """All records of this and later turns, in the order they were appended, one in memory at a time."""
        self._usable()
        for file in list(self._files):
            if file.last_turn >= from_turn:
                yield from self._read(file, HEAD_SIZE, from_turn)

    def _read(self, file: _File, start: int, from_turn: int) -> Iterator[tuple[Place, Record]]:
        fd, place = os.open(file.path, os.O_RDONLY), start
        try:
            for offset, header in _headers(fd, file.mark, start, file.end):
                place = offset + header.span
                if header.turn < from_turn:
                    continue
                parts = _parts(fd, offset, header)
                if parts is None:
                    raise _damaged(file.path, offset, "a record's bytes are not what was written")
                yield (
                    Place(file.first_turn, offset),
                    Record(header.kind, header.turn, header.peer, header.digest, parts),
                )
        finally:
            os.close(fd)
        if place != file.end:
            raise _damaged(file.path, place, "there is no whole record at this place")

    # --- opening ---

    def _open(self) -> list[_File]:
        """Check every file and that they follow each other; leave the newest one open for writing."""
        names = sorted(entry.name for entry in self.folder.iterdir() if entry.name not in (_LOCK, _SPARE))
        for name in names:
            if not _NAME.fullmatch(name):
                raise StorageError(f"{self.folder / name}: no file of a journal; move it to another folder")
        if not names:
            file, self._fd = self._create(0, bytes(32))
            return [file]
        files: list[_File] = []
        for name in names:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = os.open(self.folder / name, os.O_RDWR)  # closed with the journal where something is wrong
            file, chain = _checked(self._fd, self.folder / name)
            if files and files[-1].chain != chain:
                raise _damaged(file.path, 0, f"it does not follow {files[-1].path.name}; a segment is missing")
            self.torn = _cut_torn(self._fd, file, newest=name == names[-1])
            files.append(file)
        return files

    def _create(self, turn: int, chain: bytes) -> tuple[_File, int]:
        """Begin a file in the spare one, and give it its name when its beginning is on the disk."""
        spare, path = self.folder / _SPARE, self.folder / f"journal-{turn:012d}.log"
        fd = os.open(spare, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(fd).st_size < self.room:
                with suppress(OSError):  # less is slower, and nothing else
                    os.posix_fallocate(fd, 0, self.room)
            mark, stale = os.urandom(16), os.fstat(fd).st_size
            plain = HEAD.pack(MAGIC, VERSION, mark, turn, stale, chain)
            write_at(fd, spare, [plain, hashlib.sha256(plain).digest()], 0)
            os.fsync(fd)
            spare.rename(path)
            sync_folder(self.folder)
        except BaseException:
            os.close(fd)
            raise
        return _File(path, turn, mark, stale, chain, HEAD_SIZE, turn - 1), fd

    # --- the state of the object ---

    @property
    def _newest(self) -> _File:
        return self._files[-1]

    def _usable(self) -> None:
        if self._fd < 0:
            raise StorageError(f"{self.folder}: the journal is closed: open it again")
        if self._dead is not None:
            raise StorageError(f"{self.folder}: the journal can't be used after an error: {self._dead}") from self._dead

    @contextmanager
    def _deadly(self) -> Iterator[None]:
        """Whatever fails in here leaves the journal unusable."""
        try:
            with storing(self.folder):
                yield
        except StorageError as error:
            self._dead = error
            raise

    def _trim(self) -> None:
        """Cut off what a reused or allocated file has behind its end."""
        if os.fstat(self._fd).st_size > self._newest.end:
            os.ftruncate(self._fd, self._newest.end)
            os.fsync(self._fd)

    def _release(self) -> None:
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- a file as a start finds it --------------------------------------------------------------------------------------


def _damaged(path: Path, offset: int, what: str) -> StorageError:
    """The error for bytes that can't be what was written. There is no way on from them but a good copy."""
    return StorageError(
        f"{path}: damaged at byte {offset}: {what}. The run can't go on from this journal: restore the folder from a "
        "copy of the same moment, or start a new run"
    )


def _header(raw: bytes, mark: bytes) -> _Header | None:
    """The header at the beginning of these bytes, None where there is none that is whole."""
    if len(raw) < FIXED.size or not raw.startswith(mark):
        return None
    _, kind, count, named, turn, durable, digest, before = FIXED.unpack_from(raw)
    size = FIXED.size + named + 8 * count
    chain = raw[size : size + 32]
    if kind >= len(KINDS) or hashlib.sha256(raw[:size]).digest() != chain:
        return None
    peer = raw[FIXED.size : FIXED.size + named].decode(errors="replace")
    lengths = struct.unpack_from(f"<{count}Q", raw, FIXED.size + named)
    size += len(chain)
    return _Header(KINDS[kind], turn, peer, digest, durable, before, chain, lengths, size, size + sum(lengths))


def _headers(fd: int, mark: bytes, start: int, stop: int) -> Iterator[tuple[int, _Header]]:
    """The records from one place to another, as far as their headers are whole."""
    while start < stop:
        header = _header(os.pread(fd, min(_MOST, stop - start), start), mark)
        if header is None or start + header.span > stop:
            return
        yield start, header
        start += header.span


def _parts(fd: int, offset: int, header: _Header) -> tuple[bytes, ...] | None:
    """The parts of the record at this place, None where they are not what was written."""
    place, parts = offset + header.size, []
    for length in header.lengths:
        part = os.pread(fd, length, place)
        while len(part) < length and (more := os.pread(fd, length - len(part), place + len(part))):
            part += more  # a single call reads no more than two GiB
        parts.append(part)
        place += length
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return tuple(parts) if hashed.digest() == header.digest else None


def _checked(fd: int, path: Path) -> tuple[_File, bytes]:
    """Read a whole file and check it, up to its first bad record. Also returns the chain that it begins with."""
    raw = os.pread(fd, HEAD_SIZE, 0)
    if len(raw) < HEAD_SIZE or not raw.startswith(MAGIC):
        raise _damaged(path, 0, "it does not begin as a segment of a journal does")
    _, version, mark, first_turn, stale, chain = HEAD.unpack_from(raw)
    if hashlib.sha256(raw[: HEAD.size]).digest() != raw[HEAD.size :]:
        raise _damaged(path, 0, "the segment's header is not what was written")
    if version != VERSION:
        raise StorageError(
            f"{path}: written in version {version} of the journal's format, this is version {VERSION}: end this run "
            "with the version of Tacit that began it, or start a new run under another name"
        )
    if f"journal-{first_turn:012d}.log" != path.name:
        raise _damaged(path, 0, f"it is the segment of turn {first_turn}, under another name")
    file = _File(path, first_turn, mark, stale, chain, HEAD_SIZE, first_turn - 1)
    for offset, header in _headers(fd, mark, HEAD_SIZE, os.fstat(fd).st_size):
        if header.before != file.chain or _parts(fd, offset, header) is None:
            break
        last_turn = max(file.last_turn, header.turn)
        file = replace(file, chain=header.chain, end=offset + header.span, last_turn=last_turn)
    return file, chain


def _cut_torn(fd: int, file: _File, *, newest: bool) -> int:
    """Take off what lies behind the last good record; how many bytes of a write that a crash cut short that were.

    It may also be what a reused file held before. Where it is neither, it is damage.
    """
    size = os.fstat(fd).st_size
    if size == file.end:
        return 0
    durable, last = _claims(fd, file, size)
    if not newest or durable > file.end:
        raise _damaged(file.path, file.end, "a record is not what was written")
    os.ftruncate(fd, file.end)
    os.fsync(fd)
    return (last if size <= file.stale else size) - file.end


def _claims(fd: int, file: _File, size: int) -> tuple[int, int]:
    """How far the file was synced by the word of headers behind the last good record; where the last one ends."""
    durable, last, place, keep = 0, file.end, file.end, len(file.mark) - 1
    while place < size:
        chunk = os.pread(fd, _CHUNK + keep, place)
        found = chunk.find(file.mark)
        while found >= 0:
            header = _header(os.pread(fd, _MOST, place + found), file.mark)
            ends = place + found + (header.span if header else len(file.mark))
            durable, last = max(durable, header.durable if header else 0), max(last, min(ends, size))
            found = chunk.find(file.mark, found + 1)
        place += _CHUNK
    return durable, last
