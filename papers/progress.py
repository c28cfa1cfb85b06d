"""Leaks over training: a line for each setting, or for each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from papers.kinds import Kind, averaged, needs, plain
from papers.labels import Triple, of_settings
from papers.sheet import Sheet, shades
from papers.tradeoff import THEIRS
from tacit.lab.sweeping.results import leak_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SCALES", "by_layer", "over_training", "over_training_lines"]

SCALES = (0.1, 0.25, 1.0, 4.0)
"""The strengths of Marvell whose trainings the papers follow."""

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
    stretches = of_settings(plain(table.filter(pl.col("part") == "stretch")), settings)
    return averaged(stretches, "step").select("setting", "protection", "step", *leaks)


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
        axis.plot(rows["step"], rows[leak], color=colours[name], lw=1.4, label=name, **_mark(rows))
    axis.set_ylim(0.48, 1.03)
    axis.set_xlabel("updates")


# --- a line for each layer -------------------------------------------------------------------------------------------


def _layer_numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    """One row for each setting, layer and stretch; layers are counted from the inputs, the cut is the last."""
    layers = _layers(table)
    stretches = of_settings(
        plain(table.filter(pl.col("part") == "stretch")), [("none", None, None), ("marvell", "scale", SCALES[-1])]
    )
    mean = averaged(stretches, "step")
    parts = [
        mean.select(
            "setting", "protection", "step", pl.lit(place).alias("layer"), pl.lit(layer).alias("name"),
            *(pl.col(leak_column(attack, layer)).alias(attack) for attack in ("norm", "cosine")),
        )
        for place, layer in enumerate(layers, start=1)
    ]  # fmt: skip
    return pl.concat(parts)


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
            depth = int(str(layer))
            name = {1: "layer 1 (first)", deepest: f"layer {deepest} (cut)"}.get(depth, f"layer {depth}")
            colour = colormaps["viridis"](0.05 + 0.85 * (depth - 1) / max(1, deepest - 1))
            axis.plot(rows["step"], rows[attack], color=colour, lw=1.3, label=name, **_mark(rows))
        axis.set_title(f"{attack} leak, {setting}")
        axis.set_xlabel("updates")
        middle = 0.5 * sum(axis.get_ylim())
        low, high = axis.get_ylim()
        if high - low < 0.06:
            axis.set_ylim(middle - 0.03, middle + 0.03)
    axes[0].set_ylabel("leak AUC")
    sheet.legend(*axes[0].get_legend_handles_labels())


def _mark(rows: pl.DataFrame) -> dict[str, Any]:
    """A dot where there is no line to see."""
    return {"marker": "o", "ms": 4} if rows.height < 3 else {}
