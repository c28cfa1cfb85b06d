"""How fast embeddings of a batch prediction come over a line of 40 ms each way, by how many connections they go over.

The line is one with the system's own TCP (`PacketLine`), which needs root: without it nothing is measured. Timed as in
`predict`. Set TACIT_BENCH_ROWS for another number of rows than a million.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks._measure import Result
from benchmarks.predict import ROWS, WIDTH, both, grown, trained_companies
from tacit.lab.two_companies import Company
from tests.torture.packets import ADDRESSES, PacketLine
from tests.torture.world import FEATURES, LABEL

DELAY = 0.04
LANES = (1, 2, 4, 8, 16)


def run() -> Iterator[Result]:
    """A prediction over each number of connections."""
    if not PacketLine.possible():
        print("lanes: a long line can be made by root alone, and with /dev/net/tun: left out", file=sys.stderr)
        return
    rows, rates = int(os.environ.get("TACIT_BENCH_ROWS", ROWS)), {}
    with tempfile.TemporaryDirectory() as scratch, PacketLine(delay=DELAY, largest=60_000) as line:
        airline, airport = trained_companies(Path(scratch))
        table, file = grown(airport, rows), grown(airline, rows)
        for company in (airline, airport):
            _rewrite(company, r"127\.0\.0\.1", ADDRESSES[LABEL])
        for lanes in LANES:
            _rewrite(airport, r"\[network\]\n(lanes = \d+\n)?", f"[network]\nlanes = {lanes}\n")
            out = Path(scratch) / f"{lanes}.parquet"
            asked = ["predict", airline.folder, file, out], ["predict", airport.folder, table]
            came, _ = both(*asked, where=(line.inside(LABEL), line.inside(FEATURES)))
            rates[lanes] = (1 - 1 / came["count"]) * rows * (1 + WIDTH) / 1e6 / came["parts"]
            case = f"{rows:,} rows of {WIDTH} bytes, {1000 * DELAY:.0f} ms each way, connections: {lanes}"
            yield Result("lanes", case, rates[lanes], "MB/s")
    yield Result("lanes", "eight connections over one", rates[8] / rates[1], "x")


def _rewrite(company: Company, what: str, by: str) -> None:
    path = company.folder / "party.toml"
    path.write_text(re.sub(what, by, path.read_text()))
