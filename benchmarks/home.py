"""Learning at home from generated rows with Criteo's columns, on the CPU and on CUDA where it is.

A second epoch is timed, when rows are where they stay; what it takes to get them there is in the time of all. Set
TACIT_BENCH_ROWS for another number of rows than 5,000; no column has more codes than that, and all have a million at
most. The CPU gets at most 100,000 rows. The embedding, which is always computed on the CPU, is timed on as many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks._measure import Result
from tacit.align.encoder import Inputs
from tacit.audit.metrics.leak_auc import auc
from tacit.exchange.learn import Bottom
from tacit.exchange.learn.network import network
from tacit.exchange.pretrain import pretrain
from tacit.lab.data.generated import CRITEO, Drawing
from tacit.labels.flips import flips

ROWS = 5_000
ON_CPU = 100_000
WIDTH = 8
TESTED = 5_000
LIMIT, ODDS = 0.6, 3.0


class _Clock:
    """A progress that notes when each epoch ended."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.ended.append(time.perf_counter())


def run() -> Iterator[Result]:
    """Rows a second of an epoch, without labels and with flipped ones; how well the score tells true ones of others."""
    rows, threads = int(os.environ.get("TACIT_BENCH_ROWS", ROWS)), torch.get_num_threads()
    cuda = torch.cuda.is_available()
    start = time.perf_counter()
    inputs, labels = _drawn(rows + TESTED, "cuda" if cuda else "cpu")
    yield Result("home", f"drawing {rows + TESTED:,} rows", time.perf_counter() - start, "s")
    bottom = None
    for device, most in (("cpu", min(rows, ON_CPU)), *((("cuda", rows),) if cuda else ())):
        name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {threads} threads"
        yield _pretrained(inputs[:most], device, f"{most:,} rows on {name}", threads)
        for count in sorted({min(rows, ON_CPU), most}):  # on CUDA as many as on the CPU, too
            case, clock, start = f"{count:,} rows on {name}", _Clock(), time.perf_counter()
            bottom = _fitted(inputs[:count], labels[:count], device, clock, threads)
            took = time.perf_counter() - start
            yield Result("home", f"an epoch with labels, {case}", count / (clock.ended[1] - clock.ended[0]), "rows/s")
            yield Result("home", f"two epochs, with copying and mixing, {case}", took, "s")
            figure = auc(torch.from_numpy(bottom.embed(inputs[rows:])[:, 0]), labels[rows:])
            yield Result("home", f"test AUC after two epochs, {case}", float(figure), "AUC")
    assert bottom is not None  # there is always a CPU
    start, some = time.perf_counter(), inputs[: min(rows, ON_CPU)]
    bottom.embed(some, threads=threads)
    rate = len(some) / (time.perf_counter() - start)
    yield Result("home", f"embedding on CPU, {threads} threads, {len(some):,} rows", rate, "rows/s")


def _drawn(rows: int, device: str) -> tuple[Inputs, Tensor]:
    """Rows as an encoder gives them but for codes of half the size, and true labels."""
    cardinalities = tuple(min(codes, rows) for codes in CRITEO)
    made = Drawing(cardinalities, 13, 0.256, seed=0, device=device).rows(rows)
    codes, numbers = (tensor.cpu() for tensor in made.features)
    return Inputs(codes, numbers, cardinalities), made.labels.cpu()


def _pretrained(inputs: Inputs, device: str, case: str, threads: int) -> Result:
    clock = _Clock()
    pretrain(inputs, epochs=2, threads=threads, progress=clock, device=device)
    took = time.perf_counter() - clock.ended[0]  # it is back on the CPU, and so it is done
    return Result("home", f"an epoch without labels, {case}", len(inputs) / took, "rows/s")


def _fitted(inputs: Inputs, labels: Tensor, device: str, clock: _Clock, threads: int) -> Bottom:
    """A single network, not the usual four, of two epochs."""
    coin = flips(LIMIT, ODDS, rare="positive")
    chances = float(coin.b) + float(coin.a - coin.b) * labels  # keyed coins would take longer than learning
    sent = (torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < chances).byte().numpy()
    learner = replace(network(pretraining=False, members=1, epochs=2), device=device)
    return learner.fit(inputs, sent, coin, WIDTH, threads=threads, progress=clock)
