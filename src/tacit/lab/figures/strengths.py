"""What a strength does: leak and cost against the strength itself, an axis that agrees for all data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tacit.lab.embedding.statements import Statement
from tacit.lab.figures import anchors
from tacit.lab.figures.kinds import Kind, averaged, needs, plain, whole
from tacit.lab.figures.style import GREY, Sheet, colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["strengths"]

_AXES = {"marvell": "scale", "iso": "t"}
_TOLERANCE = 0.02  # how far a mean over the authors' range may lie outside it


def strengths() -> Kind:
    """Norm leak at the cut, and lost test AUC, against the strengths of Marvell and iso; the authors' data sets too."""
    return Kind(_numbers, _said, _draw)


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


def _said(numbers: pl.DataFrame) -> list[Statement]:
    """Whether all our leaks lie where the authors' three data sets have theirs; one strength outside is a difference.

    No share of them would do: at the ends of the axis all data sets leak alike, so that most strengths agree whatever
    happens in the middle.
    """
    said = []
    for protection, knob in _AXES.items():
        ours = numbers.filter((pl.col("source") == "here") & (pl.col("protection") == protection)).sort("strength")
        inside, told = [], []
        for strength, leak in ours.select("strength", "leak").iter_rows():
            theirs = _at(numbers, protection, strength)
            if not theirs:
                continue
            inside.append(min(theirs) - _TOLERANCE <= leak <= max(theirs) + _TOLERANCE)
            told.append(f"{strength:g}: {leak:.2f} (authors {min(theirs):.2f} to {max(theirs):.2f})")
        if told:
            said.append(
                Statement(
                    f"A strength of {protection} leaves the norm leak of the authors' runs on their three data sets.",
                    all(inside),
                    f"{sum(inside)} of {len(inside)} strengths lie in their range, give or take {_TOLERANCE:g}: "
                    f"{knob} = " + ", ".join(told),
                    "the quantile of a fold is larger in smaller batches, and their trainings are longer",
                )
            )
    return said


def _at(numbers: pl.DataFrame, protection: str, strength: float) -> list[float]:
    """The authors' leaks at this strength, between their neighbouring ones; of data sets where they went as far."""
    found = []
    theirs = numbers.filter((pl.col("source") == "authors") & (pl.col("protection") == protection)).sort("strength")
    for _, rows in theirs.group_by("data", maintain_order=True):
        tried = rows["strength"].to_numpy()
        if tried[0] <= strength <= tried[-1]:
            found.append(float(np.interp(np.log(strength), np.log(tried), rows["leak"].to_numpy())))
    return found


def _draw(numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, 4, each=(3.0, 2.6))[0]
    panels = [(p, what) for what in ("leak", "lost") for p in _AXES]
    for (protection, what), axis in zip(panels, axes, strict=True):
        for (source, data), rows in numbers.filter(pl.col("protection") == protection).group_by(
            ["source", "data"], maintain_order=True
        ):
            _line(axis, rows.sort("strength"), what, protection, f"{data} ({source})")
        axis.set_xscale("log")
        axis.set_xlabel(f"{protection} {'s' if protection == 'marvell' else 't'}")
        axis.set_title("norm leak AUC at the cut, 95% quantile" if what == "leak" else "lost test AUC")
    for axis in axes[:2]:
        axis.set_ylim(0.48, 1.03)
    low, high = (f(axis.get_ylim()[i] for axis in axes[2:]) for i, f in enumerate((min, max)))
    for axis in axes[2:]:
        axis.set_ylim(low, high)
    sheet.legend(*axes[0].get_legend_handles_labels())


def _line(axis: Axes, rows: pl.DataFrame, what: str, protection: str, label: str) -> None:
    ours = rows["source"][0] == "here"
    mark = {"criteo": "^", "avazu": "v", "isic": "D"}.get(rows["data"][0], "o") if not ours else "o"
    colour = colour_of(protection) if ours else GREY
    axis.plot(
        rows["strength"], rows[what], marker=mark, color=colour, lw=1.8 if ours else 0.8, ms=5 if ours else 3.5,
        alpha=1.0 if ours else 0.7, label=label, zorder=3 if ours else 2,
    )  # fmt: skip
