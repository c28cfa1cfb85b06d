"""Leaks over training, batch by batch and unfolded: a line for each setting, or for each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from scipy.ndimage import gaussian_filter1d

from papers.kinds import Kind, averaged, needs, of_pictures, plain
from papers.labels import Triple, of_settings
from papers.sheet import Sheet, shades
from papers.tradeoff import THEIRS
from tacit.lab.sweeping.results import leak_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SCALES", "by_layer", "over_training", "over_training_lines"]

SCALES = (0.1, 0.25, 1.0, 4.0)
"""The strengths of Marvell whose trainings the papers follow."""

TABLES, PICTURES = 100.0, 5.0
"""Standard deviations, in updates, of the filter through which the papers draw leaks by layer."""

UPDATES = 200
"""The filter is no wider than the whole training over this, about as the papers' is of 20,140 updates."""

_LAYER = {"cut": "cut layer", "layer1": "first layer"}


def over_training() -> Kind:
    """Norm and cosine leak at the cut and at the first layer, without noise and under Marvell of rising strength."""
    return Kind(_numbers, _draw)


def by_layer() -> Kind:
    """Norm and cosine leak at every layer of the feature party, without noise and under Marvell with s = 4."""
    return Kind(_layer_numbers, _layer_draw)


# --- a line for each setting -----------------------------------------------------------------------------------------


def _numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    leaks = [leak_column(*pair) for pair in THEIRS]
    needs(table, leaks, "leak over training")
    settings: list[Triple] = [("none", None, None)]
    settings += [("marvell", "scale", scale) for scale in SCALES]
    return averaged(of_settings(plain(followed(table)), settings), "step").select(
        "setting", "protection", "step", *leaks
    )


def followed(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of every batch; of results that have none, as those of an ordinary sweep, the rows of stretches."""
    batches = table.filter(pl.col("part") == "batch")
    return batches if batches.height else table.filter(pl.col("part") == "stretch")


def _draw(numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, 4, each=(3.0, 2.5), sharex=True)[0]
    for (attack, layer), axis in zip(THEIRS, axes, strict=True):
        over_training_lines(axis, numbers, leak_column(attack, layer))
        axis.set_title(f"{attack} leak, {_LAYER[layer]}")
    axes[0].set_ylabel("leak AUC")
    sheet.legend(*axes[0].get_legend_handles_labels())


def over_training_lines(axis: Axes, numbers: pl.DataFrame, leak: str) -> None:
    """One line for each setting over the updates."""
    settings = numbers.select("setting", "protection").unique(maintain_order=True)
    colours = shades(settings["setting"].to_list(), settings["protection"].to_list())
    axis.axhline(0.5, color="#bbbbbb", lw=1, ls="--")
    for name in settings["setting"]:
        rows = numbers.filter(pl.col("setting") == name)
        axis.plot(rows["step"], rows[leak], color=colours[name], lw=_width(rows), label=name, **_mark(rows))
    lowest = float(numbers[leak].min() or 0.5)  # type: ignore[arg-type]
    axis.set_ylim(min(0.48, lowest - 0.02), 1.03)
    axis.set_xlabel("updates")


# --- a line for each layer -------------------------------------------------------------------------------------------


def _layer_numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    """One row for each setting, layer and batch, as measured and smoothed as the papers smooth it.

    Layers are counted from the inputs, each after its ReLU. Of tables the last one is the cut; of pictures the cut is
    behind the pool that follows the last one, and has no number of a layer.
    """
    layers = _layers(table)
    pictures = of_pictures(data)
    mean = averaged(
        of_settings(plain(followed(table)), [("none", None, None), ("marvell", "scale", SCALES[-1])]), "step"
    )
    parts = [
        mean.select(
            "setting", "protection", "step", pl.lit(place).alias("layer"), pl.lit(layer).alias("name"),
            pl.lit(label).alias("label"),
            *(pl.col(leak_column(attack, layer)).alias(attack) for attack in ("norm", "cosine")),
        )
        for place, (layer, label) in enumerate(zip(layers, _spelled(len(layers), pictures), strict=True), start=1)
    ]  # fmt: skip
    sigma = PICTURES if pictures else TABLES
    return pl.concat(
        part.with_columns(
            pl.col(attack).map_batches(lambda x: _smoothed(x, sigma)).over("setting").alias(f"{attack} smoothed")
            for attack in ("norm", "cosine")
        )
        for part in parts
    )


def _smoothed(values: pl.Series, sigma: float) -> pl.Series:
    """One setting's leak AUCs through the papers' Gaussian filter, which is narrower where there are few updates."""
    known = values.cast(pl.Float64).interpolate().forward_fill().backward_fill().to_numpy()
    return pl.Series(gaussian_filter1d(known, min(sigma, len(known) / UPDATES)), dtype=pl.Float64)


def _spelled(count: int, pictures: bool) -> list[str]:
    """How so many layers are called, the cut last.

    >>> _spelled(3, False), _spelled(3, True)
    (['layer 1 (first)', 'layer 2', 'layer 3 (cut)'], ['layer 1 (first)', 'layer 2', 'cut, behind its pool'])
    """
    names = ["layer 1 (first)", *(f"layer {depth}" for depth in range(2, count + 1))]
    return [*names[: count - 1], "cut, behind its pool" if pictures else f"layer {count} (cut)"]


def _layers(table: pl.DataFrame) -> list[str]:
    """The watched layers by depth, the cut last."""
    depths = sorted(
        int(name.removeprefix("norm@layer"))
        for name in table.columns
        if name.startswith("norm@layer") and name.removeprefix("norm@layer").isdigit()
    )
    names = [*(f"layer{depth}" for depth in depths), "cut"]
    needs(table, [leak_column(attack, name) for attack in ("norm", "cosine") for name in names], "leak by layer")
    return names


def _layer_draw(numbers: pl.DataFrame, sheet: Sheet) -> None:
    from matplotlib import colormaps

    settings = numbers["setting"].unique(maintain_order=True).to_list()
    axes = sheet.panels(1, 2 * len(settings), each=(3.0, 2.5), sharex=True)[0]
    panels = [(setting, attack) for setting in settings for attack in ("norm", "cosine")]
    deepest = int(numbers["layer"].max())  # type: ignore[arg-type]
    for (setting, attack), axis in zip(panels, axes, strict=True):
        for (layer,), rows in numbers.filter(pl.col("setting") == setting).group_by(["layer"], maintain_order=True):
            depth, name = int(str(layer)), rows["label"][0]
            colour = colormaps["viridis"](0.05 + 0.85 * (depth - 1) / max(1, deepest - 1))
            axis.plot(rows["step"], rows[f"{attack} smoothed"], color=colour, lw=1.3, label=name, **_mark(rows))
        axis.set_title(f"{attack} leak, {setting}")
        axis.set_xlabel("updates")
        middle = 0.5 * sum(axis.get_ylim())
        low, high = axis.get_ylim()
        if high - low < 0.06:
            axis.set_ylim(middle - 0.03, middle + 0.03)
    axes[0].set_ylabel("leak AUC")
    sheet.legend(*axes[0].get_legend_handles_labels())


def _width(rows: pl.DataFrame) -> float:
    """Thinner where every batch is drawn."""
    return 1.4 if rows.height < 100 else 0.7


def _mark(rows: pl.DataFrame) -> dict[str, Any]:
    """A dot where there is no line to see."""
    return {"marker": "o", "ms": 4} if rows.height < 3 else {}
