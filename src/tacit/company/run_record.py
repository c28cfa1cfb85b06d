"""What a run's folder tells beside its messages: looks, decisions and overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit.company import seals
from tacit.company.gate import decisions
from tacit.company.guard import looks
from tacit.company.run_files import LIVE, OVERRIDES
from tacit.company.verdict import now, worst_of
from tacit.disk import known_json
from tacit.errors import UsageError
from tacit.views.report.document import Decision, LiveCurve, Measured, Moment, Override, Report, Worst
from tacit.views.series import folded

_VOUCHED = "a bound on labels: no split run of an older version had these rows"


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
            "curves": tuple(_curves(seen, measure)),
            "overrides": overrides(where),
        }
    )


def broken(where: Path) -> bool:
    """Whether what a run sent has broken its limit beyond doubt, at any time."""
    return any(decision["broken"] for decision in decisions(where))


def overrides(where: Path) -> tuple[Override, ...]:
    """Who let a run out all the same."""
    return tuple(Override(**line) for line in seals.read(where / OVERRIDES))


def vouch(where: Path, by: tuple[str, str] | None) -> None:
    """Put on record that somebody says that no split run of an older version had this run's rows."""
    if by is not None:
        who, reason = _named(by, "that no split run had these rows")
        seals.append(where / OVERRIDES, {"time": now(), "who": who, "what": _VOUCHED, "reason": reason})


def vouched(where: Path) -> bool:
    """Whether somebody has."""
    return any(one.what == _VOUCHED for one in overrides(where))


def restored(where: Path, log: Callable[..., None], by: tuple[str, str] | None) -> Callable[[str], None] | None:
    """What puts on record that somebody answers for going on after a restore; None where nobody does."""
    if by is None:
        return None
    who, reason = _named(by, "going on after a restore")

    def record(problem: str) -> None:
        what = f"training after a restore: {problem}"
        seals.append(where / OVERRIDES, {"time": now(), "who": who, "what": what, "reason": reason})
        log("restored", who=who, reason=problem)

    return record


def _named(by: tuple[str, str], what: str) -> tuple[str, str]:
    who, reason = (word.strip() for word in by)
    if not who or not reason:
        raise UsageError(f"{what} is on record with a name and a reason: give both")
    return who, reason


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


def _measured(decided: Sequence[dict[str, Any]], epoch: int, measure: Measured) -> Worst | None:
    """What the gate measured at the end of an epoch, before it let the next one begin; None where it did not look."""
    worst = next((past["worst"] for past in decided if past["epoch"] == epoch + 2 and past["worst"] is not None), None)
    if worst is None:
        return None
    value = worst["value"]
    low, high = min(worst["low"], value), max(worst["upper"], value)
    return Worst(attack=worst["attack"], value=value, low=low, high=high, measure=measure)


def _worst(seen: Sequence[dict[str, Any]], measure: Measured) -> Worst | None:
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
    return Worst(attack=attack, value=value, low=max(0.0, value - half), high=min(1.0, value + half), measure=measure)


def _curves(seen: Sequence[dict[str, Any]], measure: Measured) -> Iterator[LiveCurve]:
    for attack in dict.fromkeys(name for look in seen for name in look["found"]):
        looked = [look for look in seen if attack in look["found"]]
        values = tuple(_folded(look["found"][attack], measure) for look in looked)
        yield LiveCurve(attack=attack, measure=measure, steps=tuple(look["step"] for look in looked), values=values)


def _folded(value: float, measure: Measured) -> float:
    return folded(value) if measure == "leak_auc" else value
