"""Seals on what a run's folder says about itself: nobody without the party's secret can make one.

They show that a file was changed by somebody who can write there and can't read `keys/secret`. Whoever has the secret
can seal anything, the owner above all; and who kept an earlier state of the folder, seals and all, can put that back.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from tacit.disk import replaced
from tacit.errors import StorageError
from tacit.views.report.document import Report
from tacit.views.report.rendering import as_json, write


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
    replaced(seal_path(path), lambda file: file.write(text.encode() + b"\n"))


def holds(path: Path) -> bool:
    """Whether a file is the one that was sealed."""
    try:
        said = seal_path(path).read_text().strip()
        return hmac.compare_digest(said.encode(), seal(path, path.read_bytes()).encode())
    except (OSError, UnicodeDecodeError):
        return False


def write_report(report: Report, run: Path) -> tuple[Path, Path]:
    """Write a run's report with its seal, which comes first: a crash in between leaves a report to be made again."""
    path = run / "report.json"
    put(path, seal(path, as_json(report).encode()))
    return write(report, run)
