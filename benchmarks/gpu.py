"""The papers' Criteo set-up between two companies on one GPU: TLS, journals, Marvell, two attacks on every batch.

Set TACIT_BENCH_STEPS for another number of answers than the papers' 20,140; without a GPU there is nothing to measure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

from benchmarks._measure import Result
from benchmarks.parties import two_processes

STEPS, EPOCHS = 20_140, 5
BATCH = 1024
WATCHED = 'live = { every = 1, attacks = ["norm", "cosine"], fitted = 1000000 }\nrecord = { last = 24, follow = 8192 }'


def run() -> Iterator[Result]:
    """From the first answer to the last."""
    if not torch.cuda.is_available():
        return
    steps = int(os.environ.get("TACIT_BENCH_STEPS", STEPS))
    rows = BATCH * max(steps // EPOCHS, 1)
    with two_processes(
        "marvell=4.0", network="criteo", rows=rows, threads=4, device="cuda", epochs=EPOCHS + 1, settings=WATCHED
    ) as work:
        taken, _ = work(steps - 1)
    on = f"{steps:,} answers on one {torch.cuda.get_device_name(0)}"
    yield Result("gpu", f"two companies, Marvell, norm and cosine attack on every batch: {on}", taken, "s")
    yield Result(
        "gpu", "steps/s from the first to the last of them", (steps - 1) / taken, "steps/s", 150, at_least=True
    )
