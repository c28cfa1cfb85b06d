"""Balanced classes: the papers' toy example of them, and the hint attack on as many positive as negative rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import torch
from torch import nn
from torch.nn import functional

from papers.progress import followed
from papers.recipes import RECIPES, Asked, Recipe, results
from papers.sheet import Sheet, colour_of
from tacit.audit.metrics.leak_auc import auc
from tacit.lab.data.rows import Data, Rows
from tacit.progress import Progress

__all__ = ["ROWS", "UPDATES", "by_batch", "draw_hints", "draw_toy", "figures_of", "halved", "hints", "recipe", "toy"]

ROWS, UPDATES = 5_000, 2_000
"""Rows of the toy example, and updates on all of them."""

_BELOW = 0.1  # the share of the negative rows that lie among the positive ones
_WIDTH = 16


def toy(*, rows: int = ROWS, updates: int = UPDATES, seed: int = 0) -> pl.DataFrame:
    """A classifier fitted to the toy example of Li 2022, appendix A.2, and what its gradients tell.

    Positive rows lie evenly between 0 and 1; a tenth of the negative ones do too, the others between 1 and 2. No
    classifier knows better than 10/11 that a row below 1 is positive.

    Returns:
        For each row x, label, its probability of being positive, and the norm of its gradient at a cut behind the first
        layer.
    """
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.arange(rows) % 2).float()
    above = (labels == 0) & (torch.rand(rows, generator=draw) >= _BELOW)
    x = (torch.rand(rows, generator=draw) + above)[:, None]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bottom = nn.Sequential(nn.Linear(1, _WIDTH), nn.ReLU())
        top = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))
    model = nn.Sequential(bottom, top)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for _ in range(updates):
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(model(x)[:, 0], labels).backward()
        optimizer.step()
        rate.step()
    cut = bottom(x).detach().requires_grad_()
    logits = top(cut)[:, 0]
    loss = functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, cut)
    columns = {"x": x[:, 0], "label": labels, "probability": logits.detach().sigmoid(), "norm": gradient.norm(dim=1)}
    return pl.DataFrame({name: values.double().numpy() for name, values in columns.items()})


def figures_of(found: pl.DataFrame) -> dict[str, float]:
    """The mean confidence gap of positive rows, the median gap of negative ones, and the norm leak AUC."""
    gap = found.with_columns((pl.col("probability") - pl.col("label")).abs().alias("gap"))
    positive, negative = (gap.filter(pl.col("label") == label)["gap"] for label in (1, 0))
    area = auc(found["norm"].to_torch(), found["label"].to_torch())
    return {
        "positive": float(positive.mean()),  # type: ignore[arg-type]
        "negative": float(negative.median()),  # type: ignore[arg-type]
        "norm": float(area),
    }


def halved(data: Data, *, seed: int = 0) -> Data:
    """The same with as many positive as negative rows: of the class that has more, some are drawn."""
    draw = torch.Generator().manual_seed(seed)
    return replace(data, name=f"{data.name}, balanced", train=_half(data.train, draw), test=_half(data.test, draw))


def _half(rows: Rows, draw: torch.Generator) -> Rows:
    each = [(rows.labels == label).nonzero().squeeze(1) for label in (0, 1)]
    count = min(map(len, each))
    kept = torch.cat([one[torch.randperm(len(one), generator=draw)[:count]] for one in each])
    return rows[kept.sort().values]


# --- as figures ------------------------------------------------------------------------------------------------------


def recipe() -> Recipe:
    """The trainings with hints, without protection."""
    return replace(RECIPES["hints"], name="balanced", triples=lambda *_: [("none", None, None)], thorough=False)


def hints(asked: Asked, out: Path, progress: Progress = lambda *_: None) -> pl.DataFrame:
    """Train on as many positive as negative rows, and see what each attack reads of every batch."""
    return by_batch(results(recipe(), replace(asked, data=halved(asked.data)), out, progress))


def by_batch(table: pl.DataFrame) -> pl.DataFrame:
    """The leak AUC of each attack in every batch, means over seeds."""
    attacks = [name for name in table.columns if name.endswith("@cut")]
    return followed(table).group_by("step", maintain_order=True).agg(pl.col(attacks).mean()).sort("step")


def draw_hints(numbers: pl.DataFrame, sheet: Sheet) -> None:
    """A line for each attack over training."""
    axis = sheet.panels(1, 1, each=(7.2, 2.9))[0][0]
    for attack, line in (("norm", "-"), ("cosine", "-"), ("hint", "--")):  # the last two may be one
        known = numbers.select("step", f"{attack}@cut").drop_nulls()
        marker = "o" if known.height < 20 else ""
        axis.plot(known["step"], known[f"{attack}@cut"], lw=1.4, ls=line, marker=marker, label=attack)
    axis.set_ylim(min(0.48, axis.get_ylim()[0]), 1.03)
    axis.axhline(0.5, color="#bbbbbb", lw=1, ls="--")
    axis.set_xlabel("updates")
    axis.set_ylabel("leak AUC")
    sheet.legend(*axis.get_legend_handles_labels())


def draw_toy(found: pl.DataFrame, sheet: Sheet) -> None:
    """What the classifier says beside what the best one says, and the norms of what is sent, by class."""
    says, sends = sheet.panels(1, 2, each=(4.6, 2.9))[0]
    rows = found.sort("x")
    says.plot(rows["x"], rows["probability"], color=colour_of("marvell"), label="fitted")
    says.plot(
        [0, 1, 1, 2], [10 / 11, 10 / 11, 0, 0], color="#888888", ls="--", lw=1.2, label="the best one: 10/11 and 0"
    )
    says.set_xlabel("x")
    says.set_title("probability of being positive")
    for label, colour in ((0, "#1f6fb2"), (1, "#d9791a")):
        own = found.filter(pl.col("label") == label)["norm"]
        sends.hist(own, bins=40, histtype="stepfilled", alpha=0.5, color=colour, label=f"y = {label}")
    sends.set_yscale("log")
    sends.set_title(f"‖g‖, rows by class: leak AUC {figures_of(found)['norm']:.3f}")
    handles, labels = (
        a + b for a, b in zip(says.get_legend_handles_labels(), sends.get_legend_handles_labels(), strict=True)
    )
    sheet.legend(handles, labels)
