"""Two processes with mutual TLS and journals over the same training in one process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks._alignment import results
from benchmarks._measure import Result
from benchmarks._two_processes import WIDTH, party, set_up, weights
from benchmarks.step import BATCH, ROWS
from tacit.align.batches import batches
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.simulate import pair
from tacit.protect.keyed_noise import KeyedNoise
from tests.torture.relay import Relay
from tests.torture.world import free_port

Work = Callable[..., tuple[float, str]]
"""Trains so many steps; tells the seconds, and a digest of the bottom's weights."""

PROTECT = "matched=0.6"
STEPS, ROUNDS = 20, 12
_ROOT = Path(__file__).parents[1]  # where the processes find this package


def run() -> Iterator[Result]:
    """All by turns, so that a busy machine disturbs them alike.

    One process uses all cores. Of the two, each has one thread: more would spin while they wait for each other, on the
    cores that the other one needs, which was slower in every setting tried. On a machine of its own a party takes all.
    """
    with ExitStack() as stack:
        variants: list[Work] = [
            _one_process(PROTECT),
            stack.enter_context(two_processes(PROTECT, "journal")),
            stack.enter_context(two_processes(PROTECT, "none")),
        ]
        for work in variants:
            work(STEPS)
        times = [[work(STEPS)[0] / STEPS for work in variants] for _ in range(ROUNDS)]
    one, two, unwritten = (statistics.median(column) for column in zip(*times, strict=True))
    yield Result("parties", f"one process, batch {BATCH}, {PROTECT}", 1 / one, "steps/s")
    yield Result("parties", "two processes, mutual TLS, journals", 1 / two, "steps/s")
    yield Result("parties", "steps/s of two processes over one", one / two, "x", 0.75, at_least=True)
    yield Result("parties", "step with journals over one without", two / unwritten, "x", 1.10)
    yield Result("parties", "bottoms that differ from one process's, none(), 20 steps", _differing(), "of 1", 0.0)
    yield Result("parties", "bytes of a step on the wire over its payload", _bytes(), "x", 1.02)
    yield from results()


def _differing() -> float:
    """Whether two processes come to other weights than one: bare gradients, for the noise of a run is its own."""
    alone = _one_process("none")
    alone(1)
    with two_processes("none", "journal", threads=torch.get_num_threads()) as together:  # it has done its first step
        return float(alone(STEPS)[1] != together(STEPS)[1])


def _one_process(protect: str) -> Work:
    left, right = pair()
    features, label = party("features", protect), party("label", protect)
    assert isinstance(features, FeatureParty)
    assert isinstance(label, LabelParty)
    label.noise = KeyedNoise(bytes(range(32)), "gradient")

    def rows_of() -> Iterator[object]:
        epoch = 0
        while True:
            yield from batches(ROWS, BATCH, epoch=epoch, seed=0)
            epoch += 1

    plan = rows_of()

    def work(steps: int) -> tuple[float, str]:
        started = time.perf_counter()
        for _ in range(steps):
            rows = next(plan)
            features.send(rows, left)  # type: ignore[arg-type]
            label.step(rows, right)  # type: ignore[arg-type]
            features.finish(left)
        return time.perf_counter() - started, weights(features.bottom)

    return work


def _bytes() -> float:
    """What TLS sends for a step, in both directions, over an embedding and a gradient."""
    port = free_port()
    with Relay(port) as relay, two_processes(PROTECT, "journal", port, relay.port) as work:
        work(STEPS)
        before = relay.passed
        work(STEPS)
        return (relay.passed - before) / STEPS / (2 * 4 * BATCH * WIDTH)


@contextmanager
def two_processes(
    protect: str,
    journal: str,
    listen: int | None = None,
    connect: int | None = None,
    *,
    threads: int = 1,
    rows: int = ROWS,
    **settings: Any,
) -> Iterator[Work]:
    """Both parties as processes, after their first step; `settings` are those of `set_up`."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        port = listen or free_port()
        set_up(Path(scratch), port, connect or port, rows=rows, threads=threads, **settings)
        command = [sys.executable, "-m", "benchmarks._two_processes", scratch]
        for role in ("label", "features"):
            words = [*command, role, protect, journal]
            process = subprocess.Popen(words, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
        features = process  # it sets the pace
        assert features.stdin is not None
        assert features.stdout is not None
        features.stdout.readline()  # the first step

        def work(steps: int) -> tuple[float, str]:
            print(steps, file=features.stdin, flush=True)
            seconds, digest = features.stdout.readline().split()  # type: ignore[union-attr]
            return float(seconds), digest

        yield work
