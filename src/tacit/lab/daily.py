"""Trainings by day as numbers and as a picture: utility and leak of each day, with bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from tacit.errors import DataError
from tacit.lab.drawing import SETTING, Sheet, labelled, shades
from tacit.lab.sweeping.judging import student

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Triple = tuple[str, str | None, float | None]
"""A setting as its protection, knob and strength."""

_PANELS = {"norm@cut": "norm leak at the cut", "hint@cut": "hint leak at the cut (5 hints)", "test_auc": "test AUC"}


def of_settings(table: pl.DataFrame, settings: Sequence[Triple]) -> pl.DataFrame:
    """The rows of some settings, in this order; of one that was run with several other options, all of them."""
    wanted = pl.DataFrame(
        [(*setting, place) for place, setting in enumerate(settings)],
        schema={"protection": pl.String, "knob": pl.String, "strength": pl.Float64, "place": pl.Int64},
        orient="row",
    )
    cast = table.with_columns(pl.col("knob").cast(pl.String), pl.col("strength").cast(pl.Float64))
    joined = cast.join(wanted, on=["protection", "knob", "strength"], nulls_equal=True)
    return joined.sort("place", "step", maintain_order=True).drop("place")


def numbers_by_day(table: pl.DataFrame, settings: Sequence[Triple], columns: Sequence[str]) -> pl.DataFrame:
    """For each setting and day the mean over seeds and half of its 95% interval (null where there is one seed).

    Args:
        table: what `tacit.lab.days.by_day` gave.
        settings: which ones are wanted.
        columns: the figures: "norm@cut", "hint@cut", "test_auc".
    """
    missing = [name for name in ("day", *columns) if name not in table.columns]
    if missing:
        raise DataError(f"a figure by day needs {', '.join(missing)}, which the results do not have: train by day")
    days = table.filter(pl.col("day").is_not_null() & (pl.col("part") == "stretch"))
    rows = labelled(of_settings(days, settings))
    seeds = rows["seed"].n_unique()
    around = pl.col(columns).std() * (student(max(1, seeds - 1)) / seeds**0.5)
    return rows.group_by("setting", *SETTING, "day", maintain_order=True).agg(
        pl.len().alias("seeds"), pl.col(columns).mean(), around.name.suffix(" band")
    )


def draw_days(numbers: pl.DataFrame, columns: Sequence[str], sheet: Sheet) -> None:
    """A panel for each figure, in it a line with its band for each setting."""
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
