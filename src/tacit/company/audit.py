"""`tacit audit` of a party's own run, whichever way it was trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.company.folder import Folder
from tacit.company.verdict import Side
from tacit.company.ways import way_of
from tacit.errors import UsageError
from tacit.progress import Progress
from tacit.report.document import Report


def audit_run(
    path: Folder | str | Path,
    *,
    side: Side | None = None,
    limit: float | None = None,
    repeat: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> Report:
    """Attack what a party sent in its own run.

    Step by step it may still go on, and what was recorded is attacked; of one exchange what was sent is attacked once
    more. The path is the run's folder, or that of a party with one run; a label party can only judge the side
    "features", a feature party "label". The limit is that of party.toml if none is given.
    """
    folder, where = find_run(path)
    looking: Side = "features" if folder.config.role == "label" else "label"
    if side not in (None, looking):
        raise UsageError(
            f"{where}: a party with the role {folder.config.role!r} can only judge what the side {looking!r} could "
            "learn, since it does not know the other truth: leave --side out, or let the peer audit its own run"
        )
    return way_of(folder.terms).audit(folder, limit=limit, repeat=repeat, progress=progress)


def find_run(path: Folder | str | Path) -> tuple[Folder, Path]:
    """The party's folder and the run's folder that a path means."""
    known, path = path, Path(path)
    inside = path.resolve().parent.name == "runs" and not (path / "party.toml").exists()
    folder = Folder.at(path.resolve().parent.parent if inside else known)
    where = folder.path / "runs" / folder.terms.run
    if inside and path.resolve() != where.resolve():
        raise UsageError(
            f"{path}: the contract in {folder.path} is that of the run {folder.terms.run!r}: put the contract of "
            f"{path.name!r} there to audit it, since it says what labels and rows belong to it"
        )
    return folder, where
