"""Trade-offs: for each setting what it costs the model and what each attack still reads, one point each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tacit.lab.embedding.statements import Statement
from tacit.lab.figures import anchors
from tacit.lab.figures.kinds import Kind, averaged, needs, whole
from tacit.lab.figures.style import Sheet, colour_of, label_of
from tacit.lab.sweeping.results import leak_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["OURS", "THEIRS", "curve", "trade_off"]

THEIRS = (("norm", "cut"), ("cosine", "cut"), ("norm", "layer1"), ("cosine", "layer1"))
"""The leaks that the papers draw: attack and layer."""

OURS = ("residual", "likelihood", "learned", "accumulated")
"""The attacks that the papers did not have."""

_UTILITY = {"least_loss": "train loss", "test_loss": "test loss", "test_auc": "test AUC"}
_LAYER = {"cut": "cut layer", "layer1": "first layer"}
_DASHES = ("-", "--", ":", "-.")
_NEAR = 0.01  # leaks that differ by less than this do not differ
_ALMOST = 0.8  # a share of comparisons that counts as "almost always"


def trade_off(utilities: Sequence[str], leaks: Sequence[tuple[str, str]] = THEIRS, *, rival: str = "marvell") -> Kind:
    """Figures of leak against utility.

    Args:
        utilities: which utilities, a row of panels each: "least_loss", "test_loss", "test_auc".
        leaks: the papers' leaks, a panel each, drawn as the 95% quantile over batches.
        rival: the protection that the paper holds against iso.
    """
    return Kind(partial(_numbers, leaks), partial(_said, utilities, leaks, rival), partial(_draw, utilities, leaks))


def curve(points: pl.DataFrame, utility: str, leak: str) -> tuple[np.ndarray, np.ndarray]:
    """A protection's points in the order of their utility, to be joined by lines."""
    shown = points.select(utility, leak).drop_nulls().drop_nans().sort(utility)
    return shown[utility].to_numpy(), shown[leak].to_numpy()


def _numbers(leaks: Sequence[tuple[str, str]], table: pl.DataFrame, data: str) -> pl.DataFrame:
    """One row for each setting, and below them the authors' published points of the same data set."""
    papers = [leak_column(attack, layer, "q95") for attack, layer in leaks]
    needs(table, papers, "a trade-off")
    mean = averaged(whole(table))
    visits = [name for name in mean.columns if name.startswith("accumulated(") and name.endswith("@cut")]
    own = [leak_column(attack) for attack in OURS[:-1] if leak_column(attack) in mean.columns]
    together = [pl.max_horizontal(visits).alias("accumulated@cut")] if visits else []
    worst = ["worst"] if "worst" in mean.columns else []
    kept = mean.select(
        pl.lit("here").alias("source"), "setting", "protection", "knob", "strength", "others", *_UTILITY, *papers,
        *own, *together, *worst,
    )  # fmt: skip
    theirs = anchors.points(data)
    named = theirs.select(
        pl.lit("authors").alias("source"), pl.lit("authors").alias("setting"), "protection", "knob", "strength",
        pl.lit("").alias("others"), "test_auc", pl.col("leak").alias("norm@cut q95"),
    )  # fmt: skip
    return pl.concat([kept, named], how="diagonal_relaxed")


# --- what the papers say ---------------------------------------------------------------------------------------------


def _said(
    utilities: Sequence[str], leaks: Sequence[tuple[str, str]], rival: str, numbers: pl.DataFrame
) -> list[Statement]:
    here = numbers.filter(pl.col("source") == "here")
    panels = [(utility, leak_column(attack, layer, "q95")) for utility in utilities for attack, layer in leaks]
    papers = here.filter(pl.col("others") == "")  # the papers know no options beside a strength
    found = {panel: _beaten(papers, rival, *panel) for panel in panels}
    won, all_ = sum(a for a, _ in found.values()), sum(b for _, b in found.values())
    by = "; ".join(f"{leak[:-4]} by {_UTILITY[utility]} {a} of {b}" for (utility, leak), (a, b) in found.items() if b)
    statements = [
        Statement(
            f"{rival} almost always has a better trade-off than iso.",
            None if all_ == 0 else won >= _ALMOST * all_,
            f"it leaks no more than iso at the same utility in {won} of {all_} comparisons ({by})",
            "a point counts as lost where it leaks 0.01 more; data and length of training are not the paper's",
        )
    ]
    return [*statements, *_on_heuristic(papers, leaks), *_on_ours(here)]


def _beaten(here: pl.DataFrame, rival: str, utility: str, leak: str) -> tuple[int, int]:
    """At how many of iso's points the rival leaks no more, out of how many; both curves begin without noise."""
    iso = here.filter(pl.col("protection") == "iso")
    own = here.filter(pl.col("protection").is_in([rival, "none"]))
    x, y = curve(own, utility, leak)
    if len(x) < 2 or not iso.height:
        return 0, 0
    theirs_x, theirs_y = curve(iso, utility, leak)
    return int((np.interp(theirs_x, x, y) <= theirs_y + _NEAR).sum()), len(theirs_x)


