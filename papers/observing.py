"""What the papers' observations 1 to 4 look at: confidence gaps, gradients of the top, and what is sent, by class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
import torch
from torch import Tensor
from torch.nn import functional

from tacit.audit.metrics.leak_auc import auc
from tacit.lab.data.rows import Rows
from tacit.lab.stack.network import Network
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.settings import Setting
from tacit.progress import Count

__all__ = ["observe", "quantities"]

BINS = 40
LOOKED_AT = 4096  # rows at each look
PAIRS = 4096  # pairs of rows whose directions are compared
ROWS = 256  # that the bottom is given at once: of pictures no more fit


def observe(
    rows: Rows,
    network: Network,
    *,
    steps: Sequence[int],
    batch_size: int,
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: str = "cpu",
    progress: Count = lambda done, total: None,
) -> pl.DataFrame:
    """Train without protection, stop after so many updates each, and count how the quantities lie.

    Returns:
        One row for each stop, quantity, class and bin: step, quantity, label (null for pairs), left, right, density,
        and the figures of that stop: the norm and cosine leak AUC, the AUCs of gap and slope, the ratio of the median
        slopes of positive and negative rows, and the share of the drawn pairs whose angle is acute.
    """
    stack = Stack(
        rows, network, [Setting("none", seed=seed)], batch_size=batch_size, learning_rate=learning_rate, device=device,
        attacks=("norm",), layers=("cut",),
    )  # fmt: skip
    draw = torch.Generator().manual_seed(seed)
    batches = _endless(stack)
    found, done = [], 0
    for stop in sorted(steps):
        plan = torch.stack([next(batches) for _ in range(stop - done)], dim=1)
        stack.advance(plan, lambda more, before=done: progress(before + more, max(steps)))  # type: ignore[misc]
        done = stop
        looked = torch.randperm(len(rows), generator=draw)[:LOOKED_AT]
        found += _counted(stop, quantities(stack, rows[looked], draw), rows.labels[looked].double())
    return pl.DataFrame(found)


def quantities(stack: Stack, rows: Rows, draw: torch.Generator) -> dict[str, Tensor]:
    """Each quantity for some rows; "pairs" is one of pairs of rows, which have no label.

    Args:
        stack: whose first replica is looked at.
        rows: which rows.
        draw: chooses the pairs, and the positive row whose gradient the cosine attack knows.
    """
    bottom, top = (half.eval() for half in stack.models(0))
    labels = rows.labels.double()
    with torch.no_grad():
        parts = (rows[some] for some in torch.arange(len(rows)).split(ROWS))
        z = torch.cat([bottom(*(x.float() / 255 if x.dtype == torch.uint8 else x for x in p.features)) for p in parts])
    z = z.requires_grad_()
    logits = top(z, *rows.own)
    (slope,) = torch.autograd.grad(logits.sum(), z)  # rows do not touch each other: each has the gradient of its own
    slope = slope.flatten(1).double()  # (rows, width)
    gap = logits.detach().double().sigmoid() - labels
    sent = gap[:, None] * slope
    positives = (labels == 1).nonzero().squeeze(1)
    known = sent[positives[int(torch.randint(len(positives), (1,), generator=draw))]]
    one, other = torch.randint(len(labels), (2, PAIRS), generator=draw)
    return {
        "gap": gap.abs(),
        "slope": slope.norm(dim=1),
        "norm": sent.norm(dim=1),
        "pairs": functional.cosine_similarity(slope[one], slope[other]).clamp(-1, 1),  # else 1 + 1e-16 is in no bin
        "cosine": functional.cosine_similarity(sent, known[None]).clamp(-1, 1),
    }


def _endless(stack: Stack) -> Iterator[Tensor]:
    """Batch after batch, epoch after epoch.  (seeds, batch)"""
    epoch = 0
    while True:
        yield from stack.plan(epoch).unbind(1)
        epoch += 1


def _counted(step: int, found: dict[str, Tensor], labels: Tensor) -> list[dict[str, object]]:
    """Histograms with the same bins for both classes; what lies far out is counted in no bin."""
    aucs = {name: float(auc(found[name], labels)) for name in ("norm", "cosine", "gap", "slope")}
    positive, negative = (float(found["slope"][labels == label].median()) for label in (1, 0))
    acute = float((found["pairs"] > 0).double().mean())
    figures = {
        "norm": aucs["norm"], "cosine": aucs["cosine"], "gap_auc": aucs["gap"], "slope_auc": aucs["slope"],
        "slope_ratio": positive / negative, "acute": acute,
    }  # fmt: skip
    rows: list[dict[str, object]] = []
    for quantity, values in found.items():
        low, high = (-1.0, 1.0) if quantity in ("pairs", "cosine") else (0.0, float(values.quantile(0.995)))
        edges = torch.linspace(low, max(high, low + 1e-12), BINS + 1, dtype=torch.float64)
        for label in [None] if quantity == "pairs" else [0, 1]:
            own = values if label is None else values[labels == label]
            counts = torch.histc(own, BINS, float(edges[0]), float(edges[-1]))
            density = counts / max(1, len(own)) / (edges[1] - edges[0])
            bins = zip(edges[:-1].tolist(), edges[1:].tolist(), density.tolist(), strict=True)
            rows += [
                {"step": step, "quantity": quantity, "label": label, "left": left, "right": right, "density": height,
                 **figures}
                for left, right, height in bins
            ]  # fmt: skip
    return rows
