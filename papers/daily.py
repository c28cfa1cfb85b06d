"""Training by day, as the papers show it: their settings, and utility and leak of each day with bands over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from papers.kinds import Kind, needs
from papers.labels import Triple, labelled, of_settings
from papers.sheet import Sheet, shades
from tacit.lab.sweeping.judging import student

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INDUSTRY", "PANELS", "REPORT", "daily"]

INDUSTRY: tuple[Triple, ...] = (
    ("none", None, None), ("iso", "t", 1.0), ("iso", "t", 2.0), ("max_norm", None, None),
    ("marvell", "sum_kl", 0.25), ("marvell", "sum_kl", 0.1),
)  # fmt: skip
"""The settings of the longer version's daily figure; its iso has the variance ratio as its parameter, so it is t."""

REPORT: tuple[Triple, ...] = (
    ("none", None, None), *(("marvell", "sum_kl", value) for value in (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)),
    ("max_norm", None, None),
)  # fmt: skip
"""The settings of Report 2020a; its sumKL of infinity is no noise."""

PANELS: Mapping[str, tuple[str, str]] = {
    "test_auc": ("test AUC", "test_auc"),
    "norm": ("norm leak at the cut", "norm@cut mean"),
    "leakage": ("|norm leak − 0.5|", "norm@cut mean"),
    "hint": ("hint leak at the cut (5 hints)", "hint@cut mean"),
}
"""What is shown of each day: its title, and the column of a day's row that it is made of; leaks are not folded."""


def daily(settings: Sequence[Triple], panels: Sequence[str]) -> Kind:
    """Figures by day: some settings, and some of `PANELS`."""
    return Kind(
        lambda table, data: _numbers(labelled(of_settings(table, settings)), panels),
        lambda numbers, sheet: _draw(numbers, panels, sheet),
    )


def _numbers(table: pl.DataFrame, panels: Sequence[str]) -> pl.DataFrame:
    """For each setting and day the mean over seeds and half of its 95% interval (null where there is one seed)."""
    of = {name: PANELS[name][1] for name in panels}
    needs(table, ["day", *of.values()], "a figure by day")
    figures = {name: pl.col(column) for name, column in of.items()}
    figures |= {name: (figures[name] - 0.5).abs() for name in figures if name == "leakage"}
    days = table.filter(pl.col("day").is_not_null() & (pl.col("part") == "stretch")).with_columns(**figures)
    seeds = days["seed"].n_unique()
    around = pl.col(panels).std() * (student(max(1, seeds - 1)) / seeds**0.5)
    return days.group_by("setting", "protection", "day", maintain_order=True).agg(
        pl.len().alias("seeds"), pl.col(panels).mean(), around.name.suffix(" band")
    )


def _draw(numbers: pl.DataFrame, panels: Sequence[str], sheet: Sheet) -> None:
    """A panel for each figure, in it a line with its band for each setting."""
    axes = sheet.panels(1, len(panels), each=(12.4 / len(panels), 2.9))[0]
    settings = numbers.select("setting", "protection").unique(maintain_order=True)
    colours = shades(settings["setting"].to_list(), settings["protection"].to_list())
    for panel, axis in zip(panels, axes, strict=True):
        for name in settings["setting"]:
            rows = numbers.filter(pl.col("setting") == name).sort("day")
            _band(axis, rows, panel, name, colours[name], 0.5 / settings.height)
        axis.set_title(PANELS[panel][0])
        axis.set_xlabel("day")
        if panel == "test_auc":
            lines = numbers[panel].drop_nulls()
            axis.set_ylim(float(lines.min()) - 0.05, min(1.0, float(lines.max()) + 0.05))  # type: ignore[arg-type]
        else:
            chance = 0.0 if panel == "leakage" else 0.5
            lowest = float(numbers[panel].min() or chance)  # type: ignore[arg-type]
            axis.set_ylim(min(chance, lowest) - 0.02, chance + 0.53)
            axis.axhline(chance, color="#bbbbbb", lw=1, ls="--")
    sheet.legend(*axes[0].get_legend_handles_labels())


def _band(axis: Axes, rows: pl.DataFrame, column: str, name: str, colour: object, alpha: float) -> None:
    """A line with its band, where several seeds make one."""
    axis.plot(rows["day"], rows[column], color=colour, lw=1.3, label=name)
    band = rows[f"{column} band"].fill_null(0.0).fill_nan(0.0)
    if float(band.max() or 0.0) > 0:  # type: ignore[arg-type]
        low, high = rows[column] - band, rows[column] + band
        axis.fill_between(rows["day"], low, high, color=colour, alpha=alpha, lw=0)
