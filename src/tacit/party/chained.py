"""A record that only grows: lines of JSON, each with the digest of the one before, on the disk before it counts."""

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


def append(path: Path, said: dict[str, Any]) -> None:
    """Add a line; it is on the disk when this returns.

    A line that a crash cut short is taken off first: nobody has acted on it.
    """
    lines, whole = _lines(path)
    before = _digest(lines[-1]) if lines else _FIRST
    text = json.dumps({**said, "before": before}).encode() + b"\n"
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
        try:
            said = json.loads(line)
        except ValueError as error:
            raise _damaged(path, number, f"can't be read ({error})") from None
        if not isinstance(said, dict) or said.pop("before", None) != before:
            raise _damaged(path, number, "does not follow the line before it")
        found.append(said)
        before = _digest(line)
    return found


def _lines(path: Path) -> tuple[list[bytes], int]:
    """The whole lines of a file, and how many bytes they are."""
    content = path.read_bytes() if path.exists() else b""
    whole = content.rfind(b"\n") + 1
    return content[:whole].split(b"\n")[:-1], whole


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _damaged(path: Path, number: int, why: str) -> StorageError:
    return StorageError(f"{path}, line {number}: it {why}; the record was changed by hand: bring the file back")
