"""Leaks over training: a line for each setting, or for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from tacit.lab.embedding.statements import Statement
from tacit.lab.figures.kinds import Kind, averaged, needs, plain
from tacit.lab.figures.style import Sheet, shades
from tacit.lab.figures.tradeoff import THEIRS
from tacit.lab.sweeping.results import leak_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SCALES", "by_layer", "chosen", "over_training", "over_training_lines"]

SCALES = (0.1, 0.25, 1.0, 4.0)
"""The strengths of Marvell whose trainings the papers follow."""

_LAYER = {"cut": "cut layer", "layer1": "first layer"}
_HIGH, _HELD = 0.9, 0.62  # means that count as a complete leak, and as about a half


def over_training() -> Kind:
    """Norm and cosine leak at the cut and at the first layer, without noise and under Marvell of rising strength."""
    return Kind(_numbers, _said, _draw)


def by_layer() -> Kind:
    """Norm and cosine leak at every layer of the feature party, without noise and under Marvell with s = 4."""
    return Kind(_layer_numbers, _layer_said, _layer_draw)


def chosen(table: pl.DataFrame, settings: Sequence[tuple[str, str | None, float | None]]) -> pl.DataFrame:
    """The rows of some settings, in this order; of one that was run with several other options, all of them."""
    wanted = pl.DataFrame(
        [(*setting, place) for place, setting in enumerate(settings)],
        schema={"protection": pl.String, "knob": pl.String, "strength": pl.Float64, "place": pl.Int64},
        orient="row",
    )
    cast = table.with_columns(pl.col("knob").cast(pl.String), pl.col("strength").cast(pl.Float64))
    joined = cast.join(wanted, on=["protection", "knob", "strength"], nulls_equal=True)
    return joined.sort("place", "step", maintain_order=True).drop("place")


# --- a line for each setting -----------------------------------------------------------------------------------------


def _numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    leaks = [leak_column(*pair) for pair in THEIRS]
    needs(table, leaks, "leak over training")
    settings: list[tuple[str, str | None, float | None]] = [("none", None, None)]
    settings += [("marvell", "scale", scale) for scale in SCALES]
    stretches = chosen(plain(table.filter(pl.col("part") == "stretch")), settings)
    return averaged(stretches, "step").select("setting", "protection", "step", *leaks)


def _said(numbers: pl.DataFrame) -> list[Statement]:
    mean = _means(numbers, [leak_column(*pair) for pair in THEIRS])
    bare, strong = mean.get("no noise"), mean.get(f"marvell s={SCALES[-1]:g}")
    said = []
    if bare:
        said.append(
            Statement(
                "Without protection the label leaks completely, at the cut and at the first layer.",
                all(value >= _HIGH for value in bare.values()),
                f"mean over training: {_spelled(bare)}",
                "the mean takes in the first updates, when the model is not yet less sure about positives",
            )
        )
    if strong:
        said.append(
            Statement(
                "Marvell with s = 4 protects strongly at both layers (leak AUC about a half).",
                all(value <= _HELD for value in strong.values()),
                f"mean over training: {_spelled(strong)}",
                "elsewhere the paper gives a cosine leak of about 0.6 under Marvell",
            )
        )
    falling = [mean[name]["norm@cut"] for name in mean]
    if len(falling) > 2:
        said.append(
            Statement(
                "By varying s the degree of protection is flexible.",
                all(b <= a + 0.01 for a, b in pairwise(falling)),
                "norm leak at the cut " + " → ".join(f"{value:.2f}" for value in falling),
            )
        )
    return said


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
    stretches = chosen(
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


def _layer_said(numbers: pl.DataFrame) -> list[Statement]:
    mean = numbers.group_by("setting", "layer", maintain_order=True).agg(pl.col("norm", "cosine").mean())
    said = []
    for name, claim, holds in (
        ("no noise", "Without protection all layers leak, and all about the same.", partial(_alike, least=_HIGH)),
        ("marvell s=4", "Under Marvell with s = 4 all layers leak little, and all about the same.",
         partial(_alike, most=0.68)),
    ):  # fmt: skip
        rows = mean.filter(pl.col("setting") == name)
        if rows.height:
            told = "; ".join(f"{a} " + ", ".join(f"{x:.2f}" for x in rows[a]) for a in ("norm", "cosine"))
            said.append(Statement(claim, holds(rows), f"mean over training, first layer to cut: {told}"))
    return said


def _alike(rows: pl.DataFrame, *, least: float = 0.0, most: float = 1.0) -> bool:
    """Whether all layers lie in a range and no more than 0.1 apart."""
    values = [rows[attack] for attack in ("norm", "cosine")]
    return all(
        float(one.min()) >= least and float(one.max()) <= most and float(one.max()) - float(one.min()) <= 0.1  # type: ignore[arg-type]
        for one in values
    )


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


def _means(numbers: pl.DataFrame, leaks: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each setting the mean over training of each leak."""
    mean = numbers.group_by("setting", maintain_order=True).agg(pl.col(leaks).mean())
    return {row["setting"]: {leak: float(row[leak]) for leak in leaks} for row in mean.iter_rows(named=True)}


def _spelled(leaks: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in leaks.items())
