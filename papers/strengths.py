"""What a strength does: leak and cost against the strength itself, an axis that agrees for all data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from papers import anchors
from papers.kinds import Kind, averaged, needs, plain, whole
from papers.sheet import GREY, Sheet, colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["strengths"]

_AXES = {"marvell": "scale", "iso": "t"}


def strengths() -> Kind:
    """Norm leak at the cut, and lost test AUC, against the strengths of Marvell and iso; the authors' data sets too."""
    return Kind(_numbers, _draw)


def _numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    """One row for each setting of ours and for each run of theirs; `lost` is against their own run without noise."""
    needs(table, ["norm@cut q95"], "leak against strength")
    mean = averaged(plain(whole(table)))
    leak = pl.col("norm@cut q95").alias("leak")
    ours = mean.select(pl.lit(data).alias("data"), "protection", "knob", "strength", "test_auc", leak)
    both = pl.concat(
        [ours.with_columns(pl.lit("here").alias("source")),
         anchors.published().with_columns(pl.lit("authors").alias("source"))],
        how="diagonal_relaxed",
    )  # fmt: skip
    none = both.filter(pl.col("protection") == "none").select("source", "data", pl.col("test_auc").alias("without"))
    kept = both.filter(pl.any_horizontal((pl.col("protection") == p) & (pl.col("knob") == k) for p, k in _AXES.items()))
    joined = kept.join(none, on=["source", "data"], how="left", maintain_order="left")
    return joined.with_columns((pl.col("without") - pl.col("test_auc")).alias("lost")).select(
        "source", "data", "protection", "knob", "strength", "leak", "test_auc", "lost"
    )


def _draw(numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, 4, each=(3.0, 2.6))[0]
    panels = [(p, what) for what in ("leak", "lost") for p in _AXES]
    for (protection, what), axis in zip(panels, axes, strict=True):
        for (source, data), rows in numbers.filter(pl.col("protection") == protection).group_by(
            ["source", "data"], maintain_order=True
        ):
            name = f"{protection}, {data}" if source == "here" else f"{data} (authors)"
            _line(axis, rows.sort("strength"), what, protection, name)
        axis.set_xscale("log")
        axis.set_xlabel(f"{protection} {'s' if protection == 'marvell' else 't'}")
        axis.set_title("norm leak AUC at the cut, 95% quantile" if what == "leak" else "lost test AUC")
    for axis in axes[:2]:
        axis.set_ylim(0.48, 1.03)
    low, high = (f(axis.get_ylim()[i] for axis in axes[2:]) for i, f in enumerate((min, max)))
    for axis in axes[2:]:
        axis.set_ylim(low, high)
    named = {
        label: handle for axis in axes[:2] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    sheet.legend(list(named.values()), list(named))


def _line(axis: Axes, rows: pl.DataFrame, what: str, protection: str, label: str) -> None:
    ours = rows["source"][0] == "here"
    mark = {"criteo": "^", "avazu": "v", "isic": "D"}.get(rows["data"][0], "o") if not ours else "o"
    colour = colour_of(protection) if ours else GREY
    axis.plot(
        rows["strength"], rows[what], marker=mark, color=colour, lw=1.8 if ours else 0.8, ms=5 if ours else 3.5,
        alpha=1.0 if ours else 0.7, label=label, zorder=3 if ours else 2,
    )  # fmt: skip
