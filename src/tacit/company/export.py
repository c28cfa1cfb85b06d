"""Letting a trained model out: a run that broke its owner's limit stays where it is, unless somebody answers for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.company.verdict import now
from tacit.company.ways import way_of
from tacit.errors import LimitError, UsageError
from tacit.report import seals
from tacit.report.document import Report
from tacit.report.rendering import read
from tacit.report.run_files import OVERRIDES


def clear(
    path: Folder | str | Path, what: str, *, override: str | None = None, reason: str | None = None
) -> Report | None:
    """The report of a run that may be let out; a `LimitError` where it broke its limit, or was never judged.

    `override` names somebody who lets it out all the same and says why: that goes on record, with `what` is to be done.
    None comes back where there is no report, or where it is not as it was sealed.
    """
    folder, where = find_run(path)
    report = read(where / "report.json") if (where / "report.json").exists() else None
    problem = way_of(folder.terms).problem(folder, where, report)
    who, why = (override or "").strip(), (reason or "").strip()
    if override is not None and not (who and why):
        raise UsageError("an override is on record with a name and a reason: give both, --override and --reason")
    if problem is None:
        return report
    if override is None:
        raise LimitError(
            f"{where}: {problem}. It is not let out; who answers for it all the same says so with --override NAME "
            "--reason WHY, which stays on record and in the report"
        )
    seals.append(where / OVERRIDES, {"time": now(), "who": who, "what": what, "reason": why})
    if report is None or not seals.holds(where / "report.json"):  # one that was changed is not sealed again
        return None
    report = report.model_copy(update={"overrides": overrides(where)})
    seals.write_report(report, where)
    return report


def export(path: Folder | str | Path, out: Path, *, override: str | None = None, reason: str | None = None) -> Path:
    """Copy the party's trained half out of its run, with what is known about it in the file's metadata.

    Of a training in one exchange it is a folder: the label party's heads, or the feature party's bottom and cells, with
    the same in `about.json`. It is its owner's alone, and never over another one; see `clear` for overrides.
    """
    folder, where = find_run(path)
    if out.exists():
        raise UsageError(f"{out} is there already: choose another name, or move it away")
    way = way_of(folder.terms)
    way.check_over(folder, where)
    report = clear(path, f"export to {out.name}", override=override, reason=reason)
    judged = where / "report.json"
    about = {
        "tacit_run": folder.terms.run,
        "tacit_party": folder.config.name,
        "tacit_contract": folder.terms.digest,
        "tacit_limit": "none" if report is None or report.limit is None else f"{report.limit:g}",
        "tacit_verdict": report.verdict if report is not None else "not judged" if override else "no limit",
        "tacit_overrides": "; ".join(f"{one.time} {one.who}: {one.reason}" for one in overrides(where)),
        "tacit_report_sha256": hashlib.sha256(judged.read_bytes()).hexdigest() if judged.exists() else "",
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    return way.export(folder, where, out, about)
