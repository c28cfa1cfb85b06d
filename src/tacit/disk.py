"""The one way to write a file, a line of a log or a lock, to a disk that may be full, broken or taken away.

Each failure is a `StorageError` that says what to do.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tacit.errors import StorageError, UsageError

__all__ = [
    "Buffer", "append_line", "as_bytes", "locked", "make_folder", "no_strangers", "private", "read_lines", "refuse",
    "remove", "replaced", "storing", "sync_file", "sync_folder", "write_at",
]  # fmt: skip

Buffer = bytes | bytearray | memoryview
"""What may be written: anything whose memory can be handed to the system without a copy."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def as_bytes(part: Buffer) -> memoryview:
    """The memory of a buffer as single bytes, without a copy; it must lie in one piece."""
    view = memoryview(part)
    return view.cast("B") if view.nbytes else memoryview(b"")


def refuse(path: Path, act: str, error: OSError, needed: int = 0) -> StorageError:
    """The error to raise where the system refused; a full disk says how much was needed and how much there is."""
    if error.errno not in _FULL:
        return StorageError(
            f"{path}: can't {act}: {error.strerror or error}. What was synced before is safe: check the disk and the "
            "rights of the folder, then start again"
        )
    try:
        free = f"{os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize} are free"
    except OSError:
        free = "how many are free is not known"
    return StorageError(
        f"{path}: can't {act}: {error.strerror}: {needed} bytes were needed and {free}. What was synced before is "
        f"safe: make room under {path.parent} (or raise the limit), then start again"
    )


def write_at(fd: int, path: Path, parts: Sequence[Buffer], offset: int) -> int:
    """Write all parts, one after the other, straight from their memory. Returns how many bytes they are."""
    left = [view for view in map(as_bytes, parts) if view.nbytes]
    total = sum(view.nbytes for view in left)
    done = 0
    while left:
        try:
            wrote = os.pwritev(fd, left, offset + done)
            if wrote == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise refuse(path, f"write at byte {offset + done}", error, total - done) from error
        done += wrote
        while left and wrote >= left[0].nbytes:
            wrote -= left.pop(0).nbytes
        if left:
            left[0] = left[0][wrote:]
    return total


def sync_file(fd: int, path: Path) -> None:
    """Wait until the disk holds what was written to a file. After a failure nothing of it may be trusted."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise refuse(path, "sync", error, os.fstat(fd).st_size) from error


def sync_folder(folder: Path) -> None:
    """Wait until the disk holds which files a folder has: creating, renaming and deleting need it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise refuse(folder, "sync the folder", error) from error
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into, where there is none."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise refuse(folder, "make the folder", error) from error
    sync_folder(folder.parent)


def remove(path: Path) -> None:
    """Delete a file, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise refuse(path, "delete", error) from error


def locked(
    path: Path,
    busy: str = "another process uses this run: a party runs once; stop the other one, or give this one a folder of "
    "its own",
) -> int:
    """Open and lock a file; the lock ends with the process, however it ends.

    Args:
        path: the file.
        busy: what to say where another process has locked it, and what to do then.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise refuse(path, "open", error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise StorageError(f"{path}: {busy}") from error
    return fd


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Whatever the disk refuses in here is a `StorageError` about this file."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        remedy = "make room on the disk" if full else f"look at the disk, and at who may write in {path.parent}"
        raise StorageError(
            f"{path} can't be written ({error.strerror or error}): {remedy}, then give the same command again; it goes "
            "on where it was"
        ) from error


def replaced(path: Path, write: Callable[[IO[bytes]], Any], *, durable: bool = True) -> None:
    """Write a file anew, for its owner alone: a reader sees the old one or the new one, never a part.

    Args:
        path: the file.
        write: writes the content to a file that is open in binary mode.
        durable: whether it must be on the disk, under its name, when this returns.
    """
    part = path.with_name(path.name + ".part")
    with storing(path):
        part.unlink(missing_ok=True)  # of a write that was cut short, with whatever rights
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
        if durable:
            sync_folder(path.parent)


def append_line(path: Path, content: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file; where a crash has cut the last one short, on a line of its own."""
    text = json.dumps(content).encode() + b"\n"
    with storing(path), path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else b"\n" + text
        file.write(text)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """What `append_line` has added, in its order; a line that a crash cut short is left out, as is a missing file."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict):
            yield said


def private(path: Path) -> None:
    """Refuse a secret that is missing, or that others than its owner may read or write."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(
            f"{path} can't be read ({error.strerror}): put it back from a backup, or make a new folder with tacit init"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{path} can be read or changed by others (mode {stat.S_IMODE(mode):04o}): chmod 600 {path}")


def no_strangers(path: Path) -> None:
    """Refuse a folder in which others could put a certificate, a key or a journal of theirs."""
    mode = path.stat().st_mode if path.exists() else 0
    if stat.S_IMODE(mode) & 0o022:
        raise UsageError(f"{path} can be changed by others (mode {stat.S_IMODE(mode):04o}): chmod go-w {path}")
