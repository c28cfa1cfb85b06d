"""Writing to a disk that may be full, broken or taken away: each failure is a `StorageError` that says what to do."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from tacit.errors import StorageError

__all__ = ["Buffer", "as_bytes", "locked", "make_folder", "refuse", "remove", "sync_file", "sync_folder", "write_at"]

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


def locked(path: Path) -> int:
    """Open and lock a file; the lock ends with the process, however it ends."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise refuse(path, "open", error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise StorageError(
            f"{path}: another process uses this run: a party runs once; stop the other one, or give this one a folder "
            "of its own"
        ) from error
    return fd