def _on_heuristic(here: pl.DataFrame, leaks: Sequence[tuple[str, str]]) -> list[Statement]:
    """max_norm against the attack that it is made for and against the paper's other one."""
    heuristic = here.filter(pl.col("protection") == "max_norm")
    none = here.filter(pl.col("protection") == "none")
    if not heuristic.height or not none.height:
        return []
    at_cut = [leak_column(attack, layer, "q95") for attack, layer in leaks if layer == "cut"]
    before, after = ({leak: float(rows[leak][0]) for leak in at_cut} for rows in (none, heuristic))
    lowered = all(after[leak] < before[leak] - 0.05 for leak in at_cut)
    told = ", ".join(f"{leak[:-8]} {before[leak]:.2f} → {after[leak]:.2f}" for leak in at_cut)
    return [
        Statement(
            "max_norm works well against the paper's attacks, and cannot be tuned.", lowered,
            f"at the cut, from no noise to max_norm: {told}; test AUC "
            f"{none['test_auc'][0]:.3f} → {heuristic['test_auc'][0]:.3f}",
        )
    ]  # fmt: skip


def _on_ours(here: pl.DataFrame) -> list[Statement]:
    """What the attacks that the papers did not have make of each protection's strongest setting."""
    own = [leak_column(attack) for attack in OURS if leak_column(attack) in here.columns]
    if not own:
        return []
    told = []
    for protection in ("none", "iso", "max_norm", "marvell", "matched"):
        rows = here.filter(pl.col("protection") == protection).drop_nulls("norm@cut q95")
        if not rows.height:
            continue
        strongest = rows.sort("norm@cut q95")[0]
        leaks = ", ".join(f"{leak[:-4]} {float(strongest[leak][0]):.2f}" for leak in own if strongest[leak][0])
        told.append(f"{strongest['setting'][0]} (test AUC {strongest['test_auc'][0]:.3f}): {leaks or 'not tried'}")
    return [Statement("What later attacks read where the norm attack reads least:", None, "; ".join(told))]


# --- the picture -----------------------------------------------------------------------------------------------------


def _draw(utilities: Sequence[str], leaks: Sequence[tuple[str, str]], numbers: pl.DataFrame, sheet: Sheet) -> None:
    own = [leak_column(attack) for attack in OURS if leak_column(attack) in numbers.columns]
    papers = {
        leak_column(attack, layer, "q95"): f"{attack} leak, {_LAYER.get(layer, layer)}" for attack, layer in leaks
    }
    blocks: list[Mapping[str, str]] = [papers, {leak: f"{leak[:-4]} leak, ours" for leak in own}]
    rows = [(utility, block) for utility in utilities for block in blocks if block]
    axes = sheet.panels(len(rows), max(len(block) for _, block in rows), each=(3.0, 2.1))
    for (utility, block), line in zip(rows, axes, strict=True):
        for axis in line[len(block) :]:
            axis.set_axis_off()
        for (leak, title), axis in zip(block.items(), line, strict=False):
            axis.set_title(title)
            axis.set_xlabel(_UTILITY[utility])
            _points(axis, numbers, utility, leak)
        line[0].set_ylabel("leak AUC, 95% quantile" if block is papers else "leak AUC")
    handles, labels = axes[0][0].get_legend_handles_labels()
    for axis in (one for line in axes for one in line):  # a panel may have the authors' points, and another not
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    sheet.legend(handles, labels)


def _points(axis: Axes, numbers: pl.DataFrame, utility: str, leak: str) -> None:
    """Each protection's points, joined from mild to strong; the authors' behind them, hollow.

    The same protection with other options is a line of its own, dashed and with white marks.
    """
    axis.set_ylim(0.48, 1.03)
    axis.axhline(0.5, color="#bbbbbb", lw=1, ls="--")
    seen: list[str] = []
    for (source, protection, others), rows in numbers.sort("source", maintain_order=True).group_by(
        ["source", "protection", "others"], maintain_order=True
    ):
        name = str(protection)
        shown = rows.select(utility, leak).drop_nulls().drop_nans()
        if not shown.height:
            continue
        x, y = (shown[column].to_numpy() for column in (utility, leak))
        label = label_of(name, None, None, str(others))
        if source == "authors":
            axis.plot(x, y, "o", ms=4.5, mfc="none", mec=colour_of(name), alpha=0.5, label=f"{label} (authors)")
            continue
        mark = {"none": "s", "max_norm": "*"}.get(name, "o")
        line = _DASHES[seen.count(name) % len(_DASHES)] if len(x) > 1 else ""
        seen.append(name)
        axis.plot(
            x, y, marker=mark, ls=line, lw=1.1, ms=9 if mark == "*" else 5, color=colour_of(name), label=label,
            mfc=colour_of(name) if seen.count(name) == 1 else "white", zorder=3,
        )  # fmt: skip
    axis.margins(x=0.06)
    axis.locator_params(axis="x", nbins=5)
