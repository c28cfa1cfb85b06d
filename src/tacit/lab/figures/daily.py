"""Training by day: utility and leak of each day, with bands over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from tacit.lab.embedding.statements import Statement
from tacit.lab.figures.kinds import SETTING, Kind, labelled, needs
from tacit.lab.figures.progress import chosen
from tacit.lab.figures.style import Sheet, shades
from tacit.lab.sweeping.judging import student

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INDUSTRY", "REPORT", "daily"]

INDUSTRY: tuple[tuple[str, str | None, float | None], ...] = (
    ("none", None, None), ("iso", "t", 1.0), ("iso", "t", 2.0), ("max_norm", None, None),
    ("marvell", "sum_kl", 0.25), ("marvell", "sum_kl", 0.1),
)  # fmt: skip
"""The settings of the longer version's daily figure; its iso has the variance ratio as its parameter, so it is t."""

REPORT: tuple[tuple[str, str | None, float | None], ...] = (
    ("none", None, None), *(("marvell", "sum_kl", value) for value in (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)),
    ("max_norm", None, None),
)  # fmt: skip
"""The settings of the technical report; its sumKL of infinity is no noise."""

_PANELS = {"norm@cut": "norm leak at the cut", "hint@cut": "hint leak at the cut (5 hints)", "test_auc": "test AUC"}


def daily(
    settings: Sequence[tuple[str, str | None, float | None]], columns: Sequence[str], paper: str | None = None
) -> Kind:
    """Figures by day.

    Args:
        settings: which ones are drawn.
        columns: the panels: "norm@cut", "hint@cut", "test_auc".
        paper: "report" or "industry", whose sentences are checked; None for none.
    """
    check = _CHECKS[paper]
    return Kind(partial(_numbers, settings, columns), check, partial(_draw, columns))


def _numbers(
    settings: Sequence[tuple[str, str | None, float | None]], columns: Sequence[str], table: pl.DataFrame, data: str
) -> pl.DataFrame:
    """For each setting and day the mean over seeds and half of its 95% interval (null where there is one seed)."""
    needs(table, ["day", *columns], "a figure by day")
    days = table.filter(pl.col("day").is_not_null() & (pl.col("part") == "stretch"))
    rows = labelled(chosen(days, settings))
    seeds = rows["seed"].n_unique()
    around = pl.col(columns).std() * (student(max(1, seeds - 1)) / seeds**0.5)
    return rows.group_by("setting", *SETTING, "day", maintain_order=True).agg(
        pl.len().alias("seeds"), pl.col(columns).mean(), around.name.suffix(" band")
    )


def _means(numbers: pl.DataFrame, column: str) -> dict[str, float]:
    mean = numbers.group_by("setting", maintain_order=True).agg(pl.col(column).mean())
    return dict(zip(mean["setting"].to_list(), mean[column].to_list(), strict=True))


def _said_in_industry(numbers: pl.DataFrame) -> list[Statement]:
    norm, hint, worth = (_means(numbers, column) for column in ("norm@cut", "hint@cut", "test_auc"))
    protected = [name for name in norm if name != "no noise"]
    marvell = [name for name in protected if name.startswith("marvell")]
    others = [name for name in protected if name not in marvell]
    if not marvell or not others:
        return []
    best = all(
        min(leak[name] for name in marvell) <= min(leak[name] for name in others) + 0.01 for leak in (norm, hint)
    )
    drop = {name: worth["no noise"] - worth[name] for name in protected}
    least = min(worth[name] for name in protected)
    return [
        Statement(
            "Marvell has the best privacy overall against the norm and the hint attack.", best,
            "; ".join(f"{name} {norm[name]:.2f} and {hint[name]:.2f}" for name in norm),
        ),
        Statement(
            "max_norm holds the norm attack, but the hint attack less well than sumKL = 0.25.",
            norm["max_norm"] <= norm["no noise"] - 0.05
            and hint["max_norm"] >= hint.get("marvell sumKL=0.25", 1.0) - 0.005,
            f"norm {norm['max_norm']:.2f}, hint {hint['max_norm']:.2f}; "
            f"sumKL = 0.25: {norm.get('marvell sumKL=0.25', float('nan')):.2f}, "
            f"{hint.get('marvell sumKL=0.25', float('nan')):.2f}",
        ),
        Statement(
            "iso with t = 2 has the worst utility of all.", worth.get("iso t=2", 1.0) <= least + 0.002,
            "lost test AUC: " + ", ".join(f"{name} {value:+.3f}" for name, value in drop.items()),
        ),
    ]  # fmt: skip


