"""Top-p% labelling: whoever knows the share of positives calls that many of the longest gradients positive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
import torch
from torch import Tensor

from papers.kinds import Kind, averaged, needs
from papers.sheet import Sheet, shades
from tacit.audit.attacks.top_share import largest
from tacit.audit.metrics.detection_error import detection_error
from tacit.lab.data.rows import Rows
from tacit.lab.stack.network import Network
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.settings import Setting
from tacit.progress import Count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["label_rows", "labelling"]

LAST = 32  # batches that are labelled


def label_rows(
    rows: Rows,
    network: Network,
    settings: Sequence[Setting],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float = 1e-3,
    device: str = "cpu",
    progress: Count = lambda done, total: None,
) -> pl.DataFrame:
    """Train, and label the last batches of each replica by the norm of what was received.

    Returns:
        One row for each replica: its setting, the share of positives, precision, recall and the detection error of the
        labelling (means over batches).
    """
    stack = Stack(
        rows, network, settings, batch_size=batch_size, learning_rate=learning_rate, device=device, attacks=("norm",),
        layers=("cut",), last=LAST,
    )  # fmt: skip
    plans = [stack.plan(epoch) for epoch in range(epochs)]
    stack.advance(torch.cat(plans, dim=1), lambda done: progress(done, sum(plan.shape[1] for plan in plans)))
    labels, found = rows.labels.cpu(), []
    share = float(labels.double().mean())
    for place, setting in enumerate(stack.settings):
        view = stack.transcript(place).batches().view
        norms = view.gradient.flatten(2).double().norm(dim=-1)  # (steps, batch)
        called, truth = largest(norms, share), labels[view.rows]
        precision, recall = (x.nanmean() for x in precision_recall(called, truth))
        error = detection_error(called.double(), truth).nanmean()
        found.append(
            {"replica": place, "protection": setting.protection, "knob": setting.knob, "strength": setting.strength,
             "options": setting.options_json, "seed": setting.seed, "share": share, "precision": float(precision),
             "recall": float(recall), "error": float(error)}
        )  # fmt: skip
    schema = {"knob": pl.String, "strength": pl.Float64}
    return pl.DataFrame(found, schema_overrides=schema)


def precision_recall(called: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Precision and recall of calling some rows of each batch positive; recall is NaN where none is."""
    positive = label == 1
    hits = (called & positive).sum(-1).double()
    return hits / called.sum(-1), hits / positive.sum(-1)


def labelling() -> Kind:
    """Precision and recall of top-p% labelling for each setting."""
    return Kind(_numbers, _draw)


def _numbers(table: pl.DataFrame, data: str) -> pl.DataFrame:
    figures = ["share", "precision", "recall", "error"]
    needs(table, figures, "top-p% labelling")
    return averaged(table).select("setting", "protection", *figures)


def _draw(numbers: pl.DataFrame, sheet: Sheet) -> None:
    axes = sheet.panels(1, 3, each=(3.6, 0.6 + 0.28 * numbers.height), left=1.65, sharey=True)[0]
    share = numbers["share"][0]
    for axis, (column, title, guess) in zip(
        axes,
        (("precision", "precision", share), ("recall", "recall", share), ("error", "detection error", 0.5)),
        strict=True,
    ):
        _bars(axis, numbers, column, guess)
        axis.set_title(f"{title}, longest called positive")
    axes[0].set_yticks(range(numbers.height), numbers["setting"].to_list())
    axes[0].set_ylim(numbers.height - 0.5, -0.5)
    sheet.legend(*axes[0].get_legend_handles_labels())


def _bars(axis: Axes, numbers: pl.DataFrame, column: str, guess: float) -> None:
    colours = shades(numbers["setting"].to_list(), numbers["protection"].to_list())
    bars = axis.barh(range(numbers.height), numbers[column], 0.7, color=[colours[name] for name in numbers["setting"]])
    axis.axvline(guess, color="#888888", lw=1.2, ls="--", label="as many called positive by a coin")
    axis.bar_label(bars, fmt="%.2f", fontsize=8, padding=3, bbox={"fc": "white", "ec": "none", "pad": 0.8})
    axis.set_xlim(0, 1.08)
    axis.grid(axis="y", visible=False)
