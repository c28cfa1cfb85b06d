"""Test AUC of one exchange on all flights by how finely its numbers are sent: exact floats, 256 ranks (a byte), fewer.

The same learner, learnt from the same flipped labels; the label party's trees are fitted to its own columns and either.
Set TACIT_BENCH_ROWS for fewer flights than all.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks._measure import Result
from tacit.align.encoder import Inputs
from tacit.lab.data import load
from tacit.lab.data.rows import Rows, Table
from tacit.one_shot.flips import flips
from tacit.one_shot.head import fit_head
from tacit.one_shot.learn.trees import trees
from tacit.one_shot.ranks import Ranks

WIDTHS, LEVELS, SEEDS = (1, 8), (256, 64, 16, 4), 3


def run() -> Iterator[Result]:
    """All of them for each seed, which draws coins, learner and model."""
    data = load("flights", rows=int(os.environ.get("TACIT_BENCH_ROWS", 0)) or None)
    assert isinstance(data.inputs, Table)
    train, test = (_sides(rows, data.inputs) for rows in (data.train, data.test))
    labels, truth = (rows.labels.numpy().astype(np.int64) for rows in (data.train, data.test))
    for width in WIDTHS:
        found = defaultdict(list)
        for seed in range(SEEDS):
            coin, draw = flips(0.6, odds=3.0, rare="positive"), np.random.default_rng(seed)
            sent = (draw.random(len(labels)) < np.where(labels == 1, float(coin.a), float(coin.b))).astype(np.uint8)
            bottom = trees().fit(train[0], sent, coin, width, seed=seed)
            exact: list[NDArray[Any]] = [np.asarray(bottom.embed(rows)) for rows, _ in (train, test)]
            for levels in (None, *LEVELS):
                shown = exact
                if levels is not None:
                    ranks = Ranks.fit(exact[0], levels)
                    shown = [ranks.code(each) for each in exact]
                found[levels].append(_auc(shown, [train[1], test[1]], labels, truth, seed))
        for levels, each in found.items():
            form = "exact floats" if levels is None else f"{levels} ranks"
            said = ", ".join(f"{one:.4f}" for one in each)
            yield Result("ranks", f"flights, width {width}, {form}: mean of {said}", statistics.mean(each), "test AUC")


def _auc(shown: list[NDArray[Any]], own: list[Inputs], labels: NDArray[Any], truth: NDArray[Any], seed: int) -> float:
    """Of the label party's model, fitted to its own columns and to what it is shown of the others."""
    train, test = (
        replace(each, numeric=torch.cat([each.numeric, torch.from_numpy(z.astype(np.float32))], dim=1))
        for each, z in zip(own, shown, strict=True)
    )  # among its own: as an embedding the model takes ranks alone
    head = fit_head("trees", None, train, labels, seed=seed, threads=os.cpu_count() or 1)
    return float(roc_auc_score(truth, head.predict(None, test)))


def _sides(rows: Rows, table: Table) -> tuple[Inputs, Inputs]:
    """The feature party's columns and the label party's."""
    codes, numbers = rows.features
    own_codes, own_numbers = rows.own
    return Inputs(codes, numbers, table.cardinalities), Inputs(own_codes, own_numbers, table.own_cardinalities)
