"""Seals on a run's report and records, in its folder: nobody without the party's secret can make one.

They show that a file was changed by somebody who can write there and can't read `keys/secret`. Whoever has the secret
can seal anything, the owner above all; and who kept an earlier state of the folder, seals and all, can put that back.

A record only grows: lines of JSON, each with the digest of the one before and a seal. A line is on the disk before it
counts. How many there are at least is sealed too, beside the record, so that an end that was cut off is noticed: it is
written after the line, and a kill in between leaves a line more than it says, which only the secret could have made.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.disk import opened, sync_folder, write
from tacit.errors import StorageError

if TYPE_CHECKING:
    from tacit.report.document import Report

_FIRST = "0" * 64
_SEAL = len(', "check": ""') + 64  # bytes at the end of a line that are about the line itself, but for the last bracket
_REMEDY = "the record was changed by hand, or made by a version before seals: bring the file back"


def key_of(run: Path) -> bytes | None:
    """What a run's records are sealed with; None where the party's keys are not at hand, as beside a copied run."""
    try:
        secret = (run.absolute().parent.parent / "keys" / "secret").read_bytes()
    except OSError:
        return None
    return hmac.digest(secret, b"records of " + run.name.encode(), "sha256")


def seal(path: Path, content: bytes) -> str:
    """The seal of what a file of a run holds: of this run, this name and this content."""
    key = key_of(path.parent)
    if key is None:
        raise StorageError(
            f"{path}: it can't be sealed or checked without keys/secret of its party: bring the party's keys back"
        )
    return hmac.new(key, path.name.encode() + b"\n" + content, hashlib.sha256).hexdigest()


def seal_path(path: Path) -> Path:
    """Where the seal of a file is: beside it."""
    return path.with_name(path.name + ".seal")


def put(path: Path, text: str) -> None:
    """Write the seal of a file; it is on the disk when this returns."""
    write(seal_path(path), text.encode() + b"\n")


# --- a report --------------------------------------------------------------------------------------------------------


def holds(path: Path) -> bool:
    """Whether a file is the one that was sealed."""
    try:
        said = seal_path(path).read_text().strip()
        return hmac.compare_digest(said.encode(), seal(path, path.read_bytes()).encode())
    except (OSError, UnicodeDecodeError):
        return False


def write_report(report: Report, run: Path) -> tuple[Path, Path]:
    """Write a run's report with its seal, which comes first: a crash in between leaves a report to be made again."""
    from tacit.report.rendering import as_json, write

    path = run / "report.json"
    put(path, seal(path, as_json(report).encode()))
    return write(report, run)


# --- a record --------------------------------------------------------------------------------------------------------


def begin(path: Path) -> None:
    """Seal that a record has no lines yet; one that is gone later is missed then."""
    if not begun(path):
        _count(path, 0)


def begun(path: Path) -> bool:
    """Whether there is a record, if only one without a line."""
    return path.exists() or seal_path(path).exists()


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
    sealed = not shown or key_of(path.parent) is not None
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
    put(path, f"{lines} {seal(path, str(lines).encode())}")


def _counted(path: Path) -> int:
    """How many lines there are at least; 0 where there is no record."""
    if not begun(path):
        return 0
    count = seal_path(path)
    counted, _, sealed = (count.read_bytes() if count.exists() else b"").strip().partition(b" ")
    if not hmac.compare_digest(sealed, seal(path, counted).encode()):
        raise StorageError(f"{count}: it is gone, or not as it was written: {_REMEDY}")
    return int(counted)


def _sealed(path: Path, text: bytes) -> bytes:
    return text[:-1] + f', "check": "{seal(path, text)}"}}'.encode()


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _damaged(path: Path, number: int, why: str) -> StorageError:
    return StorageError(f"{path}, line {number}: it {why}; {_REMEDY}")
