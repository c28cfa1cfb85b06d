"""The airport's limit in the demo's third act: what decoders recover at worst, whatever coins and seeds are drawn.

All flights in the demo's cells, audited as before any release. Set TACIT_BENCH_SEEDS for another number of seeds than
20, and TACIT_BENCH_ROWS for fewer flights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks._measure import Result
from tacit.lab import demo
from tacit.lab.data import flights
from tacit.lab.exchanges import Search, Setting, Trying, world_of

SEEDS = 20
JUDGED = 40_000  # rows that decoders know, and are judged on, as between companies


def run() -> Iterator[Result]:
    """The worst of each seed, then the worst of all under its goal."""
    rows = os.environ.get("TACIT_BENCH_ROWS")
    world = world_of(flights.load(rows=None if rows is None else int(rows), by_day=False))
    default = Setting("flips", 0.6, 3, 1)
    setting = Setting("flips", 0.6, demo.BITS, 1, demo.SMALLEST)
    worst = []
    for seed in range(int(os.environ.get("TACIT_BENCH_SEEDS", SEEDS))):
        trying = Trying(world, Search(odds=3.0, attack_rows=JUDGED), seed, threads=1)
        if not seed:
            yield Result("limit", "seed 0, as contracts have it by default", trying.released(default)[2].worst, "of 1")
        audit = trying.released(setting)[2]
        worst.append(audit.worst)
        column = next(one.column for one in audit.findings if one.counted)
        yield Result("limit", f"seed {seed}: {column}", audit.worst, "of 1")
    yield Result("limit", f"the most of {len(worst)} seeds", max(worst), "of 1", goal=demo.LIMIT)
