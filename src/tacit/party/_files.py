"""Files of a run that are whole or not there, and what a disk refuses said in one sentence."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tacit.errors import StorageError, UsageError
from tacit.wire._files import sync_folder

__all__ = ["GATE", "LIVE", "OVERRIDES", "append_line", "no_strangers", "private", "read_lines", "replaced", "storing"]

GATE, LIVE, OVERRIDES = "gate.jsonl", "live.jsonl", "overrides.jsonl"
"""Files of a run that others read: what its gate decided, what each look found, who let it out or on all the same."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


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
