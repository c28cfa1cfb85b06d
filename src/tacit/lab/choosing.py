"""Which protection, and how strong: the best test AUC whose worst attack stays under a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError
from tacit.lab.sweeping.results import leaks_of
from tacit.lab.sweeping.settings import Setting

if TYPE_CHECKING:
    import polars as pl

    from tacit.lab.data.rows import Data

__all__ = ["Choice", "Point", "best", "choose", "points"]


@dataclass(frozen=True)
class Point:
    """One protection at one strength, over all seeds it was trained with.

    Attributes:
        setting: what the label party does; its seed is the first one.
        seeds: how many trainings it stands for.
        test_auc: the mean over the seeds; None where a training ran away.
        test_loss: likewise.
        worst: leak AUC of the worst attack: of the seed whose interval reaches highest.
        low: the lower end of that interval.
        high: its upper end; None, as the two before it, where a training ran away.
        attack: the column of that attack.
        untried: leak columns that others of the sweep have and this one lacks: an attack that did not run has not
            failed, so a setting with any can't be chosen.
    """

    setting: Setting
    seeds: int
    test_auc: float | None
    test_loss: float | None
    worst: float | None
    low: float | None
    high: float | None
    attack: str | None
    untried: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        leak = {"attack": self.attack, "value": self.worst, "low": self.low, "high": self.high}
        return {
            "protection": self.setting.protection, "knob": self.setting.knob, "strength": self.setting.strength,
            "options": dict(self.setting.options), "spelled": self.setting.spelled, "seeds": self.seeds,
            "test_auc": self.test_auc, "test_loss": self.test_loss, "worst": leak, "untried": list(self.untried),
        }  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What to take under a limit, or what comes nearest to it.

    Attributes:
        limit: the leak AUC that no attack may reach.
        point: the chosen setting; where none holds the limit, the one whose worst attack reaches least far.
        holds: whether it holds the limit.
        baseline: the same without protection, if it was trained.
    """

    limit: float
    point: Point
    holds: bool
    baseline: Point | None

    @property
    def cost(self) -> float | None:
        """How much test AUC the setting costs against no protection; None where either is not known."""
        if self.baseline is None or self.baseline.test_auc is None or self.point.test_auc is None:
            return None
        return self.baseline.test_auc - self.point.test_auc

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        baseline = None if self.baseline is None else self.baseline.as_dict()
        return {
            "limit": self.limit, "holds": self.holds, "chosen": self.point.as_dict(), "baseline": baseline,
            "cost": self.cost,
        }  # fmt: skip


def points(whole: pl.DataFrame) -> list[Point]:
    """The settings of a sweep, in its order, each over all of its seeds.

    Args:
        whole: the rows of whole trainings, as `Sweep.whole` has them.
    """
    tried = [name for name in leaks_of(whole.columns) if whole[name].is_not_null().any()]
    by_setting: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in whole.sort("replica").iter_rows(named=True):
        by_setting.setdefault((row["protection"], row["knob"], row["options"]), []).append(row)
    return [_point(rows, tried) for rows in by_setting.values()]


def best(whole: pl.DataFrame, limit: float) -> Choice:
    """The setting with the best test AUC whose worst attack's upper end stays under the limit, with every seed.

    Args:
        whole: the rows of whole trainings, as `Sweep.whole` has them.
        limit: a leak AUC between 0.5, a coin flip, and 1.
    """
    _check(limit)
    every = points(whole)
    found = [point for point in every if point.high is not None and point.test_auc is not None and not point.untried]
    if not found:
        untried = sorted({name for point in every for name in point.untried})
        reason = f"{', '.join(untried)} did not run everywhere" if untried else "every training ran away"
        raise UsageError(f"no setting of the sweep can be judged: {reason}; see the column `notes` of the results")
    baseline = next((point for point in found if point.setting.protection == "none"), None)
    holding = [point for point in found if (point.high or 1.0) < limit]
    if holding:
        return Choice(limit, max(holding, key=lambda point: point.test_auc or 0.0), True, baseline)
    return Choice(limit, min(found, key=lambda point: point.high or 1.0), False, baseline)


def choose(data: Data | str, *, limit: float, **options: Any) -> Choice:
    """Sweep, and name the setting with the best test AUC whose worst attack stays under the limit.

    Args:
        data: a data set, or a name that `tacit.lab.data.load` knows.
        limit: a leak AUC between 0.5, a coin flip, and 1.
        options: of `tacit.lab.sweep`.
    """
    from tacit.lab.sweeping.running import sweep

    _check(limit)
    return sweep(data, **options).best(limit)


def _check(limit: float) -> None:
    if not 0.5 < limit < 1:
        raise UsageError(f"limit = {limit}: a leak AUC lies between 0.5, a coin flip, and 1; take one such as 0.6")


def _point(rows: list[Mapping[str, Any]], tried: Sequence[str]) -> Point:
    first = rows[0]
    options = json.loads(first["options"])
    others = tuple((key, value) for key, value in options.items() if key != first["knob"])
    setting = Setting(first["protection"], first["knob"], first["strength"], others, first["seed"])
    untried = tuple(name for name in tried if any(row[name] is None for row in rows))
    if any(row["worst high"] is None for row in rows):
        mean = _mean(rows, "test_auc"), _mean(rows, "test_loss")
        return Point(setting, len(rows), *mean, None, None, None, None, untried)
    most = max(rows, key=lambda row: row["worst high"])
    return Point(
        setting, len(rows), _mean(rows, "test_auc"), _mean(rows, "test_loss"), most["worst"], most["worst low"],
        most["worst high"], most["worst attack"], untried,
    )  # fmt: skip


def _mean(rows: list[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows]
    return None if None in values else sum(values) / len(values)
