"""A record that only grows: lines of JSON, each with the digests of itself and of the one before.

A line is on the disk before it counts.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tacit.errors import StorageError
from tacit.party._files import storing
from tacit.wire._files import sync_folder

__all__ = ["append", "read"]

_FIRST = "0" * 64
_SEAL = len(', "check": ""') + 64  # bytes at the end of a line that are about the line itself, but for the last bracket


def append(path: Path, said: dict[str, Any]) -> None:
    """Add a line; it is on the disk when this returns.

    A line that a crash cut short is taken off first: nobody has acted on it.
    """
    lines, whole = _lines(path)
    before = _digest(lines[-1]) if lines else _FIRST
    text = _sealed(json.dumps({**said, "before": before}).encode()) + b"\n"
    with storing(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, whole)
            os.pwrite(fd, text, whole)
            os.fsync(fd)
        finally:
            os.close(fd)
        if not lines:
            sync_folder(path.parent)


def read(path: Path) -> list[dict[str, Any]]:
    """All lines, in their order; a `StorageError` where one is not what was written, or is missing."""
    lines, _ = _lines(path)
    found, before = [], _FIRST
    for number, line in enumerate(lines, start=1):
        text = line[: -_SEAL - 1] + b"}"
        if _sealed(text) != line:
            raise _damaged(path, number, "is not as it was written")
        try:
            said = json.loads(text)
            follows = said.pop("before") == before
        except (ValueError, KeyError, RecursionError):
            raise _damaged(path, number, "is no record of ours") from None
        if not follows:
            raise _damaged(path, number, "does not follow the line before it")
        found.append(said)
        before = _digest(line)
    return found


def _lines(path: Path) -> tuple[list[bytes], int]:
    """The whole lines of a file, and how many bytes they are."""
    content = path.read_bytes() if path.exists() else b""
    whole = content.rfind(b"\n") + 1
    return content[:whole].split(b"\n")[:-1], whole


def _sealed(text: bytes) -> bytes:
    """A line with the digest of what it says, so that a change of the last one is noticed too."""
    return text[:-1] + f', "check": "{_digest(text)}"}}'.encode()


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _damaged(path: Path, number: int, why: str) -> StorageError:
    return StorageError(f"{path}, line {number}: it {why}; the record was changed by hand: bring the file back")
