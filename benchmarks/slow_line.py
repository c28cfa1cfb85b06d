"""Split training over a line of 40 ms each way, by how many batches may be on their way at once, beside loopback.

All is answered before every 64th step, where a gate may decide, and before each 200th, where a checkpoint is written.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks._measure import Result
from benchmarks.parties import PROTECT, Work, two_processes
from benchmarks.step import BATCH
from tests.torture.relay import Relay
from tests.torture.world import free_port

DELAY = 0.04
DEPTHS = (1, 4, 8, 16)
STEPS = 256  # of an epoch
TIMED = 128  # steps, at one batch at a time over the slow line a quarter of them
ROUNDS = 3
_AHEAD = 32  # steps before those that are timed: what was on its way in a pause would be counted otherwise


def run() -> Iterator[Result]:
    """All by turns, so that a busy machine disturbs them alike; those that do not work wait for their next line."""
    with ExitStack() as stack:
        loopback = {depth: _over(stack, depth, None) for depth in (1, 8)}
        slow = {depth: _over(stack, depth, DELAY) for depth in DEPTHS}
        rates = {work: list[float]() for work in (*loopback.values(), *slow.values())}
        for _ in range(ROUNDS):
            for work, found in rates.items():
                steps = TIMED if work is not slow[1] else TIMED // 4
                found.append(steps / work(_AHEAD, steps)[0])
    medians = {work: statistics.median(found) for work, found in rates.items()}
    for depth, work in loopback.items():
        yield Result("slow_line", f"loopback, depth {depth}", medians[work], "steps/s")
    for depth, work in slow.items():
        yield Result("slow_line", f"{1000 * DELAY:.0f} ms each way, depth {depth}", medians[work], "steps/s")
    best = max(medians[slow[depth]] for depth in DEPTHS)
    over = best / medians[loopback[1]]
    yield Result("slow_line", "best depth over loopback at depth 1", over, "x", 0.8, at_least=True)
    over = best / max(medians[work] for work in loopback.values())
    yield Result("slow_line", "best depth over loopback at its best depth", over, "x")


def _over(stack: ExitStack, depth: int, delay: float | None) -> Work:
    """Two processes over loopback, or over a line with this delay each way; after their first steps."""
    port, connect = free_port(), None
    if delay is not None:
        connect = stack.enter_context(Relay(port, delay=delay)).port
    work = stack.enter_context(two_processes(PROTECT, "journal", port, connect, rows=STEPS * BATCH, depth=depth))
    work(_AHEAD)
    return work