def _said_in_report(numbers: pl.DataFrame) -> list[Statement]:
    leak, worth = _means(numbers, "norm@cut"), _means(numbers, "test_auc")
    order = [name for name in leak if name != "max_norm"]  # from infinity down
    falling = [leak[name] for name in order]
    rising = [worth[name] for name in order]
    reasonable = [name for name in order if name in ("marvell sumKL=0.64", "marvell sumKL=0.49", "marvell sumKL=0.16")]
    return [
        Statement(
            "A smaller sumKL leaks less.", all(b <= a + 0.01 for a, b in pairwise(falling)),
            " → ".join(f"{name.removeprefix('marvell ')} {leak[name]:.3f}" for name in order),
        ),
        Statement(
            "A smaller sumKL costs more, 0.04 of test AUC at 0.01.",
            rising[0] > rising[-1] and rising[0] - rising[-1] < 0.08,
            " → ".join(f"{value:.3f}" for value in rising),
        ),
        Statement(
            "Between 0.16 and 0.64 the loss of AUC is below 0.02 and the leak lies in 0.5 to 0.6.",
            bool(reasonable) and all(leak[n] <= 0.6 and worth["no noise"] - worth[n] < 0.02 for n in reasonable),
            "; ".join(f"{n.removeprefix('marvell ')}: lost {worth['no noise'] - worth[n]:.3f}, leak {leak[n]:.3f}"
                      for n in reasonable),
        ),
    ]  # fmt: skip


_CHECKS: Mapping[str | None, Callable[[pl.DataFrame], list[Statement]]] = {
    "report": _said_in_report,
    "industry": _said_in_industry,
    None: lambda numbers: [],
}


def _draw(columns: Sequence[str], numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, len(columns), each=(12.4 / len(columns), 2.9))[0]
    settings = numbers.select("setting", "protection").unique(maintain_order=True)
    colours = shades(settings["setting"].to_list(), settings["protection"].to_list())
    for column, axis in zip(columns, axes, strict=True):
        for name in settings["setting"]:
            rows = numbers.filter(pl.col("setting") == name).sort("day")
            _band(axis, rows, column, name, colours[name], 0.5 / settings.height)
        axis.set_title(_PANELS[column])
        axis.set_xlabel("day")
        if column == "test_auc":
            lines = numbers[column].drop_nulls()
            axis.set_ylim(float(lines.min()) - 0.05, min(1.0, float(lines.max()) + 0.05))  # type: ignore[arg-type]
        else:
            axis.set_ylim(0.48, 1.03)
            axis.axhline(0.5, color="#bbbbbb", lw=1, ls="--")
    sheet.legend(*axes[0].get_legend_handles_labels())


def _band(axis: Axes, rows: pl.DataFrame, column: str, name: str, colour: object, alpha: float) -> None:
    """A line with its band, where several seeds make one."""
    axis.plot(rows["day"], rows[column], color=colour, lw=1.3, label=name)
    band = rows[f"{column} band"].fill_null(0.0).fill_nan(0.0)
    if float(band.max() or 0.0) > 0:  # type: ignore[arg-type]
        low, high = rows[column] - band, rows[column] + band
        axis.fill_between(rows["day"], low, high, color=colour, alpha=alpha, lw=0)
