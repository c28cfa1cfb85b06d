"""Split training over a line of 40 ms each way, by how many batches may be on their way at once, beside loopback.

All is answered before every 64th step, where a gate may decide, and before each 200th, where a checkpoint is written.
The line is one with the system's own TCP (`PacketLine`), which needs root: without it nothing is measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks._measure import Result
from benchmarks.parties import PROTECT, Work, two_processes
from benchmarks.step import BATCH
from tests.torture.packets import ADDRESSES, PacketLine
from tests.torture.world import FEATURES, LABEL

DELAY = 0.04
DEPTHS = (1, 4, 8, 16)
STEPS = 256  # of an epoch
TIMED = 128  # steps, at one batch at a time over the slow line a quarter of them
ROUNDS = 3
_AHEAD = 32  # steps before those that are timed: what was on its way in a pause would be counted otherwise


def run() -> Iterator[Result]:
    """All by turns, so that a busy machine disturbs them alike; those that do not work wait for their next line."""
    if not PacketLine.possible():
        print("slow_line: such a line can be made by root alone, and with /dev/net/tun: left out", file=sys.stderr)
        return
    with ExitStack() as stack:
        packets = stack.enter_context(PacketLine(delay=DELAY, largest=60_000))
        loopback = {depth: _begun(stack, depth) for depth in (1, 8)}
        line = {"host": ADDRESSES[LABEL], "where": (packets.inside(LABEL), packets.inside(FEATURES))}
        slow = {depth: _begun(stack, depth, **line) for depth in DEPTHS}
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


def _begun(stack: ExitStack, depth: int, **line: Any) -> Work:
    """Two processes over loopback, or over a line; after their first steps."""
    work = stack.enter_context(two_processes(PROTECT, "journal", rows=STEPS * BATCH, depth=depth, **line))
    work(_AHEAD)
    return work
