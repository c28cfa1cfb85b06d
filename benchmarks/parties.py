"""Two processes with mutual TLS and journals beside two bare ones that send the same bytes and do the same sums."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks._alignment import results
from benchmarks._bare import write_keys
from benchmarks._measure import Result, free_port
from benchmarks._plain import BATCH, ROWS, WIDTH
from benchmarks._relay import Relay
from benchmarks._two_processes import party, set_up, weights
from tacit.align.batches import batches
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.protect.keyed_noise import KeyedNoise
from tacit.split.simulate import pair
from tacit.wire import certificates

Work = Callable[..., tuple[float, str]]
"""Trains so many steps; tells the seconds, and a digest of the bottom's weights."""

STEPS, ROUNDS = 50, 12
_ROOT = Path(__file__).parents[1]  # where the processes find this package


def run() -> Iterator[Result]:
    """All by turns, so that a busy machine disturbs them alike; each process has one thread."""
    with ExitStack() as stack:
        variants: list[Work] = [
            stack.enter_context(bare("none")),
            stack.enter_context(bare("journal")),
            stack.enter_context(two_processes("none", journal="none")),
            stack.enter_context(two_processes("none")),
            stack.enter_context(two_processes("marvell=4.0")),
        ]
        for work in variants:
            work(STEPS)
        times = [[work(STEPS)[0] / STEPS for work in variants] for _ in range(ROUNDS)]
    plain, written, unwritten, ours, noisy = (statistics.median(column) for column in zip(*times, strict=True))
    yield Result("parties", f"two bare processes, mutual TLS, batch {BATCH}", 1 / plain, "steps/s")
    yield Result("parties", "two bare processes that journal", 1 / written, "steps/s")
    yield Result("parties", "ours without journals, none()", 1 / unwritten, "steps/s")
    yield Result("parties", "ours with journals, none()", 1 / ours, "steps/s")
    yield Result("parties", "ours with journals, marvell(scale=4)", 1 / noisy, "steps/s")
    yield Result("parties", "steps/s with journals over two bare processes", plain / ours, "x", 0.5, at_least=True)
    yield Result("parties", "steps/s with marvell over none()", ours / noisy, "x", 0.85, at_least=True)
    yield Result("parties", "bottoms that differ from one process's, none(), 20 steps", _differing(), "of 1", 0.0)
    yield Result("parties", "bytes of a step on the wire over its payload", _bytes(), "x", 1.02)
    yield from results()


def _differing() -> float:
    """Whether two processes come to other weights than one: bare gradients, for the noise of a run is its own."""
    alone = _one_process("none")
    alone(1)
    with two_processes("none", threads=torch.get_num_threads()) as together:  # it has done its first step
        return float(alone(20)[1] != together(20)[1])


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
    with Relay(port) as relay, two_processes("marvell=4.0", listen=port, connect=relay.port) as work:
        work(STEPS)
        before = relay.passed
        work(STEPS)
        return (relay.passed - before) / STEPS / (2 * 4 * BATCH * WIDTH)


@contextmanager
def two_processes(
    protect: str,
    *,
    journal: str = "journal",
    network: str = "plain",
    listen: int | None = None,
    connect: int | None = None,
    threads: int = 1,
    rows: int = ROWS,
    **settings: Any,
) -> Iterator[Work]:
    """Both parties as processes, after their first step; `settings` are those of `set_up`."""
    with tempfile.TemporaryDirectory() as scratch:
        port = listen or free_port()
        set_up(Path(scratch), port, connect or port, rows=rows, threads=threads, **settings)
        words = ["-m", "benchmarks._two_processes", scratch]
        with _pair([[*words, role, protect, journal, network] for role in ("label", "features")]) as work:
            yield work


@contextmanager
def bare(journal: str) -> Iterator[Work]:
    """Two bare processes, likewise."""
    with tempfile.TemporaryDirectory() as scratch:
        write_keys(Path(scratch), *map(certificates.create, ("label", "features")))
        words, port = ["-m", "benchmarks._bare", scratch], str(free_port())
        with _pair([[*words, role, port, journal] for role in ("label", "features")]) as work:
            yield work


@contextmanager
def _pair(commands: Sequence[Sequence[str]]) -> Iterator[Work]:
    """A label party's process and a feature party's, which sets the pace."""
    with ExitStack() as stack:
        for words in commands:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
        features = process
        assert features.stdin is not None
        assert features.stdout is not None
        features.stdout.readline()  # the first step

        def work(steps: int) -> tuple[float, str]:
            print(steps, file=features.stdin, flush=True)
            seconds, digest = features.stdout.readline().split()  # type: ignore[union-attr]
            return float(seconds), digest

        yield work
