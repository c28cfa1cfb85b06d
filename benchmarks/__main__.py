"""`python -m benchmarks [NAME ...] [--json]`; see `make bench`."""

from __future__ import annotations

import argparse
import json
import sys

import benchmarks
from tacit.errors import UsageError


def main(words: list[str] | None = None) -> int:
    """Measure speed, as ratios side by side in one run; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(benchmarks.names())}; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    given = parser.parse_args(words)
    results: list[benchmarks.Result] = []
    try:
        for name in given.names or benchmarks.names():
            for result in benchmarks.run(name):
                results.append(result)
                if not given.json:
                    print(_line(result), flush=True)
    except UsageError as error:
        parser.error(str(error))
    if given.json:
        print(json.dumps([result.as_dict() for result in results], indent=2))
    return int(any(result.holds is False for result in results))


def _line(result: benchmarks.Result) -> str:
    value = f"{result.value:.3g} {result.unit}"
    if result.goal is None:
        return f"{result.bench:10}{value:>14}  {result.case}"
    kept = "holds" if result.holds else "missed"
    return f"{result.bench:10}{value:>14}  {result.case} (goal {result.goal:.3g} {result.unit}: {kept})"


if __name__ == "__main__":
    sys.exit(main())
