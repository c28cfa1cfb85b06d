"""A record that only grows: lines of JSON, each with the digest of the one before and a seal; and how many there are.

A line is on the disk before it counts. How many there are at least is sealed too, beside the record, so that an end
that was cut off is noticed: it is written after the line, and a kill in between leaves a line more than it says, which
only whoever has the party's secret could have made.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

from tacit.company import seals
from tacit.disk import opened, sync_folder
from tacit.errors import StorageError

_FIRST = "0" * 64
_SEAL = len(', "check": ""') + 64  # bytes at the end of a line that are about the line itself, but for the last bracket


def begin(path: Path) -> None:
    """Seal that a record has no lines yet; one that is gone later is missed then."""
    if not begun(path):
        _count(path, 0)


def begun(path: Path) -> bool:
    """Whether there is a record, if only one without a line."""
    return path.exists() or seals.seal_path(path).exists()


def append(path: Path, content: dict[str, Any]) -> None:
    """Add a line; it is on the disk when this returns.

    A line that a crash cut short is taken off first: nobody has acted on it.
    """
    begin(path)
    read(path)
    lines, whole = _lines(path)
    before = _digest(lines[-1]) if lines else _FIRST
    text = _sealed(path, json.dumps({**content, "before": before}).encode()) + b"\n"
    with opened(path, os.O_WRONLY | os.O_CREAT, "written") as fd:
        os.ftruncate(fd, whole)
        os.pwrite(fd, text, whole)
        os.fsync(fd)
    if not lines:
        sync_folder(path.parent)
    _count(path, len(lines) + 1)


def read(path: Path, *, shown: bool = False) -> list[dict[str, Any]]:
    """All lines, in their order; a `StorageError` where one is not what was written, or is missing.

    With `shown` they are for a page alone, on which nothing depends: that also works where the party's keys are not at
    hand, and nothing more than the digests can be checked.
    """
    sealed = not shown or seals.key_of(path.parent) is not None
    least = _counted(path) if sealed else 0  # before the lines are read: another process may add one in between
    lines, _ = _lines(path)
    contents, before = [], _FIRST
    for number, line in enumerate(lines, start=1):
        text = line[: -_SEAL - 1] + b"}"
        if sealed and not hmac.compare_digest(_sealed(path, text), line):
            raise _damaged(path, number, "is not as it was written")
        try:
            contents.append(json.loads(text))
            follows = contents[-1].pop("before") == before
        except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
            raise _damaged(path, number, "is not as it was written") from None
        if not follows:
            raise _damaged(path, number, "does not follow the line before it")
        before = _digest(line)
    if len(lines) < least:
        raise StorageError(f"{path}: {least - len(lines)} of its {least} lines are missing: {_REMEDY}")
    return contents


def _lines(path: Path) -> tuple[list[bytes], int]:
    content = path.read_bytes() if path.exists() else b""
    whole = content.rfind(b"\n") + 1
    return content[:whole].split(b"\n")[:-1], whole


def _count(path: Path, lines: int) -> None:
    seals.put(path, f"{lines} {seals.seal(path, str(lines).encode())}")


def _counted(path: Path) -> int:
    """How many lines there are at least; 0 where there is no record."""
    if not begun(path):
        return 0
    seal = seals.seal_path(path)
    counted, _, sealed = (seal.read_bytes() if seal.exists() else b"").strip().partition(b" ")
    if not hmac.compare_digest(sealed, seals.seal(path, counted).encode()):
        raise StorageError(f"{seal}: it is gone, or not as it was written: {_REMEDY}")
    return int(counted)


def _sealed(path: Path, text: bytes) -> bytes:
    return text[:-1] + f', "check": "{seals.seal(path, text)}"}}'.encode()


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


_REMEDY = "the record was changed by hand, or made by a version before seals: bring the file back"


def _damaged(path: Path, number: int, why: str) -> StorageError:
    return StorageError(f"{path}, line {number}: it {why}; {_REMEDY}")
