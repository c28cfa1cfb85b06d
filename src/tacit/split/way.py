"""Split learning, as a company's verbs and services use it: see `tacit.company.ways.Way`."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save

from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.config import Contract, meets
from tacit.disk import write
from tacit.errors import UsageError
from tacit.report import seals
from tacit.report.document import Report
from tacit.report.run_files import GATE, OVERRIDES
from tacit.split.audit import audit_run as audit
from tacit.split.gate import decisions
from tacit.split.plan import plan
from tacit.split.promise import check_promise as check
from tacit.split.protect.embedding import embedding_protection
from tacit.split.run import plan_of
from tacit.split.run_record import broken
from tacit.split.scoring import SplitEmbedder, SplitScorer, weights_of
from tacit.split.train import train

__all__ = [
    "audit",
    "check",
    "check_minimum",
    "check_over",
    "embedder",
    "export",
    "plan",
    "problem",
    "scorer",
    "train",
]

embedder, scorer = SplitEmbedder.load, SplitScorer.load


def check_minimum(folder: Folder, contract: Contract) -> None:
    """Refuse protections of party.toml that are less than the contract's minimum."""
    missing = folder.config.split_problem()
    if missing is not None:
        raise UsageError(f"{folder.path / 'party.toml'} can't be used as it is: {missing}")
    protect = folder.config.protect
    if protect.gradient is not None:
        own = [(protect.gradient.name, protect.gradient.options(contract.epochs))]
        meets([contract.minimum.gradient], own, epochs=contract.epochs)
    if protect.embedding is not None:
        made = [embedding_protection(one.name, **one.options()) for one in protect.embedding]
        # with what the options are if not given
        meets(contract.minimum.embedding, [(one.name, one.event.parameters) for one in made])


def problem(folder: Folder, where: Path, report: Report | None) -> str | None:
    """Why the run's model may not be let out, if so: its limit was broken, or nobody has judged it."""
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


def check_over(folder: Folder, where: Path) -> None:
    """Refuse a run that is not over."""
    weights_of(where)


def export(folder: Folder, where: Path, out: Path, about: dict[str, str]) -> Path:
    """Copy the party's trained half, with what is known about it in the file's metadata."""
    write(out, save(weights_of(where), metadata=about))
    return out
