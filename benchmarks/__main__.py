"""`python -m benchmarks [NAME ...] [--json] [--record]`; see `make bench`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

import benchmarks
from tacit.disk import replaced
from tacit.errors import UsageError

RECORD = Path(__file__).parents[1] / "docs" / "benchmarks.json"
"""What docs/results.md shows: of each benchmark the last results that were recorded."""


def main(words: list[str] | None = None) -> int:
    """Measure speed, as ratios side by side in one run; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(benchmarks.names())}; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--record", action="store_true", help=f"write what was measured to {RECORD.name} of the docs")
    given = parser.parse_args(words)
    measured: dict[str, list[benchmarks.Result]] = {}
    try:
        for name in given.names or benchmarks.names():
            for result in benchmarks.run(name):
                measured.setdefault(name, []).append(result)
                if not given.json:
                    print(_line(result), flush=True)
    except UsageError as error:
        parser.error(str(error))
    if given.record:
        _record(measured)
    results = [result for some in measured.values() for result in some]
    if given.json:
        print(json.dumps([result.as_dict() for result in results], indent=2))
    return int(any(result.holds is False for result in results))


def _record(measured: Mapping[str, Sequence[benchmarks.Result]]) -> None:
    """Put results in the place of what was recorded of the same benchmarks."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    machine = f"{where} at load {os.getloadavg()[1]:.0f}, torch {torch.__version__}"
    for name, results in measured.items():
        told = [{key: value for key, value in one.as_dict().items() if key != "bench"} for one in results]
        known[name] = {"date": datetime.now(UTC).date().isoformat(), "machine": machine, "results": told}
    text = json.dumps(known, indent=1, sort_keys=True) + "\n"
    replaced(RECORD, lambda file: file.write(text.encode()), durable=False)


def _line(result: benchmarks.Result) -> str:
    value = f"{result.value:.3g} {result.unit}"
    if result.goal is None:
        return f"{result.bench:10}{value:>14}  {result.case}"
    kept = "holds" if result.holds else "missed"
    return f"{result.bench:10}{value:>14}  {result.case} (goal {result.goal:.3g} {result.unit}: {kept})"


if __name__ == "__main__":
    sys.exit(main())
