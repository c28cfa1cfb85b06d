"""How fast embeddings of a batch prediction come, beside a bare TLS stream of as many bytes between two processes.

Both are timed at the receiver, from the first part to the last: what lies before (ids, embedding rows) and after it
(scoring) is in the rows a second of the whole. Set TACIT_BENCH_ROWS for another number of rows than a million; beyond
that there is one round. With fewer the bare stream is over before both its processes have a core each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks._measure import Result, free_port
from tacit.lab.two_companies import Company, prepare, together
from tacit.serve.conversation import ROWS as MESSAGE

ROWS = 1_000_000
ROUNDS = 5
_MANY = ROWS
WIDTH = 4 * 128  # bytes of a row's embedding: the demo's


def run() -> Iterator[Result]:
    """Whole predictions and bare streams in turn; the best of each: one bare stream in four takes a third longer."""
    rows = int(os.environ.get("TACIT_BENCH_ROWS", ROWS))
    size = rows * (1 + WIDTH)
    with tempfile.TemporaryDirectory() as scratch:
        airline, airport = trained_companies(Path(scratch))
        table, file = grown(airport, rows), grown(airline, rows)
        ours, bare = [], []
        for number in range(ROUNDS if rows <= _MANY else 1):
            out = Path(scratch) / f"{number}.parquet"
            ours.append(both(["predict", airline.folder, file, out], ["predict", airport.folder, table]))
            port = free_port()
            bare.append(both(["receive", airline.folder, port, size], ["send", port, size]))
            out.unlink()
    timed = (1 - 1 / ours[0][0]["count"]) * size / 1e6  # what came after the first part
    rates = [timed / min(one["parts"] for one, _ in each) for each in (ours, bare)]
    case = f"{rows:,} rows of {WIDTH} bytes, in parts of {MESSAGE:,} rows"
    yield Result("predict", f"{case}: embeddings", rates[0], "MB/s")
    yield Result("predict", "a bare TLS stream of as many bytes", rates[1], "MB/s")
    yield Result("predict", "embeddings over the bare stream", rates[0] / rates[1], "x", goal=0.8, at_least=True)
    whole = statistics.median(one["whole"] for one, _ in ours)
    yield Result("predict", "the whole of a prediction, from its start to the file of scores", rows / whole, "rows/s")
    for place, party in enumerate(("label", "feature")):
        peak = statistics.median(each[place]["peak"] for each in ours)
        yield Result("predict", f"the most memory of the {party} party's process", peak, "MB")


def trained_companies(scratch: Path) -> tuple[Company, Company]:
    """Two companies that have trained a little."""
    companies = prepare(scratch, epochs=1, rows=4096, seed=0, limit=None)
    for verb in ("align", "train"):
        together(list(companies), verb, lambda: None)
    airline, airport = companies
    return airline, airport


def grown(company: Company, rows: int) -> Path:
    """A file of so many rows, by repeating a party's own under new ids, in which both sides agree."""
    own = pl.read_parquet(company.folder / "flights.parquet").sort("flight_id")
    path = company.folder / "grown.parquet"
    times = -(-rows // len(own))
    pl.concat([own] * times).head(rows).with_columns(flight_id=pl.int_range(pl.len())).write_parquet(path)
    return path


def both(receiver: Sequence[object], sender: Sequence[object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both sides tell, in processes of their own."""
    command = [sys.executable, "-m", "benchmarks._predicting"]
    running = subprocess.Popen([*command, *map(str, receiver)], stdout=subprocess.PIPE, text=True)
    sent = subprocess.run([*command, *map(str, sender)], stdout=subprocess.PIPE, text=True, check=True)
    said, _ = running.communicate()
    if running.returncode:
        raise RuntimeError(f"{receiver[0]} ended with {running.returncode}")
    return json.loads(said), json.loads(sent.stdout or "{}")
