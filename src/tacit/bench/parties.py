"""Two processes with mutual TLS and journals over the same training in one process."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tacit.align.batches import batches
from tacit.bench._alignment import results
from tacit.bench._measure import Result
from tacit.bench._two_processes import WIDTH, party, set_up
from tacit.bench.step import BATCH, ROWS
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.lab.torture.relay import Relay
from tacit.protect.keyed_noise import KeyedNoise
from tacit.wire.memory import pair

PROTECT = "matched=0.6"
STEPS, ROUNDS = 20, 12


def run() -> Iterator[Result]:
    """All by turns, so that a busy machine disturbs them alike; the parties take turns, so each may use all cores."""
    with ExitStack() as stack:
        variants: list[Callable[[int], float]] = [
            _one_process(),
            stack.enter_context(_two_processes("journal")),
            stack.enter_context(_two_processes("none")),
        ]
        for work in variants:
            work(STEPS)
        times: list[list[float]] = [[work(STEPS) / STEPS for work in variants] for _ in range(ROUNDS)]
    one, two, unwritten = (statistics.median(column) for column in zip(*times, strict=True))
    yield Result("parties", f"one process, batch {BATCH}, {PROTECT}", 1 / one, "steps/s")
    yield Result("parties", "two processes, mutual TLS, journals", 1 / two, "steps/s")
    yield Result("parties", "steps/s of two processes over one", one / two, "x", 0.7, at_least=True)
    yield Result("parties", "step with journals over one without", two / unwritten, "x", 1.10)
    yield Result("parties", "bytes of a step on the wire over its payload", _bytes(), "x", 1.02)
    yield from results()


def _one_process() -> Callable[[int], float]:
    left, right = pair()
    features, label = party("features", PROTECT), party("label", PROTECT)
    assert isinstance(features, FeatureParty)
    assert isinstance(label, LabelParty)
    label.noise = KeyedNoise(bytes(range(32)), "gradient")

    def rows_of() -> Iterator[object]:
        epoch = 0
        while True:
            yield from batches(ROWS, BATCH, epoch=epoch, seed=0)
            epoch += 1

    plan = rows_of()

    def work(steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            rows = next(plan)
            features.send(rows, left)  # type: ignore[arg-type]
            label.step(rows, right)  # type: ignore[arg-type]
            features.finish(left)
        return time.perf_counter() - started

    return work


def _bytes() -> float:
    """What TLS sends for a step, in both directions, over an embedding and a gradient."""
    port = _free_port()
    with Relay(port) as relay, _two_processes("journal", port, relay.port) as work:
        work(STEPS)
        before = relay.passed
        work(STEPS)
        return (relay.passed - before) / STEPS / (2 * 4 * BATCH * WIDTH)


@contextmanager
def _two_processes(
    journal: str, listen: int | None = None, connect: int | None = None
) -> Iterator[Callable[[int], float]]:
    """Both parties as processes; what it gives trains so many steps and tells the seconds."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        port = listen or _free_port()
        set_up(Path(scratch), port, connect or port, rows=ROWS)
        command = [sys.executable, "-m", "tacit.bench._two_processes", scratch]
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # as `tacit train` sets it
        label = subprocess.Popen([*command, "label", PROTECT, journal], env=environment)
        stack.callback(label.kill)
        features = subprocess.Popen(
            [*command, "features", PROTECT, journal],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(features.kill)
        assert features.stdin is not None
        assert features.stdout is not None
        features.stdout.readline()  # the first step

        def work(steps: int) -> float:
            print(steps, file=features.stdin, flush=True)
            return float(features.stdout.readline())  # type: ignore[union-attr]

        yield work


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
