"""Trade-offs: for each setting what it costs the model and what each attack still reads, one point each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from papers import anchors
from papers.kinds import Kind, averaged, needs, whole
from papers.labels import label_of
from papers.sheet import Sheet, colour_of
from tacit.lab.sweeping.results import leak_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["OURS", "THEIRS", "by_hints", "trade_off"]

THEIRS = (("norm", "cut"), ("cosine", "cut"), ("norm", "layer1"), ("cosine", "layer1"))
"""The leaks that the papers draw: attack and layer."""

OURS = ("residual", "likelihood", "learned", "accumulated")
"""The attacks that the papers did not have."""

_UTILITY = {"least_loss": "train loss", "test_loss": "test loss", "test_auc": "test AUC"}
_LAYER = {"cut": "cut layer", "layer1": "first layer"}
_DASHES = ("-", "--", ":", "-.")


def trade_off(utilities: Sequence[str], leaks: Sequence[tuple[str, str]] = THEIRS) -> Kind:
    """Figures of leak against utility.

    Args:
        utilities: which utilities, a row of panels each: "least_loss", "test_loss", "test_auc".
        leaks: the papers' leaks, a panel each, drawn as the 95% quantile over batches.
    """
    return Kind(partial(_numbers, leaks), partial(_draw, utilities, leaks))


def by_hints() -> Kind:
    """The longer version's figure: leak to the right, utility upwards; norm attack and test AUC, hint attack and both.

    Leaks are means over all batches as they are, not folded: which quantile or mean the figure has is not told. Attacks
    that the paper did not have stand below, against test AUC.
    """
    return Kind(_hint_numbers, _hint_draw)


def _numbers(leaks: Sequence[tuple[str, str]], table: pl.DataFrame, data: str) -> pl.DataFrame:
    """One row for each setting, and below them the authors' published points of the same data set."""
    papers = [leak_column(attack, layer, "q95") for attack, layer in leaks]
    needs(table, papers, "a trade-off")
    mean = averaged(whole(table))
    worst = ["worst"] if "worst" in mean.columns else []
    kept = mean.select(
        pl.lit("here").alias("source"), "setting", "protection", "knob", "strength", "others", *_UTILITY, *papers,
        *_own(mean), *worst,
    )  # fmt: skip
    theirs = anchors.points(data)
    named = theirs.select(
        pl.lit("authors").alias("source"), pl.lit("authors").alias("setting"), "protection", "knob", "strength",
        pl.lit("").alias("others"), "test_auc", pl.col("leak").alias("norm@cut q95"),
    )  # fmt: skip
    return pl.concat([kept, named], how="diagonal_relaxed")


_HINTS = (("norm@cut mean", "test_auc"), ("hint@cut mean", "test_loss"), ("hint@cut mean", "test_auc"))


def _hint_numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    """One row for each setting."""
    leaks = list(dict.fromkeys(leak for leak, _ in _HINTS))
    needs(table, leaks, "a trade-off")
    mean = averaged(whole(table))
    return mean.select(
        pl.lit("here").alias("source"), "setting", "protection", "knob", "strength", "others", "test_loss", "test_auc",
        *leaks, *_own(mean),
    )  # fmt: skip


def _own(mean: pl.DataFrame) -> list[str | pl.Expr]:
    """The attacks that the papers did not have, as far as they were tried; over all visits the worst of them."""
    visits = [name for name in mean.columns if name.startswith("accumulated(") and name.endswith("@cut")]
    own: list[str | pl.Expr] = [leak_column(one) for one in OURS[:-1] if leak_column(one) in mean.columns]
    return own + ([pl.max_horizontal(visits).alias("accumulated@cut")] if visits else [])


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
            axis.set_ylim(0.48, 1.03)
            axis.axhline(0.5, color="#bbbbbb", lw=1, ls="--")
            _points(axis, numbers, utility, leak)
        line[0].set_ylabel("leak AUC, 95% quantile" if block is papers else "leak AUC")
    _legend(sheet, [axis for line in axes for axis in line])


def _legend(sheet: Sheet, axes: Sequence[Axes]) -> None:
    """One for all panels: one may have the authors' points, and another not."""
    named = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    sheet.legend(list(named.values()), list(named))


def _hint_draw(numbers: pl.DataFrame, sheet: Sheet) -> None:
    own = [leak_column(attack) for attack in OURS if leak_column(attack) in numbers.columns]
    blocks = [_HINTS, tuple((leak, "test_auc") for leak in own)] if own else [_HINTS]
    axes = sheet.panels(len(blocks), max(map(len, blocks)), each=(3.4, 2.2))
    for block, line in zip(blocks, axes, strict=True):
        for axis in line[len(block) :]:
            axis.set_axis_off()
        for (leak, utility), axis in zip(block, line, strict=False):
            attack, ours = leak.partition("@")[0], block is not _HINTS
            axis.set_title(f"{attack} leak{', ours' if ours else ''}, and {_UTILITY[utility]}")
            axis.set_xlabel("leak AUC")
            axis.set_ylabel(_UTILITY[utility])
            axis.set_xlim(min(0.48, float(numbers[leak].min() or 0.5) - 0.02), 1.03)  # type: ignore[arg-type]
            axis.axvline(0.5, color="#bbbbbb", lw=1, ls="--")
            _points(axis, numbers, leak, utility)
    _legend(sheet, [axis for line in axes for axis in line])


def _points(axis: Axes, numbers: pl.DataFrame, right: str, up: str) -> None:
    """Each protection's points, joined from mild to strong; the authors' behind them, hollow.

    The same protection with other options is a line of its own, dashed and with white marks.
    """
    seen: list[str] = []
    for (source, protection, others), rows in numbers.sort("source", maintain_order=True).group_by(
        ["source", "protection", "others"], maintain_order=True
    ):
        name = str(protection)
        shown = rows.select(right, up).drop_nulls().drop_nans()
        if not shown.height:
            continue
        x, y = (shown[column].to_numpy() for column in (right, up))
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
