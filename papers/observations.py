"""Distributions of the papers' observations after the first hundreds of updates, by class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from papers.kinds import Kind, needs
from papers.sheet import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["observations"]

_TITLES = {
    "gap": "|p − y|",
    "slope": "‖∇h(z)‖",
    "norm": "‖g‖",
    "pairs": "cos(∇h(zₐ), ∇h(z_b))",
    "cosine": "cos(g, g⁺)",
}
_COLOURS = {0: "#1f6fb2", 1: "#d9791a", None: "#555555"}
_NAMES = {0: "y = 0", 1: "y = 1", None: "drawn pairs"}


def observations(quantities: Sequence[str]) -> Kind:
    """A panel for each quantity ("gap", "slope", "norm", "pairs", "cosine"), a ridge for each stop.

    The papers draw histograms, one below the other; ridges of the same histograms fit five stops into one panel.
    """
    return Kind(partial(_numbers, quantities), partial(_draw, quantities))


def _numbers(quantities: Sequence[str], table: pl.DataFrame, data: str) -> pl.DataFrame:
    needs(table, ["step", "quantity", "label", "left", "right", "density", "norm", "cosine"], "a distribution")
    return table.filter(pl.col("quantity").is_in(list(quantities)))


def _draw(quantities: Sequence[str], numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, len(quantities), each=(13.4 / max(3, len(quantities)), 3.2))[0]
    for quantity, axis in zip(quantities, axes, strict=True):
        _ridges(axis, numbers.filter(pl.col("quantity") == quantity))
        axis.set_title(_TITLES[quantity])
    axes[0].set_ylabel("updates")
    for axis in axes[1:]:
        axis.tick_params(labelleft=False)
    handles, labels = axes[0].get_legend_handles_labels()
    for handle, label in zip(*axes[min(3, len(axes) - 1)].get_legend_handles_labels(), strict=True):
        if label not in labels:
            handles.append(handle)
            labels.append(label)
    sheet.legend(handles, labels)


def _ridges(axis: Axes, rows: pl.DataFrame) -> None:
    """One ridge for each stop, the first on top; heights are those of each ridge's own peak. Leaks stand beside it."""
    stops = sorted(rows["step"].unique().to_list())
    for place, stop in enumerate(stops):
        here = rows.filter(pl.col("step") == stop)
        peak = float(here["density"].max() or 1.0)  # type: ignore[arg-type]
        ground = len(stops) - 1 - place
        for (label,), one in here.group_by(["label"], maintain_order=True):
            middle = (one["left"].to_numpy() + one["right"].to_numpy()) / 2
            height = ground + 0.85 * one["density"].to_numpy() / peak
            colour = _COLOURS[label]
            name = _NAMES[label] if place == 0 else None
            axis.fill_between(middle, np.full_like(middle, ground), height, color=colour, alpha=0.35, lw=0, label=name)
            axis.plot(middle, height, color=colour, lw=0.9)
        quantity = here["quantity"][0]
        if quantity in ("norm", "cosine"):
            axis.text(
                0.98 if quantity == "norm" else 0.62, ground + 0.9, f"leak AUC {here[quantity][0]:.3f}", fontsize=7.5,
                ha="right", va="top", transform=axis.get_yaxis_transform(),
            )  # fmt: skip
    axis.set_yticks(range(len(stops)), [str(stop) for stop in reversed(stops)])
    axis.set_ylim(-0.1, len(stops))
    axis.grid(axis="y", visible=False)
    axis.locator_params(axis="x", nbins=5)
