"""One exchange, as a company's verbs and services use it: see `tacit.company.ways.Way`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from tacit.company.aligned import facts_of
from tacit.company.folder import Folder
from tacit.config import OneShotContract
from tacit.disk import write_json
from tacit.errors import StorageError, UsageError
from tacit.exchange._rows import KEEPABLE
from tacit.exchange.common import check_at_home as check
from tacit.exchange.plan import plan
from tacit.exchange.reporting import exchange_report
from tacit.exchange.scoring import ExchangeEmbedder, ExchangeScorer
from tacit.exchange.train import train_one_shot as train
from tacit.made_once import made_once
from tacit.progress import Progress
from tacit.report import seals
from tacit.report.document import Report
from tacit.report.run_files import OVERRIDES

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

embedder, scorer = ExchangeEmbedder.load, ExchangeScorer.load


def check_minimum(folder: Folder, contract: OneShotContract) -> None:
    """Nothing: what leaves is what the contract says, whatever party.toml says of protections."""


def audit(folder: Folder, *, limit: float | None, repeat: Sequence[str], progress: Progress) -> Report:
    """Attack what the party sent once more."""
    return exchange_report(folder, limit=limit, again=True, repeat=repeat, progress=progress)


def problem(folder: Folder, where: Path, report: Report | None) -> str | None:
    """Why the run's model may not be let out, if so; nothing was sent that broke its limit."""
    if not seals.begun(where / OVERRIDES):
        return f"{OVERRIDES} has no seal: the run's records were removed"
    if report is None or not seals.holds(where / "report.json"):
        return f"it has no report as `tacit train` or `tacit audit` wrote it: run `tacit audit {where}`"
    limit = folder.config.limit
    if limit is not None and (report.limit is None or report.limit > limit):
        return f"its report judges another limit than {limit:g}: run `tacit audit {where}` again"
    # what was measured of a label party's aligned rows decides nothing: whether it predicts would tell of their labels
    label = folder.config.role == "label"
    broken = limit is not None and report.worst is not None and report.worst.value > limit + 1e-9
    if broken if label else report.verdict == "broken":
        return f"its limit is broken, as {where / 'report.html'} says"
    return None


def check_over(folder: Folder, where: Path) -> None:
    """Refuse a run that is not over, and one whose learner or head could not be kept."""
    _parts(folder, where)


def export(folder: Folder, where: Path, out: Path, about: dict[str, str]) -> Path:
    """Copy the label party's heads, or the feature party's bottom and cells, into a folder with `about.json`."""
    parts = _parts(folder, where)
    return made_once(out.parent, out.name, lambda fresh: _copied(where, fresh, parts, about))


def _parts(folder: Folder, where: Path) -> tuple[str, ...]:
    """What of a training in one exchange is the party's half."""
    label = folder.config.role == "label"
    begun = facts_of(folder).runs()
    if begun and where.name not in begun:
        others = ", ".join(sorted(begun))
        raise UsageError(
            f"{folder.path} has no run {where.name!r}, which contract.toml names; there is {others}: put the contract "
            "of the run back that you mean, or `tacit align` and `tacit train`"
        )
    if not (where / ("figures.json" if label else "delivered")).exists():
        raise UsageError(f"{where}: the training is not over; `tacit train` resumes")
    parts = ("head", "fallback") if label else ("learned",)
    gone = [where / part for part in parts if not (where / part).exists()]
    if gone:
        own = folder.config.head if label else folder.config.learn
        if own.factory is None:
            raise StorageError(
                f"{gone[0]} is gone: bring it back from a backup, or run `tacit train`, which makes it again from what "
                "the run holds; then give the same command again"
            )
        raise UsageError(
            f"{own.factory} gives an object that is not kept, and has learnt anew at every start: {KEEPABLE}"
        )
    return parts


def _copied(where: Path, fresh: Path, parts: tuple[str, ...], about: dict[str, str]) -> None:
    for name in parts:
        shutil.copytree(where / name, fresh / Path(name).name, copy_function=shutil.copyfile)
    if (where / "release").exists():
        told = json.loads((where / "release" / "release.json").read_bytes())
        write_json(fresh / "cells.json", told["cells"])
    if (where / "inputs" / "encoder.json").exists():  # a label party may have no columns of its own
        shutil.copyfile(where / "inputs" / "encoder.json", fresh / "encoder.json")
    write_json(fresh / "about.json", about)
