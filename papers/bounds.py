"""Lower bounds L on the detection error: leaks over training, leaks by layer against iso, and calibration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from papers.kinds import Kind, averaged, needs, plain, whole
from papers.progress import followed, over_training_lines
from papers.sheet import Sheet, shades
from tacit.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BOUNDS", "bounds"]

BOUNDS = (0.1, 0.2, 0.3, 0.4)
"""The lower bounds on the worst detection error that the papers ask of their noise."""


def bounds(third: str) -> Kind:
    """Figures of the older papers: leak at the cut and at the first layer over training, and a third panel.

    Args:
        third: "layers" (leak by layer against iso with t = 25, training loss at the end and best test AUC) or
            "calibration" (ACE).
    """
    return Kind(_numbers, partial(_draw, third))


def _numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    """Every batch and whole trainings: every layer's norm leak, losses, AUC and calibration error.

    `end_loss` is the training loss of the last stretch, `best_auc` the highest test AUC after any epoch, `error` the
    detection error of the best threshold on the norms at the cut, which L is a lower bound of; a mean over batches.
    """
    depths = sorted(int(name.removeprefix("norm@layer")) for name in table.columns if _is_layer(name))
    leaks = [*(f"norm@layer{depth}" for depth in depths), "norm@cut"]
    needs(table, [*leaks, "test_ace"], "leak by lower bound")
    if not table.filter(pl.col("knob") == "detection_error").height:
        raise DataError("the results have no marvell(detection_error=...): leave --from out, so that it is trained")
    kept = ["setting", "protection", "knob", "strength", "part", "step"]
    parts = []
    for part, rows in (("batch", followed(table)), ("whole", with_ends(table))):
        mean = averaged(plain(rows), "step").with_columns(pl.lit(part).alias("part"))
        mean = mean.rename({"norm@cut error": "error"}, strict=False)
        ends = [name for name in ("end_loss", "best_auc", "error") if name in mean.columns]
        parts.append(mean.select(*kept, "train_loss", "test_auc", "test_ace", *ends, *leaks))
    return pl.concat(parts, how="diagonal_relaxed")


def with_ends(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of whole trainings, with the training loss at the end and the best test AUC."""
    stretches = table.filter(pl.col("part") == "stretch").sort("step")
    ends = stretches.group_by("replica").agg(
        pl.col("train_loss").last().alias("end_loss"), pl.col("test_auc").max().alias("best_auc")
    )
    return whole(table).join(ends, on="replica", how="left", maintain_order="left")


def _is_layer(name: str) -> bool:
    return name.startswith("norm@layer") and name.removeprefix("norm@layer").isdigit()


def _leaks(numbers: pl.DataFrame) -> list[str]:
    return [name for name in numbers.columns if name.startswith("norm@")]


def _over_training(numbers: pl.DataFrame) -> pl.DataFrame:
    """The lines of the first two panels: no noise and every bound."""
    shown = (pl.col("protection") == "none") | (pl.col("knob") == "detection_error")
    return numbers.filter((pl.col("part") == "batch") & shown)


def _last(numbers: pl.DataFrame) -> pl.DataFrame:
    """What is compared in the third panel: each setting once, after its training."""
    return numbers.filter(pl.col("part") == "whole")


# --- the picture -----------------------------------------------------------------------------------------------------


def _draw(third: str, numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, 3, each=(4.0, 2.9))[0]
    lines = _over_training(numbers)
    for axis, leak, title in zip(axes, ("norm@cut", _leaks(numbers)[0]), ("cut layer", "first layer"), strict=False):
        over_training_lines(axis, lines, leak)
        axis.set_title(f"norm leak, {title}")
    axes[0].set_ylabel("leak AUC")
    sheet.legend(*axes[0].get_legend_handles_labels())
    (_layer_bars if third == "layers" else _calibration_bars)(axes[2], _last(numbers))


def _layer_bars(axis: Axes, rows: pl.DataFrame) -> None:
    """Leak by layer of L = 0.4 beside iso and no noise."""
    shown = rows.filter(pl.col("setting").is_in(["no noise", "marvell L=0.4", "iso t=25"]))
    leaks = _leaks(rows)
    width = 0.8 / max(1, shown.height)
    colours = shades(shown["setting"].to_list(), shown["protection"].to_list())
    for place, row in enumerate(shown.iter_rows(named=True)):
        at = [depth + (place - (shown.height - 1) / 2) * width for depth in range(len(leaks))]
        label = f"{row['setting']}: loss {row['end_loss']:.4f}, AUC {row['best_auc']:.3f}"
        if row.get("error") is not None:
            label += f", error {row['error']:.2f}"
        axis.bar(at, [row[leak] - 0.5 for leak in leaks], width, bottom=0.5, color=colours[row["setting"]], label=label)
    names = [f"layer {depth}" for depth in range(1, len(leaks))] + [f"layer {len(leaks)}\n(cut)"]
    axis.set_xticks(range(len(leaks)), names)
    axis.set_ylim(0.48, 1.25)
    axis.set_yticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    axis.grid(axis="x", visible=False)
    axis.legend(fontsize=8, loc="upper left", borderaxespad=0.1)
    axis.set_title("norm leak by layer, over all of training")


def _calibration_bars(axis: Axes, rows: pl.DataFrame) -> None:
    """The calibration error of each setting."""
    colours = shades(rows["setting"].to_list(), rows["protection"].to_list())
    bars = axis.barh(
        range(rows.height), rows["test_ace"], 0.7, color=[colours[name] for name in rows["setting"]]
    )  # fmt: skip
    axis.bar_label(bars, fmt="%.4f", fontsize=7.5, padding=2)
    axis.set_yticks(range(rows.height), rows["setting"].to_list(), fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.24)
    axis.grid(axis="y", visible=False)
    axis.set_title("adaptive calibration error on test rows")
    box = axis.get_position()
    axis.set_position((box.x0 + 0.05, box.y0, box.width - 0.05, box.height))
