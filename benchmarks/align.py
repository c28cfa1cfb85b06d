"""What `tacit align` takes of time and memory: two processes over mutual TLS, from files of ids to the common rows.

Half of the ids are common. Set TACIT_BENCH_IDS for other numbers of ids a side than 100,000 and 300,000, with commas
between them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks._companies import contract, two_companies
from benchmarks._measure import Result, free_port

IDS = "100000,300000"
PARTS = {
    "read": "ids read and hashed",
    "begun": "the order drawn and the peer met",
    "exchanged": "points and products",
    "ended": "products compared, proofs and seed",
}


def run() -> Iterator[Result]:
    """Seconds of each part by the slower side, then processor time and memory of the two."""
    for count in map(int, os.environ.get("TACIT_BENCH_IDS", IDS).split(",")):
        sides, case = _aligned(count), f"{count:,} ids a side"
        for part, what in PARTS.items():
            yield Result("align", f"{case}: {what}", max(side[part] for side in sides), "s")
        yield Result("align", f"{case}: from files to rows", max(side["whole"] for side in sides), "s")
        for name, side in zip(("label party", "feature party"), sides, strict=True):
            yield Result("align", f"{case}: processor time of the {name}", side["cpu"], "s")
            yield Result("align", f"{case}: most memory of the {name}, without mapped files", side["anonymous"], "MB")
            yield Result("align", f"{case}: most memory of the {name}, with them", side["peak"], "MB")


def _aligned(count: int) -> list[dict[str, Any]]:
    """What both sides of one alignment tell."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TACIT_BENCH_FOLDER")) as scratch:
        tables = [pl.DataFrame({"id": [0], "y": [0], "x": [0.0]})] * 2  # real ones come in their place
        text = contract() + f"alignment.largest_set = {count}\n"
        companies = two_companies(Path(scratch), tables, port=free_port(), text=text)
        for company, first in zip(companies, (0, count // 2), strict=True):
            ids = draw.permutation(np.arange(first, first + count))
            pl.DataFrame({"id": ids, "y": ids % 2, "x": ids / 10}).write_parquet(company.path / "data.parquet")
        del ids
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks._aligning", str(company.path)], stdout=subprocess.PIPE, text=True
            )
            for company in companies
        ]
        told = [json.loads(process.communicate()[0] or "{}") for process in running]
        if any(process.returncode for process in running):
            raise RuntimeError("a side of the alignment ended with an error, see above")
        if [side["common"] for side in told] != [count - count // 2] * 2:
            raise RuntimeError("the alignment found other ids than it should")
        return told
