"""Rows a second of the streamed loaders, beside the disk's plain read of the same bytes and plain copies of them.

Files are generated; set TACIT_BENCH_ROWS for another number of rows than 300,000. Before each reading the system is
asked to forget the file, so that it comes from the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from benchmarks import _official_files
from benchmarks._measure import Result, interleaved, seconds
from tacit.lab.data import avazu, criteo, generated, own
from tacit.lab.data.rows import Data, Rows

ROWS = 300_000
ROUNDS = 3
BATCH = 1024
_BLOCK = 1 << 20
_OWN = f"""\
file = "table.parquet"
label = "label"
[features]
categorical = {json.dumps(criteo.CATEGORIES)}
numeric = {json.dumps(criteo.NUMBERS)}
"""


def run() -> Iterator[Result]:
    """Every loader: from the file, and batch by batch from the mapped arrays."""
    rows = int(os.environ.get("TACIT_BENCH_ROWS", ROWS))
    yield Result("loaders", "generated tensors of Criteo's columns", rows / _generating(rows), "rows/s")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        yield from _loader("criteo", _official_files.write("criteo", folder, rows, seed=0), rows, criteo.load)
        yield from _loader("avazu", _official_files.write("avazu", folder, rows, seed=0), rows, avazu.load)
        table = folder / "table.parquet"
        _parquet(folder / "train.txt", table)
        (folder / "own.toml").write_text(_OWN)
        yield from _loader("own Parquet file", table, rows, lambda file: own.load(folder / "own.toml"))


def _generating(rows: int) -> float:
    return statistics.median(interleaved(lambda: generated.like("criteo", rows, 0), rounds=ROUNDS, warmup=1)[0])


def _parquet(text: Path, file: Path) -> None:
    """Criteo's text as a Parquet file that someone might have."""
    names = ["label", *criteo.NUMBERS, *criteo.CATEGORIES]
    kinds: dict[str, type[pl.DataType]] = dict.fromkeys(names[:14], pl.Int64)
    schema = kinds | dict.fromkeys(criteo.CATEGORIES, pl.String)
    pl.scan_csv(text, has_header=False, separator="\t", schema=schema, quote_char=None).sink_parquet(file)


def _loader(name: str, file: Path, rows: int, load: Callable[[Path], Data]) -> Iterator[Result]:
    """From the file to arrays, and batches; each by turns with what it is compared with."""
    cache = file.with_name(f"{file.name}.tacit")
    size = file.stat().st_size
    whole, reading = [], []
    for _ in range(ROUNDS):
        shutil.rmtree(cache, ignore_errors=True)
        _forget(file)
        reading.append(seconds(lambda: _plain_read(file)))
        _forget(file)
        whole.append(seconds(lambda: load(file)))
    first, read = (statistics.median(times) for times in (whole, reading))
    yield Result("loaders", f"{name}, {rows:,} rows: from the file to mapped tensors", rows / first, "rows/s")
    yield Result("loaders", f"{name}: time over a plain read of its {size / 1e6:.0f} MB", first / read, "x")
    yield from _batches(name, load(file).train)


def _forget(file: Path) -> None:
    """Ask the system to keep nothing of a file in memory."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _plain_read(file: Path) -> None:
    with file.open("rb", buffering=0) as opened:
        while opened.read(_BLOCK):
            pass


def _batches(name: str, rows: Rows) -> Iterator[Result]:
    """Shuffled batches of an epoch, against the same rows picked from arrays in memory and against copying them.

    On one thread, as numpy does it: that is also what a training next to it leaves.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    arrays = [each.numpy().copy() for each in (*rows.features, rows.labels)]
    ours, picked, copied = interleaved(
        lambda: [rows[batch] for batch in order.split(BATCH)],
        lambda: [[array[batch] for array in arrays] for batch in _numbers(order)],
        lambda: [array.copy() for array in arrays],
        rounds=5, warmup=1,
    )  # fmt: skip
    torch.set_num_threads(threads)
    mapped, picking, copying = (statistics.median(times) for times in (ours, picked, copied))
    case = f"{name}: shuffled batches of {BATCH} from the mapped files"
    yield Result("loaders", case, len(rows) / mapped, "rows/s")
    yield Result("loaders", f"{case}: time over numpy's from memory", mapped / picking, "x")
    yield Result("loaders", f"{case}: time over a plain copy in memory", mapped / copying, "x")


def _numbers(order: Tensor) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    return [batch.numpy() for batch in order.split(BATCH)]
