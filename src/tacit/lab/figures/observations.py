"""Distributions of the papers' observations after the first hundreds of updates, by class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tacit.lab.embedding.statements import Statement
from tacit.lab.figures.kinds import Kind, needs
from tacit.lab.figures.style import Sheet

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
_NAMES = {0: "y = 0", 1: "y = 1", None: "all pairs"}


def observations(quantities: Sequence[str]) -> Kind:
    """A panel for each quantity ("gap", "slope", "norm", "pairs", "cosine"), a ridge for each stop."""
    return Kind(partial(_numbers, quantities), _said, partial(_draw, quantities))


def _numbers(quantities: Sequence[str], table: pl.DataFrame, data: str) -> pl.DataFrame:
    needs(table, ["step", "quantity", "label", "left", "right", "density", "norm", "cosine"], "a distribution")
    return table.filter(pl.col("quantity").is_in(list(quantities)))


def _mean(numbers: pl.DataFrame, quantity: str, label: int) -> float:
    """The mean over all stops of a quantity in one class."""
    rows = numbers.filter((pl.col("quantity") == quantity) & (pl.col("label") == label))
    weight = rows["density"] * (rows["right"] - rows["left"])
    return float((weight * (rows["left"] + rows["right"]) / 2).sum()) / max(1e-300, float(weight.sum()))


def _said(numbers: pl.DataFrame) -> list[Statement]:
    stops = numbers.select("step", "norm", "cosine").unique(maintain_order=True).sort("step")
    (gap0, gap1), (slope0, slope1) = ([_mean(numbers, q, label) for label in (0, 1)] for q in ("gap", "slope"))
    said = [
        Statement(
            "Observation 1: the model is less sure about positives than about negatives.", gap1 > gap0,
            f"mean |p − y| of positives {gap1:.3f}, of negatives {gap0:.3f}",
        ),
        Statement(
            "Observation 2: the gradient of the top is of the same order for both classes.",
            0.5 < slope1 / max(slope0, 1e-300) < 2,
            f"its mean norm of positives over that of negatives: {slope1 / max(slope0, 1e-300):.2f}",
        ),
        Statement(
            "So the norm of what is sent tells the classes apart, throughout.",
            min(stops["norm"]) > 0.85,
            "norm leak AUC " + ", ".join(f"{value:.3f}" for value in stops["norm"])
            + f" after {', '.join(str(step) for step in stops['step'])} updates",
        ),
    ]  # fmt: skip
    pairs = numbers.filter(pl.col("quantity") == "pairs")
    if pairs.height:
        weight = pairs["density"] * (pairs["right"] - pairs["left"])
        acute = float(weight.filter(pairs["left"] >= 0).sum()) / pairs["step"].n_unique()
        said.append(
            Statement(
                "Observations 3 and 4: gradients of the top form acute angles, so directions leak completely.",
                acute > 0.95 and min(stops["cosine"]) > 0.97,
                f"{acute:.1%} of pairs; cosine leak AUC " + ", ".join(f"{value:.3f}" for value in stops["cosine"]),
            )
        )
    return said


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
    """One ridge for each stop, the first on top; heights are those of each ridge's own peak."""
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
    axis.set_yticks(range(len(stops)), [str(stop) for stop in reversed(stops)])
    axis.set_ylim(-0.1, len(stops))
    axis.grid(axis="y", visible=False)
    axis.locator_params(axis="x", nbins=5)
