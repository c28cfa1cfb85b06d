"""`python -m benchmarks.comparison [ROW ...] [--flights N] [--seeds N] [--out FILE]`."""

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

from benchmarks.comparison.measuring import data, measured
from benchmarks.comparison.table import BATCH, EPOCHS, LIMIT, ODDS, RATE, ROWS
from tacit._version import __version__
from tacit.disk import write

OUT = Path(__file__).parents[2] / "docs" / "comparison.json"


def main(words: Sequence[str] | None = None) -> int:
    """Measure rows of README's table and put them beside those that the file has."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=main.__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--flights", type=int, default=60_000, metavar="N", help="for training and testing")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="with how many each row is measured")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE")
    given = parser.parse_args(words)
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    common = _common(given.flights)
    before = json.loads(given.out.read_text()) if given.out.exists() else {"rows": {}}
    if before["rows"] and before["common"] != common:
        parser.error(f"{given.out} is of {before['common']}, not of {common}: choose another --out, or delete it")
    measure(given.rows or list(ROWS), given.flights, given.seeds, common, before["rows"], given.out)
    return 0


def measure(
    names: Sequence[str], flights: int, seeds: int, common: Mapping[str, Any], rows: Mapping[str, Any], out: Path
) -> None:
    """Row by row, each written down as soon as it is there."""
    found = dict(rows)
    options = f" --flights {flights}" * (flights != 60_000) + f" --seeds {seeds}" * (seeds != 3)
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawning, torch.set_num_threads, (1,)) as pool:
        for name in names:
            found[name] = {
                **measured(name, flights, range(seeds), pool),
                "measured": {
                    "command": f"python -m benchmarks.comparison {shlex.quote(name)}{options}", **_here(),
                    "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                },
            }  # fmt: skip
            ordered = {one: found[one] for one in ROWS if one in found}
            document = _rounded({"common": common, "rows": ordered})
            write(out, (json.dumps(document, indent=1) + "\n").encode(), durable=False)
            print(f"{name}: test AUC {found[name]['test_auc']['mean']:.3f}", flush=True)


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


def _here() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {device}"
    return {"machine": machine, "version": __version__, "torch": torch.__version__}


if __name__ == "__main__":
    sys.exit(main())
