"""What it costs a command to find a party's aligned rows by their ids: processor time of one core, beyond reading.

Of a file in which all ids were aligned, in another order than now. A command does all of it once. Set TACIT_BENCH_IDS
for another number of rows than a million.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from benchmarks._companies import align_rows, two_companies
from benchmarks._measure import Result
from tacit.align.directory import Directory
from tacit.align.ids import read_ids
from tacit.align.sources import blocks
from tacit.company.aligned import aligned, alignment_of, facts_of
from tacit.company.check import check_table
from tacit.company.folder import Folder

IDS = 1_000_000
GOAL = 1.5  # seconds a million rows

T = TypeVar("T")


def run() -> Iterator[Result]:
    """Seconds a million rows, of each part and of all of them beyond reading the table."""
    count = int(os.environ.get("TACIT_BENCH_IDS", IDS))
    draw = np.random.default_rng(0)
    table = pl.DataFrame({"id": np.arange(count), "y": np.arange(count) % 2, "x": np.arange(count) / 7})
    with tempfile.TemporaryDirectory(dir=os.environ.get("TACIT_BENCH_FOLDER")) as scratch:
        folder, _ = two_companies(Path(scratch), (table, table.head(1)), port=1)
        align_rows(folder, draw.permutation(count))
        table.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(folder.data)
        facts, alignment = facts_of(folder), alignment_of(folder)
        assert alignment is not None
        reading, _ = _seconds(lambda: [len(block) for block in blocks(folder.data, folder.table.ids)])
        ids, own = _seconds(lambda: read_ids(folder.data, folder.table.ids))
        keyed, keys = _seconds(lambda: facts.keys_of(own.hashes))
        known, stored = _seconds(lambda: facts.keys(alignment))
        found, _ = _seconds(lambda: Directory(keys, own.rows).rows(stored))
        whole, rows = _seconds(lambda: aligned(Folder(folder.path)).rows)
        assert bool((rows >= 0).all())
        columns = [*folder.table.ids, *folder.table.columns]
        read, _ = _seconds(lambda: [len(block) for block in blocks(folder.data, columns)])
        checked, _ = _seconds(lambda: check_table(folder, folder.data, own))
    parts = {
        "ids read": reading,
        "ids spelled and hashed": ids - reading,
        "keyed with the party's secret": keyed,
        "the alignment read and its seal checked": known,
        "looked up": found,
        "labels of the whole table checked": checked - read,
    }
    for what, seconds in parts.items():
        yield Result("rows", f"{what}, a million rows", seconds * 1e6 / count, "s")
    beyond = whole - reading + checked - read
    yield Result("rows", "all of it beyond reading, a million rows", beyond * 1e6 / count, "s", GOAL)


def _seconds(work: Callable[[], T]) -> tuple[float, T]:
    """The least processor time of three tries, and what came of the last one."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        result = work()
        taken.append(time.process_time() - began)
    return min(taken), result
