"""Which protection, and how strong: the best test AUC whose worst attack stays under a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError
from tacit.lab.stack.measuring import EVERY_BATCH
from tacit.lab.sweeping.results import leaks_of
from tacit.lab.sweeping.settings import Setting

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Point:
    """One protection at one strength, over all seeds it was trained with."""

    setting: Setting  # what the label party does; its seed is the first one
    seeds: int  # how many trainings it stands for
    test_auc: float | None  # the mean over the seeds; None where a training ran away
    test_loss: float | None  # likewise
    worst: float | None = None  # leak AUC of the worst attack: of the seed whose interval reaches highest
    low: float | None = None  # the lower end of that interval
    # its upper end; None, as the two before it, where a training ran away or no attack could run
    high: float | None = None
    attack: str | None = None  # the column of that attack
    part: str | None = None  # of the training, where it reached that: "whole", or some updates
    # leak columns that should be there and are not: an attack that did not run has not failed
    untried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # of its trainings: what could not run, and why

    @property
    def failed(self) -> str | None:
        """Why it can't be judged, in a few words; None where it can."""
        if self.test_loss is None or any("ran away" in note for note in self.notes):
            return "ran away"
        return "no attack could run" if self.worst is None else None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        leak = {"attack": self.attack, "value": self.worst, "low": self.low, "high": self.high, "part": self.part}
        return {
            "protection": self.setting.protection, "knob": self.setting.knob, "strength": self.setting.strength,
            "options": dict(self.setting.options), "spelled": self.setting.spelled, "seeds": self.seeds,
            "test_auc": self.test_auc, "test_loss": self.test_loss, "worst": leak, "failed": self.failed,
            "untried": list(self.untried), "notes": list(self.notes),
        }  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What to take under a limit, or what comes nearest to it."""

    limit: float  # the leak AUC that no attack may reach
    point: Point  # the chosen setting; where none holds the limit, the protection whose worst attack reaches least far
    holds: bool  # whether it holds the limit against every attack that was tried
    baseline: Point | None  # the same without protection, if it was trained

    @property
    def cost(self) -> float | None:
        """How much test AUC the setting costs against no protection; None where either is not known."""
        if self.baseline is None or self.baseline.test_auc is None or self.point.test_auc is None:
            return None
        return self.baseline.test_auc - self.point.test_auc

    @property
    def warning(self) -> str | None:
        """What the answer does not know; None where every attack was tried."""
        return not_tried(self.point.untried)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        baseline = None if self.baseline is None else self.baseline.as_dict()
        return {
            "limit": self.limit, "holds": self.holds, "chosen": self.point.as_dict(), "baseline": baseline,
            "cost": self.cost, "untried": list(self.point.untried), "warning": self.warning,
        }  # fmt: skip


def points(whole: pl.DataFrame, wanted: Sequence[str] = ()) -> list[Point]:
    """The settings of a sweep, in its order, each over all of its seeds."""
    tried = [name for name in leaks_of(whole.columns) if whole[name].is_not_null().any()]
    columns = list(dict.fromkeys([*tried, *wanted]))
    by_setting: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in whole.sort("replica").iter_rows(named=True):
        by_setting.setdefault((row["protection"], row["knob"], row["options"]), []).append(row)
    return [_point(rows, columns) for rows in by_setting.values()]


def best(every: Sequence[Point], limit: float, *, quick: bool = False) -> Choice:
    """The setting with the best test AUC whose worst attack's upper end stays under the limit, with every seed.

    An attack that was not tried may read the labels, so a setting on which one is missing is not chosen. Where that is
    so of all settings there is no answer, unless one is asked for that holds against the attacks that were tried.
    """
    check_limit(limit)
    found = _judged(every, quick=quick)
    baseline = next((point for point in found if point.setting.protection == "none"), None)
    holding = [point for point in found if (point.high or 1.0) < limit]
    if holding:
        return Choice(limit, max(holding, key=lambda point: point.test_auc or 0.0), True, baseline)
    protected = [point for point in found if point.setting.protection != "none"]
    nearest = min(protected or found, key=lambda point: (point.high or 1.0, point.worst or 1.0))
    return Choice(limit, nearest, False, baseline)


def check_attacks(attacks: Sequence[str]) -> None:
    """Refuse a sweep that could not be chosen from before it trains."""
    missing = [name for name in EVERY_BATCH if name not in attacks]
    if missing:
        raise UsageError(
            f"to choose, every attack has to be tried, and these would be left out: {', '.join(missing)}; try them "
            "too, or ask for a quick answer (--quick), which holds against those that were tried"
        )


def not_tried(columns: Sequence[str]) -> str | None:
    """What to say about attacks that did not run, by their columns; None where there are none.

    >>> not_tried(["residual@cut", "residual@layer1", "norm@layer1", "learned@cut"])
    'not tried: residual, norm@layer1, learned: they may read it'
    """
    return f"not tried: {', '.join(_attacks(columns))}: they may read it" if columns else None


def _attacks(columns: Sequence[str]) -> list[str]:
    """Attacks by their names, with the layer where it is only missing elsewhere than at the cut."""
    names = ((column, *column.rsplit("@", 1)) for column in columns)
    return list(dict.fromkeys(name if f"{name}@cut" in columns else column for column, name, _ in names))


def _judged(every: Sequence[Point], *, quick: bool) -> list[Point]:
    """The settings that can be compared, or why there are none."""
    if not every:
        raise UsageError("the results hold no row of a whole training: give the results.parquet of `tacit sweep`")
    able = [point for point in every if point.failed is None and point.test_auc is not None]
    if not able:
        reasons = " and ".join(dict.fromkeys(point.failed or "no test AUC" for point in every))
        raise UsageError(
            f"no setting of the sweep can be judged ({reasons}): see the column `notes` of the results, and take a "
            "lower learning rate or larger batches"
        )
    nowhere = set.intersection(*(set(point.untried) for point in able))
    found = [point for point in able if set(point.untried) <= (nowhere if quick else set())]
    if not found:
        missing = list(dict.fromkeys(name for point in able for name in point.untried))
        which = ", ".join(_attacks(missing))
        remedy = "sweep anew without --quick and with every attack, in another folder"
        if not quick:
            remedy += ", or ask for a quick answer (quick=True, --quick), which holds against those that were tried"
        raise UsageError(
            f"these attacks were not tried{' everywhere' if nowhere != set(missing) else ''}, and may read the labels: "
            f"{which}; {remedy}. The column `notes` says what could not run"
        )
    return found


def check_limit(limit: float, name: str = "limit =") -> None:
    """Refuse what is no limit on a leak AUC."""
    if not 0.5 < limit < 1:
        raise UsageError(f"{name} {limit}: a leak AUC lies between 0.5, a coin flip, and 1; take one such as 0.6")


def _point(rows: list[Mapping[str, Any]], columns: Sequence[str]) -> Point:
    notes = tuple(dict.fromkeys(row["notes"] for row in rows if row["notes"] is not None))
    plain = Point(Setting.of(rows[0]), len(rows), _mean(rows, "test_auc"), _mean(rows, "test_loss"), notes=notes)
    if any(row["worst high"] is None for row in rows):
        return plain
    most = max(rows, key=lambda row: (row["worst high"], row["worst"]))
    return replace(
        plain, worst=most["worst"], low=most["worst low"], high=most["worst high"], attack=most["worst attack"],
        part=most["worst part"], untried=tuple(name for name in columns if any(row.get(name) is None for row in rows)),
    )  # fmt: skip


def _mean(rows: list[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows]
    return None if None in values else sum(values) / len(values)
