"""Training by day, as the papers show it: their settings, and utility and leak of each day with bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from papers.kinds import Kind
from papers.labels import Triple, labelled, of_settings
from papers.sheet import Sheet, shades
from tacit.lab.days import PANELS, numbers_by_day

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INDUSTRY", "REPORT", "daily"]

INDUSTRY: tuple[Triple, ...] = (
    ("none", None, None), ("iso", "t", 1.0), ("iso", "t", 2.0), ("max_norm", None, None),
    ("marvell", "sum_kl", 0.25), ("marvell", "sum_kl", 0.1),
)  # fmt: skip
"""The settings of the longer version's daily figure; its iso has the variance ratio as its parameter, so it is t."""

REPORT: tuple[Triple, ...] = (
    ("none", None, None), *(("marvell", "sum_kl", value) for value in (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)),
    ("max_norm", None, None),
)  # fmt: skip
"""The settings of the technical report; its sumKL of infinity is no noise."""


def daily(settings: Sequence[Triple], columns: Sequence[str]) -> Kind:
    """Figures by day: some settings, and the panels "norm@cut", "hint@cut" or "test_auc"."""
    return Kind(
        lambda table, data: numbers_by_day(labelled(of_settings(table, settings)), columns),
        lambda numbers, sheet: _draw(numbers, columns, sheet),
    )


def _draw(numbers: pl.DataFrame, columns: Sequence[str], sheet: Sheet) -> None:
    """A panel for each figure, in it a line with its band for each setting."""
    axes = sheet.panels(1, len(columns), each=(12.4 / len(columns), 2.9))[0]
    settings = numbers.select("setting", "protection").unique(maintain_order=True)
    colours = shades(settings["setting"].to_list(), settings["protection"].to_list())
    for column, axis in zip(columns, axes, strict=True):
        for name in settings["setting"]:
            rows = numbers.filter(pl.col("setting") == name).sort("day")
            _band(axis, rows, column, name, colours[name], 0.5 / settings.height)
        axis.set_title(PANELS[column])
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
