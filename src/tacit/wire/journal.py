"""What a party sent and received, written down before it acts on it: a log that survives crashes and full disks.

The bytes are those of `tacit.wire.segment`, which reads and checks them when a party starts.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.disk import Buffer, as_bytes, gmac, locked, make_folder, remove, storing, sync_file, sync_folder, write_at
from tacit.errors import StorageError, UsageError
from tacit.wire import segment as layout
from tacit.wire.segment import Segment

_NAME = re.compile(r"journal-\d{12}\.log")
_LOCK, _SPARE = "lock", "spare"
_LARGEST_TURN = 10**12 - 1  # what the name of a file can hold


@dataclass(frozen=True)
class Place:
    """Where a record lies: the turn that its segment begins with, and the byte there."""

    segment: int
    offset: int


@dataclass(frozen=True)
class Record:
    """One thing that was written down."""

    kind: str  # "sent", "received", "answered" or "note"
    turn: int  # the turn that it belongs to
    peer: str  # the peer's name; at most 255 bytes
    digest: bytes  # the SHA-256 that the caller has of the parts anyway; it is chained, so it can't be exchanged later
    # the bytes, in up to 64 pieces that are written straight from their memory; read back as `bytes`
    parts: tuple[Buffer, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in layout.KINDS:
            raise UsageError(f"a record of kind {self.kind!r}: the kinds are {', '.join(layout.KINDS)}")
        if not 0 <= self.turn <= _LARGEST_TURN:
            raise UsageError(f"a record of turn {self.turn}: turns are counted from 0 to {_LARGEST_TURN}")
        if len(self.digest) != 32:
            raise UsageError(f"a record's digest is 32 bytes of SHA-256, not {len(self.digest)} bytes")
        if len(self.peer.encode()) > layout.MAX_PEER or len(self.parts) > layout.MAX_PARTS:
            raise UsageError(
                f"a record with a peer's name of {len(self.peer.encode())} bytes and {len(self.parts)} parts: at most "
                f"{layout.MAX_PEER} bytes and {layout.MAX_PARTS} parts fit"
            )


class Journal:
    """A write-ahead log in a folder of its own. One thread of one process uses it at a time.

    What is appended is with the operating system at once, so it survives the end of the process; after `sync` it also
    survives the end of the machine's power. Opening reads and checks everything: a record that a crash cut short is
    taken off the end, and anything else that is not what was written is a `StorageError`. After an error in writing or
    syncing the object is of no more use, for the system may have thrown away what it could not write: open anew.

    A segment that was dropped is kept as `spare` and written over by the next one: a disk syncs blocks that it already
    has in three fifths of the time of new ones.

    Args:
        folder: where the segments are; made where there is none.
        sync: False leaves the syncing to the operating system, for trials where a power cut may cost the run.
    """

    def __init__(self, folder: str | Path, *, sync: bool = True) -> None:
        self.folder = Path(folder)
        self.torn = 0  # how many bytes of a write that was cut short were taken off when the journal was opened
        self._sync = sync
        self._dead: StorageError | None = None
        self._writing: Future[Place] | None = None
        self._helper: ThreadPoolExecutor | None = None
        self._fd = -1
        make_folder(self.folder)
        self._lock = locked(self.folder / _LOCK)
        try:
            with self._deadly():
                self._segments = self._open()
        except BaseException:
            self._release()
            raise
        self._durable = self._newest.end

    # --- writing ---

    def append(self, record: Record) -> Place:
        """Hand a record to the operating system; it is durable after the next `sync`."""
        self._usable()
        return self._append(record)

    def _append(self, record: Record) -> Place:
        segment, parts = self._newest, [as_bytes(part) for part in record.parts]
        name, lengths = record.peer.encode(), [part.nbytes for part in parts]
        check = gmac(segment.mark, segment.end.to_bytes(12, "little"), parts)
        fixed = (segment.mark, layout.KINDS.index(record.kind), len(parts), len(name))
        rest = (record.turn, self._durable, record.digest, check)
        behind = name + struct.pack(f"<{len(lengths)}Q", *lengths)
        crc = zlib.crc32(layout.FIXED.pack(*fixed, 0, *rest) + behind)
        signed = layout.FIXED.pack(*fixed, crc, *rest) + behind
        chain = hashlib.sha256(segment.chain + signed).digest()
        with self._deadly():
            written = write_at(self._fd, segment.path, [signed, chain, *parts], segment.end)
        last_turn = max(record.turn, segment.last_turn)
        self._newest = replace(segment, chain=chain, end=segment.end + written, last_turn=last_turn)
        return Place(segment.first_turn, segment.end)

    def sync(self) -> None:
        """Return once everything appended so far is durable."""
        self._usable()
        self._make_durable()

    def _make_durable(self) -> None:
        if self._durable < self._newest.end:
            if self._sync:
                with self._deadly():
                    sync_file(self._fd, self._newest.path)
            self._durable = self._newest.end

    def soon(self, make: Callable[[], Record]) -> Future[Place]:
        """Make a record, append it and make it durable, all in the helper thread, while the caller computes.

        Whatever is asked of the journal next waits until that is done.
        """
        self._usable()

        def work() -> Place:
            place = self._append(make())
            self._make_durable()
            return place

        if self._helper is None:
            self._helper = ThreadPoolExecutor(1, thread_name_prefix="tacit-journal")
        self._writing = self._helper.submit(work)
        return self._writing

    def rotate(self, turn: int) -> None:
        """Go on in a new segment that begins with this turn, so that the one before can be dropped some day."""
        self._usable()
        if not self._newest.first_turn <= turn <= _LARGEST_TURN:
            raise UsageError(
                f"{self.folder}: rotate({turn}) after rotate({self._newest.first_turn}): segments follow the turns"
            )
        if turn == self._newest.first_turn:
            return
        self.sync()
        with self._deadly():
            self._trim()
            segment, fd = self._create(turn, self._newest.chain)
        os.close(self._fd)
        self._segments.append(segment)
        self._fd, self._durable = fd, segment.end

    def drop_before(self, turn: int) -> None:
        """Delete the oldest segments, as far as they hold only turns before this one; never the newest."""
        self._usable()
        with self._deadly():
            while len(self._segments) > 1 and self._segments[0].last_turn < turn:
                path = self._segments[0].path
                if (self.folder / _SPARE).exists():
                    remove(path)
                else:
                    path.rename(self.folder / _SPARE)
                sync_folder(self.folder)
                del self._segments[0]

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
        """Bytes on disk, a spare segment included."""
        paths = [segment.path for segment in self._segments] + [self.folder / _SPARE]
        return sum(path.stat().st_size for path in paths if path.exists())

    def read(self, place: Place) -> Record:
        """The record at a place that `append` or `records` gave, from disk and checked again."""
        self._usable()
        for segment in self._segments:
            if segment.first_turn == place.segment:
                for record in self._read(segment, place.offset, 0):
                    return record[1]
                raise layout.damaged(segment.path, place.offset, "there is no whole record at this place")
        raise StorageError(
            f"{self.folder}: the segment of turn {place.segment} was dropped: what it held is not needed from the last "
            "agreed checkpoint on"
        )

    def records(self, from_turn: int = 0) -> Iterator[tuple[Place, Record]]:
        """All records of this and later turns, in the order they were appended, one in memory at a time."""
        self._usable()
        for segment in list(self._segments):
            if segment.last_turn >= from_turn:
                yield from self._read(segment, layout.HEAD_SIZE, from_turn)

    def _read(self, segment: Segment, start: int, from_turn: int) -> Iterator[tuple[Place, Record]]:
        fd, place = os.open(segment.path, os.O_RDONLY), start
        try:
            for offset, header in layout.headers(fd, segment, start, segment.end):
                place = offset + header.span
                if header.turn < from_turn:
                    continue
                parts = layout.parts_of(fd, segment, offset, header)
                if parts is None:
                    raise layout.damaged(segment.path, offset, "a record's bytes are not what was written")
                record = Record(header.kind, header.turn, header.peer, header.digest, parts)
                yield Place(segment.first_turn, offset), record
        finally:
            os.close(fd)
        if place != segment.end:
            raise layout.damaged(segment.path, place, "there is no whole record at this place")

    # --- opening ---

    def _open(self) -> list[Segment]:
        """Check every segment and that they follow each other; leave the newest one open for writing."""
        names = sorted(entry.name for entry in self.folder.iterdir() if entry.name not in (_LOCK, _SPARE))
        for name in names:
            if not _NAME.fullmatch(name):
                raise StorageError(f"{self.folder / name}: no file of a journal; move it to another folder")
        if not names:
            segment, self._fd = self._create(0, bytes(32))
            return [segment]
        segments: list[Segment] = []
        for name in names:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = os.open(self.folder / name, os.O_RDWR)  # closed with the journal where something is wrong
            segment, chain = layout.open_segment(self._fd, self.folder / name)
            if segments and segments[-1].chain != chain:
                before = segments[-1].path.name
                raise layout.damaged(segment.path, 0, f"it does not follow {before}; a segment is missing")
            self.torn = layout.cut_torn(self._fd, segment, newest=name == names[-1])
            segments.append(segment)
        return segments

    def _create(self, turn: int, chain: bytes) -> tuple[Segment, int]:
        """Begin a segment in the spare file, and give it its name when its beginning is on the disk."""
        spare, path = self.folder / _SPARE, self.folder / f"journal-{turn:012d}.log"
        fd = os.open(spare, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            mark, stale = os.urandom(16), os.fstat(fd).st_size
            plain = layout.HEAD.pack(layout.MAGIC, layout.VERSION, mark, turn, stale, chain)
            write_at(fd, spare, [plain, hashlib.sha256(plain).digest()], 0)
            os.fsync(fd)
            spare.rename(path)
            sync_folder(self.folder)
        except BaseException:
            os.close(fd)
            raise
        return Segment(path, turn, mark, stale, chain, layout.HEAD_SIZE, turn - 1), fd

    # --- the state of the object ---

    @property
    def _newest(self) -> Segment:
        return self._segments[-1]

    @_newest.setter
    def _newest(self, segment: Segment) -> None:
        self._segments[-1] = segment

    def _usable(self) -> None:
        """Wait for the helper thread, and refuse where the journal can't be used any more."""
        if self._writing is not None:
            wait([self._writing])  # its error is for whoever holds the future; it has left the journal dead
            self._writing = None
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
        """Cut off what a reused file held before."""
        if os.fstat(self._fd).st_size > self._newest.end:
            os.ftruncate(self._fd, self._newest.end)
            os.fsync(self._fd)

    def _release(self) -> None:
        if self._helper is not None:
            self._helper.shutdown()
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
