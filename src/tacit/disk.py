"""The one way to write a file, a line of a log or a lock, to a disk that may be full, broken or taken away.

Each failure is a `StorageError` that says what to do.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tacit.errors import DiskFullError, StorageError, UsageError

Buffer = bytes | bytearray | memoryview
"""What may be written: anything whose memory can be handed to the system without a copy."""

_LOOK = 0.05  # seconds between two looks at a lock that another process holds
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def as_bytes(part: Buffer) -> memoryview:
    """The memory of a buffer as single bytes, without a copy; it must lie in one piece."""
    view = memoryview(part)
    return view.cast("B") if view.nbytes else memoryview(b"")


def gmac(key: bytes, nonce: bytes, parts: Sequence[Buffer]) -> bytes:
    """A check of these bytes, 16 of them: it finds damage at memory speed and, with a public key, no malice."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # a worker of a sweep may lack it

    mac = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    for part in parts:
        mac.authenticate_additional_data(part)
    mac.finalize()
    return mac.tag


@contextmanager
def storing(path: Path, act: str = "written", needed: int = 0) -> Iterator[None]:
    """Whatever the system refuses in here is a `StorageError`: this file can't be "written", "synced", "opened".

    Where some bytes are needed, a full disk says how many of them there are.
    """
    try:
        yield
    except OSError as error:
        why, remedy = str(error.strerror or error), f"look at the disk, and at who may write in {path.parent}"
        full = error.errno in _FULL
        if full:
            why += f": {needed} bytes were needed and {_free(path.parent)}" if needed else ""
            remedy = "make room on the disk (or raise the limit)"
        raise (DiskFullError if full else StorageError)(
            f"{path} can't be {act} ({why}): {remedy}, then give the same command again; it resumes"
        ) from error


def _free(folder: Path) -> str:
    try:
        status = os.statvfs(folder)
    except OSError:
        return "how many are free is not known"
    return f"{status.f_bavail * status.f_frsize} are free"


def write_at(fd: int, path: Path, parts: Sequence[Buffer], offset: int) -> int:
    """Write all parts, one after the other, straight from their memory. Returns how many bytes they are."""
    left = [view for view in map(as_bytes, parts) if view.nbytes]
    total = sum(view.nbytes for view in left)
    done = 0
    while left:
        with storing(path, f"written at byte {offset + done}", total - done):
            wrote = os.pwritev(fd, left, offset + done)
            if wrote == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += wrote
        while left and wrote >= left[0].nbytes:
            wrote -= left.pop(0).nbytes
        if left:
            left[0] = left[0][wrote:]
    return total


def sync_file(fd: int, path: Path) -> None:
    """Wait until the disk holds what was written to a file. After a failure nothing of it may be trusted."""
    with storing(path, "synced", os.fstat(fd).st_size):
        os.fdatasync(fd)


def sync_folder(folder: Path) -> None:
    """Wait until the disk holds which files a folder has: creating, renaming and deleting need it."""
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY, "synced") as fd:
        os.fsync(fd)


@contextmanager
def opened(path: Path, flags: int, act: str = "opened or written") -> Iterator[int]:
    """A file, open for as long as this lasts; a new one is its owner's alone."""
    with storing(path, act):
        fd = os.open(path, flags, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into, where there is none."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with storing(folder, "made"):
        folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def remove(path: Path) -> None:
    """Delete a file, if it is there."""
    with storing(path, "deleted"):
        path.unlink(missing_ok=True)


def locked(
    path: Path,
    busy: str = "another process uses this run: a party runs once; stop the other one, or give this one a folder of "
    "its own",
    *,
    patience: float = 0.0,
) -> int:
    """Open and lock a file, waiting so many seconds for another process; the lock ends with ours, however that ends."""
    with storing(path, "opened"):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() < until:
                time.sleep(_LOOK)
                continue
            os.close(fd)
            raise StorageError(f"{path}: {busy}") from error
        return fd


@contextmanager
def held(path: Path, *busy: str) -> Iterator[None]:
    """Whatever happens in here happens in one process at a time; see `locked`."""
    lock = locked(path, *busy)
    try:
        yield
    finally:
        os.close(lock)


def _private(path: str, flags: int) -> int:
    """Opens a file that only its owner can read where it is made."""
    return os.open(path, flags, 0o600)


def replaced(path: Path, write: Callable[[IO[bytes]], Any], *, durable: bool = True) -> None:
    """Write a file anew, for its owner alone: a reader sees the old one or the new one, never a part.

    A durable one is on the disk, under its name, when this returns.
    """
    part = path.with_name(path.name + ".part")
    with storing(path):
        part.unlink(missing_ok=True)  # of a write that was cut short, with whatever rights
        with open(part, "xb", opener=_private) as file:
            try:
                write(file)
                file.flush()
                if durable:
                    sync_file(file.fileno(), path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        part.replace(path)
        if durable:
            sync_folder(path.parent)


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file anew with these bytes, as `replaced` does."""
    replaced(path, lambda file: file.write(content), durable=durable)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write what JSON can hold, likewise, in a folder that is made where there is none."""
    make_folder(path.parent)
    write(path, json.dumps(value, indent=2).encode() + b"\n", durable=durable)


def read_json(path: Path, remedy: str) -> Any:
    """What a file of JSON holds; one that is missing or damaged is a `StorageError` that says what to do."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StorageError(f"{path} can't be read ({error}): {remedy}") from None


def known_json(path: Path) -> Any:
    """The same where nothing depends on it: None for a file that is missing or damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def append_line(path: Path, content: Mapping[str, Any], *, durable: bool = False) -> None:
    """Add a line of JSON to a file, its owner's alone; where a crash has cut the last one short, on a line of its own.

    A durable one is on the disk when this returns.
    """
    text = json.dumps(content).encode() + b"\n"
    new = durable and not path.exists()
    with storing(path), open(path, "ab+", opener=_private) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else b"\n" + text
        file.write(text)
        if durable:
            file.flush()
            sync_file(file.fileno(), path)
    if new:
        sync_folder(path.parent)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """What `append_line` has added, in its order; a line that a crash cut short is left out, as is a missing file."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            yield content


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
