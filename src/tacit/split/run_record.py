"""What a run's folder tells beside its messages: looks and decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit.company.overrides import overrides
from tacit.company.verdict import worst_of
from tacit.disk import known_json
from tacit.report.document import Decision, Leak, LiveCurve, Measured, Moment, Report
from tacit.report.run_files import LIVE
from tacit.report.series import folded
from tacit.split.gate import decisions
from tacit.split.guard import looks


def with_records(report: Report, where: Path) -> Report:
    """The report of a run, with what its folder tells.

    A limit that was broken beyond doubt at any time stays broken, whatever the attacks on the last messages say.
    """
    decided, seen = decisions(where), looks(where / LIVE)
    measure: Measured = "leak_auc" if report.subject.side == "features" else "variance_read"
    return report.model_copy(
        update={
            "verdict": "broken" if report.limit is not None and broken(where) else report.verdict,
            "moments": tuple(_moments(where, decided, seen, measure, report)),
            "decisions": tuple(
                Decision(**{name: decision[name] for name in Decision.model_fields}) for decision in decided
            ),
            "pauses": sum(decision["decision"] in ("pause", "stop") for decision in decided),
            "curves": tuple(_curves(seen, measure)),
            "overrides": overrides(where),
        }
    )


def broken(where: Path) -> bool:
    """Whether what a run sent has broken its limit beyond doubt, at any time."""
    return any(decision["broken"] for decision in decisions(where))


def _moments(
    where: Path, decided: Sequence[dict[str, Any]], seen: Sequence[dict[str, Any]], measure: Measured, report: Report
) -> Iterator[Moment]:
    """An epoch each: the worst that was seen, and how good the model was then."""
    said = known_json(where / "status.json")
    lines = said.get("history", []) if isinstance(said, dict) else []
    history = [line for line in lines if isinstance(line, dict) and "epoch" in line]
    # what the audit found after the last epoch; not of an attacker who knew something anyway, which is told apart
    final = worst_of([leak for leak in report.leaks if leak.baseline is None])
    epochs = sorted({look["epoch"] for look in seen} | {int(line["epoch"]) for line in history})
    for epoch in epochs:
        lines = [line for line in history if line["epoch"] == epoch]
        yield Moment(
            epoch=epoch + 1,
            worst=_measured(decided, epoch, measure)
            or (final if decided and epoch == epochs[-1] else None)
            or _worst([look for look in seen if look["epoch"] == epoch], measure),
            figures={name: value for line in lines for name, value in line.items() if name != "epoch"},
        )


def _measured(decided: Sequence[dict[str, Any]], epoch: int, measure: Measured) -> Leak | None:
    """What the gate measured at the end of an epoch, before it let the next one begin; None where it did not look."""
    worst = next((past["worst"] for past in decided if past["epoch"] == epoch + 2 and past["worst"] is not None), None)
    if worst is None:
        return None
    value = worst["value"]
    low, high = min(worst["low"], value), max(worst["upper"], value)
    return Leak(attack=worst["attack"], on=worst["on"], value=value, low=low, high=high, measure=measure)


def _worst(seen: Sequence[dict[str, Any]], measure: Measured) -> Leak | None:
    """The attack with the largest mean over the looks at one epoch; its interval is the scatter of that mean."""
    reached = []
    for attack in dict.fromkeys(name for look in seen for name in look["found"]):
        values = [look["found"][attack] for look in seen if attack in look["found"]]
        mean = sum(values) / len(values)
        half = 2 * (sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1) / len(values)) ** 0.5
        reached.append((_folded(mean, measure), attack, half))
    if not reached:
        return None
    value, attack, half = max(reached)
    low, high = max(0.0, value - half), min(1.0, value + half)
    return Leak(attack=attack, on="live", value=value, low=low, high=high, measure=measure)


def _curves(seen: Sequence[dict[str, Any]], measure: Measured) -> Iterator[LiveCurve]:
    for attack in dict.fromkeys(name for look in seen for name in look["found"]):
        looked = [look for look in seen if attack in look["found"]]
        values = tuple(_folded(look["found"][attack], measure) for look in looked)
        yield LiveCurve(attack=attack, measure=measure, steps=tuple(look["step"] for look in looked), values=values)


def _folded(value: float, measure: Measured) -> float:
    return folded(value) if measure == "leak_auc" else value
