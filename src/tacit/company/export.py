"""Letting a trained model out: a run that broke its owner's limit stays where it is, unless somebody answers for it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from tacit.company import seals
from tacit.company.aligned import aligned, facts_of
from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.company.gate import decisions
from tacit.company.run_files import GATE, OVERRIDES
from tacit.company.run_record import broken, overrides
from tacit.company.split_run import plan_of
from tacit.company.verdict import now
from tacit.disk import write, write_json
from tacit.errors import LimitError, UsageError
from tacit.one_shot.parts import part
from tacit.views.report.document import Report
from tacit.views.report.rendering import read


def clear(
    path: Folder | str | Path, what: str, *, override: str | None = None, reason: str | None = None
) -> Report | None:
    """The report of a run that may be let out; a `LimitError` where it broke its limit, or was never judged.

    `override` names somebody who lets it out all the same and says why: that goes on record, with `what` is to be done.
    None comes back where there is no report, or where it is not as it was sealed.
    """
    folder, where = find_run(path)
    report = read(where / "report.json") if (where / "report.json").exists() else None
    judge = _exchange_problem if folder.terms.mode == "one_shot" else _problem
    problem = judge(folder, where, report)
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


def _problem(folder: Folder, where: Path, report: Report | None) -> str | None:
    gone = [name for name in (GATE, OVERRIDES) if not seals.begun(where / name)]
    if gone:
        return f"{gone[0]} has no seal: the run's records were removed, or are of a version before seals"
    if report is not None and not seals.holds(where / "report.json"):
        return (
            "its report is not as `tacit audit` wrote it, or of a version before seals: run "
            f"`tacit audit {where}` again"
        )
    limits = [one["limit"] for one in decisions(where) if one["limit"] is not None]
    limit = limits[-1] if limits else folder.config.limit
    if limit is None:
        return None
    if report is None:
        return f"it has a limit of {limit:g}, and no report says whether that was held: run `tacit audit {where}` first"
    if report.limit is None or report.limit > limit:
        said = "none" if report.limit is None else f"{report.limit:g}"
        return f"it was trained under a limit of {limit:g}, and its report judges another one ({said}): audit it again"
    plan = plan_of(folder.contract, aligned(folder))
    done, planned = report.subject.steps or 0, plan.epochs * plan.steps
    if done < planned:
        return f"its report is about {done} of {planned} steps: run `tacit audit {where}` now that the training is over"
    if broken(where):
        return f"its limit of {limit:g} was broken while it ran, as {where / GATE} says"
    if report.verdict != "held":
        return f"its limit of {report.limit:g} is {report.verdict}, as {where / 'report.html'} says"
    return None


def _exchange_problem(folder: Folder, where: Path, report: Report | None) -> str | None:
    """The same of a training in one exchange, where nothing left in a form that broke its limit."""
    if not seals.begun(where / OVERRIDES):
        return f"{OVERRIDES} has no seal: the run's records were removed"
    if report is None or not seals.holds(where / "report.json"):
        return f"it has no report as `tacit train` or `tacit audit` wrote it: run `tacit audit {where}`"
    limit = folder.config.limit
    if limit is not None and (report.limit is None or report.limit > limit):
        return f"its report judges another limit than {limit:g}: run `tacit audit {where}` again"
    if report.verdict == "broken":
        return f"its limit is broken, as {where / 'report.html'} says"
    return None


def export(path: Folder | str | Path, out: Path, *, override: str | None = None, reason: str | None = None) -> Path:
    """Copy the party's trained half out of its run, with what is known about it in the file's metadata.

    Of a training in one exchange it is a folder: the label party's heads, or the feature party's bottom and ranks, with
    the same in `about.json`. It is its owner's alone, and never over another one; see `clear` for overrides.
    """
    folder, where = find_run(path)
    if out.exists():
        raise UsageError(f"{out} is there already: choose another name, or move it away")
    parts = parts_of(folder, where) if folder.terms.mode == "one_shot" else None
    weights = weights_of(where) if parts is None else {}
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
    if parts is None:
        write(out, save(weights, metadata=about))
        return out
    return part(out.parent, out.name, lambda fresh: _copied(where, fresh, parts, about))


def parts_of(folder: Folder, where: Path) -> tuple[str, ...]:
    """What of a training in one exchange is the party's half."""
    label = folder.config.role == "label"
    own = folder.config.head if label else folder.config.learn
    if own is not None and own.factory is not None:
        raise UsageError(
            f"{own.factory} is your own, and is fitted anew at every start: save what it gives yourself, Tacit writes "
            "no pickle"
        )
    begun = facts_of(folder).runs()
    if begun and where.name not in begun:
        others = ", ".join(sorted(begun))
        raise UsageError(
            f"{folder.path} has no run {where.name!r}, which contract.toml names; there is {others}: put the contract "
            "of the run back that you mean, or `tacit align` and `tacit train`"
        )
    if not (where / ("figures.json" if label else "delivered")).exists():
        raise UsageError(f"{where}: the training is not over; `tacit train` goes on where it was")
    if label:
        return ("head", "fallback")
    floor = "release/floor"  # what left in place of what was learnt, where that told no less without any label
    return (floor if (where / floor).exists() else "learned",)


def _copied(where: Path, fresh: Path, parts: tuple[str, ...], about: dict[str, str]) -> None:
    for name in parts:
        shutil.copytree(where / name, fresh / Path(name).name, copy_function=shutil.copyfile)
    if (where / "release").exists():
        told = json.loads((where / "release" / "release.json").read_bytes())
        write_json(fresh / "ranks.json", {"form": told["form"], "ranks": told["ranks"]})
    if (where / "inputs" / "encoder.json").exists():  # a label party may have no columns of its own
        shutil.copyfile(where / "inputs" / "encoder.json", fresh / "encoder.json")
    write_json(fresh / "about.json", about)


def weights_of(where: Path) -> dict[str, Tensor]:
    """A party's half of a split training; an error where that is not over."""
    path = where / "model.safetensors"
    if not path.exists():
        raise UsageError(f"{path} is missing: the training is not over; `tacit train` goes on where it was")
    return load_file(path)
