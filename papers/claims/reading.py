"""Numbers out of the results of trainings: means, medians and quantiles over batches, and trade-offs as frontiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from papers.kinds import averaged, plain, whole
from papers.labels import Triple

__all__ = ["NONE", "Frontier", "best_margin", "frontier", "leaks", "less", "mean", "median", "point", "q95"]

NONE: Triple = ("none", None, None)

Array = NDArray[np.float64]

_GRID = 201  # utilities at which two frontiers are compared


def leaks(table: pl.DataFrame, setting: Triple, column: str) -> list[Array]:
    """The unfolded AUC of every batch in which the attack was tried, for each seed of a setting."""
    rows = _of(plain(table), setting).filter(pl.col("part") == "batch").sort("replica", "step")
    return [one[column].drop_nulls().to_numpy() for one in rows.partition_by("replica", maintain_order=True)]


def mean(table: pl.DataFrame, setting: Triple, column: str) -> float:
    """The mean over all batches."""
    return _over(leaks(table, setting, column), np.mean)


def median(table: pl.DataFrame, setting: Triple, column: str) -> float:
    """The median over the batches of a seed, averaged over seeds."""
    return _over(leaks(table, setting, column), np.median)


def q95(table: pl.DataFrame, setting: Triple, column: str) -> float:
    """The 95% quantile over the batches of a seed, averaged over seeds."""
    return _over(leaks(table, setting, column), lambda each: np.quantile(each, 0.95))


def _over(seeds: Sequence[Array], figure: Callable[[Array], Any]) -> float:
    known = [float(figure(each)) for each in seeds if len(each)]
    return float(np.mean(known)) if known else float("nan")


def _of(table: pl.DataFrame, setting: Triple) -> pl.DataFrame:
    protection, knob, strength = setting
    rows = table.filter(pl.col("protection") == protection)
    return rows if knob is None else rows.filter((pl.col("knob") == knob) & (pl.col("strength") == strength))


# --- trade-offs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frontier:
    """The least leak that a protection has at each utility: its best points, and straight lines between them.

    Attributes:
        utility: of the points, rising.
        leak: of the points, rising.
    """

    utility: Array
    leak: Array

    def at(self, utility: float | Array) -> Array:
        """The leak at a utility; beyond the points that of the nearest one."""
        return np.asarray(np.interp(utility, self.utility, self.leak))


def point(table: pl.DataFrame, setting: Triple, utility: str, leak: str) -> tuple[float, float]:
    """What the model of a setting is worth, larger for better, and its 95% quantile of a leak; means over seeds."""
    rows = _of(averaged(whole(plain(table))), setting)
    worth = float(rows[utility][0])
    return (worth if utility == "test_auc" else -worth), q95(table, setting, leak)


def frontier(table: pl.DataFrame, protection: str, utility: str, leak: str) -> Frontier:
    """Of all strengths of a protection, no noise among them, those that no other one beats in both."""
    found = averaged(whole(plain(table))).filter(pl.col("protection") == protection)
    settings = [NONE, *found.select("protection", "knob", "strength").rows()]
    points = sorted((point(table, one, utility, leak) for one in settings), key=lambda one: (-one[0], one[1]))
    kept: list[tuple[float, float]] = []
    for worth, leaked in points:
        if np.isfinite([worth, leaked]).all() and (not kept or leaked < kept[-1][1]):
            kept.append((worth, leaked))
    worths, leaked_ = zip(*reversed(kept), strict=True)
    return Frontier(np.array(worths), np.array(leaked_))


def less(mine: Frontier, other: Frontier) -> float | None:
    """The mean leak of the other frontier less that of mine, over the utilities that both reach; None without any."""
    low, high = max(mine.utility[0], other.utility[0]), min(mine.utility[-1], other.utility[-1])
    if low > high:
        return None
    grid = np.linspace(low, high, _GRID)
    return float((other.at(grid) - mine.at(grid)).mean())


def best_margin(mine: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> float | None:
    """Of points (utility, protection): the largest lead of one of mine on the best of the others that is as useful."""
    leads = []
    for worth, protected in mine:
        rivals = [reached for utility, reached in other if utility >= worth]
        leads += [protected - max(rivals)] if rivals else []
    return max(leads, default=None)
