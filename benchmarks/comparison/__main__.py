"""`python -m benchmarks.comparison [ROW ...] [--flights N] [--seeds N] [--out FILE] [--draw]`."""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.comparison.measuring import data, demonstrated, measured
from benchmarks.comparison.page import ROOT, pages
from benchmarks.comparison.table import BATCH, EPOCHS, LIMIT, ODDS, RATE, ROWS
from tacit._version import __version__
from tacit.disk import write

OUT = ROOT / "docs" / "comparison.json"
DEMO = "demo"  # measured beside the rows


def main(words: Sequence[str] | None = None) -> int:
    """Measure rows of README's table, and what `tacit demo` prints, and put them beside those that the file has."""
    names = [*ROWS, DEMO]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=main.__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--flights", type=int, default=60_000, metavar="N", help="for training and testing")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="with how many each row is measured")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE")
    parser.add_argument("--draw", action="store_true", help="measure nothing: only draw, and fill the pages again")
    given = parser.parse_args(words)
    if unknown := [name for name in given.rows if name not in names]:
        parser.error(f"there is no row {', '.join(unknown)}; there are: {', '.join(names)}")
    if not given.draw:
        common = _common(given.flights)
        before = json.loads(given.out.read_text()) if given.out.exists() else {"common": common, "rows": {}}
        if before["common"] != common:
            parser.error(f"{given.out} is of {before['common']}, not of {common}: choose another --out, or delete it")
        options = f" --flights {given.flights}" * (given.flights != 60_000) + f" --seeds {given.seeds}" * (
            given.seeds != 3
        )
        measure(given.rows or names, given.flights, given.seeds, options, before, given.out)
    if given.out == OUT:
        for name, text in pages(json.loads(OUT.read_text())).items():
            write(ROOT / name, text.encode(), durable=False)
    return 0


def measure(
    names: Sequence[str], flights: int, seeds: int, options: str, document: Mapping[str, Any], out: Path
) -> None:
    """One after the other, each written down as soon as it is there."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawning, torch.set_num_threads, (1,)) as pool:
        for name in names:
            if name == DEMO:
                found, told = {**document, DEMO: {**demonstrated(), **_measured(DEMO)}}, ""
            else:
                row = measured(name, flights, range(seeds), pool)
                rows = {**document["rows"], name: {**row, **_measured(shlex.quote(name) + options)}}
                found = {**document, "rows": {one: rows[one] for one in ROWS if one in rows}}
                told = f": test AUC {row['test_auc']['mean']:.3f}"
            document = found
            write(out, (json.dumps(_rounded(document), indent=1) + "\n").encode(), durable=False)
            print(name + told, flush=True)


def _measured(what: str) -> dict[str, Any]:
    """How, on what machine and when."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, "
    machine += torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return {
        "measured": {
            "command": f"python -m benchmarks.comparison {what}", "machine": machine, "version": __version__,
            "torch": torch.__version__, "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
    }  # fmt: skip


def _common(flights: int) -> dict[str, Any]:
    """What all rows have in common."""
    made = data(flights)
    return {
        "data": made.name, "training_rows": len(made.train), "test_rows": len(made.test),
        "positive": round(made.share, 4), "limit": LIMIT, "odds": ODDS,
        "split": {"epochs": EPOCHS, "batch": BATCH, "rate": RATE, "cut": 128},
    }  # fmt: skip


def _rounded(value: Any) -> Any:
    """Numbers to four digits, as far as any of them can be told from chance."""
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) and abs(value) >= 1e-3 else value


if __name__ == "__main__":
    sys.exit(main())
