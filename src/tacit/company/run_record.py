"""What a run's folder tells beside its messages: strengths, looks, decisions, overrides and the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tacit.company import sealed_log
from tacit.company.folder import Folder
from tacit.company.gate import decisions
from tacit.company.live import LIVE, looks
from tacit.company.run_files import OVERRIDES
from tacit.company.verdict import now, worst_of
from tacit.errors import UsageError
from tacit.views.ledger import summed_up
from tacit.views.report.document import Decision, LedgerSummary, LiveCurve, Moment, Override, Report, Worst

__all__ = ["OVERRIDES", "broken", "overrides", "restored", "with_records"]

Measure = Literal["leak_auc", "variance_read", "attribute_auc"]


def with_records(report: Report, folder: Folder, where: Path) -> Report:
    """The report of a run, with what its folder tells.

    A limit that was broken beyond doubt at any time stays broken, whatever the attacks on the last messages say.
    """
    told, seen = decisions(where), looks(where / LIVE)
    measure: Measure = "leak_auc" if report.subject.side == "features" else "variance_read"
    verdict = "broken" if report.limit is not None and broken(where) else report.verdict
    return report.model_copy(
        update={
            "verdict": verdict,
            "moments": _moments(where, told, seen, measure, report),
            "decisions": tuple(
                Decision(time=one["time"], epoch=one["epoch"], decision=one["decision"], reason=one["reason"])
                for one in told
            ),
            "curves": _curves(seen, measure),
            "ledger": _ledger(folder, report),
            "overrides": overrides(where),
        }
    )


def broken(where: Path) -> bool:
    """Whether what a run sent has broken its limit beyond doubt, at any time."""
    return any(one["broken"] for one in decisions(where))


def overrides(where: Path) -> tuple[Override, ...]:
    """Who let a run out all the same."""
    return tuple(Override(**one) for one in sealed_log.read(where / OVERRIDES))


def restored(where: Path, log: Callable[..., None], by: tuple[str, str] | None) -> Callable[[str], None] | None:
    """What puts on record that somebody answers for going on after a restore; None where nobody does.

    Args:
        where: the run's folder.
        log: of the run.
        by: who answers for it, and why.
    """
    if by is None:
        return None
    who, reason = (word.strip() for word in by)
    if not who or not reason:
        raise UsageError("going on after a restore is on record with a name and a reason: give both")

    def record(problem: str) -> None:
        what = f"training after a restore: {problem}"
        sealed_log.append(where / OVERRIDES, {"time": now(), "who": who, "what": what, "reason": reason})
        log("restored", who=who, reason=problem)

    return record


def _moments(
    where: Path, told: Sequence[dict[str, Any]], seen: Sequence[dict[str, Any]], measure: Measure, report: Report
) -> tuple[Moment, ...]:
    """An epoch each: the strength that was decided for it, the worst that was seen, and how good the model was then."""
    history = _history(where)
    # what the audit found after the last epoch; not of an attacker who knew something anyway, which is told apart
    final = worst_of([leak for leak in report.leaks if leak.baseline is None])
    epochs = sorted({one["epoch"] for one in seen} | {int(line["epoch"]) for line in history})
    found = []
    for epoch in epochs:
        before = [one for one in told if one["epoch"] <= epoch + 1]
        figures = {
            name: value for line in history if line["epoch"] == epoch for name, value in line.items() if name != "epoch"
        }
        found.append(
            Moment(
                epoch=epoch + 1,
                strength=before[-1]["strength"] if before else report.subject.protection or "none",
                level=before[-1]["level"] if before else 0,
                worst=_measured(told, epoch, measure)
                or (final if told and epoch == epochs[-1] else None)
                or _worst([one for one in seen if one["epoch"] == epoch], measure),
                figures=figures,
            )
        )
    return tuple(found)


def _measured(told: Sequence[dict[str, Any]], epoch: int, measure: Measure) -> Worst | None:
    """What the gate measured at the end of an epoch, before it let the next one begin; None where it did not look."""
    worst = next((one["worst"] for one in told if one["epoch"] == epoch + 2 and one["worst"] is not None), None)
    if worst is None or worst["limit"] is not None:
        return None
    value = worst["value"]
    return Worst(
        attack=worst["attack"], value=value, low=min(worst["low"], value), high=max(worst["upper"], value),
        measure=measure,
    )  # fmt: skip


def _worst(seen: Sequence[dict[str, Any]], measure: Measure) -> Worst | None:
    """The attack with the largest mean over the looks at one epoch; its interval is the scatter of that mean."""
    values: dict[str, list[float]] = {}
    for one in seen:
        for name, value in one["found"].items():
            values.setdefault(name, []).append(value)
    found = []
    for name, each in values.items():
        mean = sum(each) / len(each)
        half = 2 * (sum((one - mean) ** 2 for one in each) / max(1, len(each) - 1) / len(each)) ** 0.5
        value = max(mean, 1 - mean) if measure == "leak_auc" else mean
        found.append((value, name, half))
    if not found:
        return None
    value, name, half = max(found)
    return Worst(attack=name, value=value, low=max(0.0, value - half), high=min(1.0, value + half), measure=measure)


def _curves(seen: Sequence[dict[str, Any]], measure: Measure) -> tuple[LiveCurve, ...]:
    names = dict.fromkeys(name for one in seen for name in one["found"])
    curves = []
    for name in names:
        points = [(one["step"], one["found"][name]) for one in seen if name in one["found"]]
        values = tuple(max(value, 1 - value) if measure == "leak_auc" else value for _, value in points)
        curves.append(LiveCurve(attack=name, measure=measure, steps=tuple(step for step, _ in points), values=values))
    return tuple(curves)


def _history(where: Path) -> list[dict[str, float]]:
    try:
        told = json.loads((where / "status.json").read_bytes()).get("history", [])
    except (OSError, ValueError, AttributeError, RecursionError):
        return []
    return [line for line in told if isinstance(line, dict) and "epoch" in line]


def _ledger(folder: Folder, report: Report) -> LedgerSummary | None:
    if not (folder.path / "ledger" / "log").exists():
        return None
    summary = summed_up(folder.path / "ledger")
    leaks = [leak for leak in report.leaks if (leak.on, leak.measure, leak.baseline) == ("visits", "leak_auc", None)]
    most = max(leaks, key=lambda leak: leak.low, default=None)
    if most is not None and summary["worst_case"] is not None and most.low > summary["worst_case"]:
        summary["notes"] += (
            f"{most.attack} was measured at {most.value:.3f}, above the worst case of messages about a row: something "
            "else tells labels here",
        )
    return LedgerSummary(**summary)
