"""Test AUC by how many batches are on their way at once: what gradients that come late cost, on all flights.

Both parties are in one process, with the same steps as between two over a slow line but for what is answered before a
look back or a checkpoint there: here all is answered by the end of an epoch alone, which is the harder case.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator

from benchmarks._measure import Result
from tacit.lab.data import load
from tacit.lab.trial import Course, problem_of, train

DEPTHS = (1, 2, 4, 8, 16)
EPOCHS, SEEDS = 3, 3


def run() -> Iterator[Result]:
    """The same weights and batches at every depth, bare gradients; TACIT_BENCH_ROWS for fewer flights than all."""
    problem = problem_of(load("flights", rows=int(os.environ.get("TACIT_BENCH_ROWS", 0)) or None))
    for depth in DEPTHS:
        courses = [Course(EPOCHS, batch_size=1024, last=1, follow=0, seed=seed, depth=depth) for seed in range(SEEDS)]
        found = [train("none()", problem, course).test_auc for course in courses]
        case = f"flights, depth {depth}: mean of {SEEDS} seeds, {max(found) - min(found):.4f} apart"
        yield Result("depth", case, statistics.mean(found), "test AUC")
