"""`python -m papers NAME ...`: draw figures and tables of the papers from runs of your own; see `make papers`.

`python -m papers claims` measures what the papers claim (`papers.claims`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from papers import page
from papers.claims.__main__ import main as measure_claims
from papers.making import Made, make, make_from
from papers.recipes import Asked
from papers.registry import FIGURES, chosen
from tacit.arguments import device_named
from tacit.cli._show import print_table
from tacit.errors import TacitError, UsageError
from tacit.lab import data as data_sets
from tacit.lab.sweeping.recipe import PAPERS as PAPERS_OF
from tacit.lab.sweeping.recipe import checked_rate
from tacit.lab.sweeping.results import read

SMALL_ROWS = 30_000
"""Rows of the small scale, if no other number is given."""


def main(words: Sequence[str] | None = None) -> int:
    """Draw every figure and table of the papers from runs of your own.

    Trains what the named figures need, each training once and kept under --out, and draws each as PNG with its numbers
    as CSV. Where the axes agree the authors' published points are a second layer. Attacks that the papers did not have
    stand beside theirs. Figures by day take three seeds at least, for their bands.
    """
    words = list(sys.argv[1:] if words is None else words)
    if words[:1] == ["claims"]:
        return measure_claims(words[1:])
    asked = _parser().parse_args(words)
    if asked.list:
        _print_list(as_json=asked.json)
        return 0
    try:
        made = _made(asked)
    except TacitError as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps([one.as_dict() for one in made], indent=2))
        return 0
    for one in made:
        print(f"{one.name}: {f'not drawn: {one.skipped}' if one.skipped else one.picture or one.numbers}")
    print(f"Everything on one page: {asked.out / 'summary.md'}")
    return 0


def _made(asked: argparse.Namespace) -> list[Made]:
    """What was asked for; mistakes are said before there is a folder."""
    if not asked.names:
        raise UsageError("name the figures to draw, or `all`: `python -m papers --list` has the names")
    chosen(asked.names, asked.data)
    asked.out = asked.out or Path("runs") / f"papers-{asked.data.replace(':', '-').replace('/', '-')}"
    if asked.results is not None:
        read(asked.results)
        asked.out.mkdir(parents=True, exist_ok=True)
        return make_from(asked.names, asked.results, asked.out)
    rate, device = checked_rate(asked.learning_rate), device_named(asked.device)
    rows, sample = taken(asked.data, asked.scale, asked.rows, asked.sample)
    loaded = data_sets.load(asked.data, folder=asked.folder, rows=rows, sample=sample, cache=asked.cache)
    asked.out.mkdir(parents=True, exist_ok=True)
    limited = None if asked.rows is None and asked.sample is None else len(loaded.train) + len(loaded.test)
    wanted = Asked(loaded, asked.scale, asked.epochs, asked.seeds, asked.seed, device, rate, limited)
    return make(asked.names, wanted, asked.out, path=asked.folder, progress=_Told(asked.quiet))


def taken(data: str, scale: str, rows: int | None, sample: float | None) -> tuple[int | None, float | None]:
    """How many rows are used at most, and which share of them: what was asked for, else what belongs to the scale.

    The papers draw a tenth of Criteo's rows (Li 2022, appendix A.6.1), and take all of their other data sets.

    >>> taken("criteo", "paper", None, None), taken("avazu", "paper", None, None), taken("criteo", "small", None, None)
    ((None, 0.1), (None, None), (30000, None))
    """
    if rows is None and sample is None:
        return (None, PAPERS_OF[data].sample if data in PAPERS_OF else None) if scale == "paper" else (SMALL_ROWS, None)
    return rows, sample


class _Told:
    """Says on the error stream what is being done, once for each thing."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._last = quiet, ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._quiet and what != self._last:
            print(what, file=sys.stderr, flush=True)
        self._last = what


def _print_list(*, as_json: bool) -> None:
    """Every figure, with the columns of docs/ref-papers.md."""
    if as_json:
        listed = [{**row._asdict(), "needs": getattr(FIGURES.get(row.name), "needs", "")} for row in page.rows()]
        print(json.dumps(listed, indent=2))
        return
    print_table(None, page.COLUMNS, [[escape(cell) for cell in row] for row in page.rows()], words=range(1, 8))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m papers", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="as --list has them, or all")
    parser.add_argument("--list", action="store_true", help="name all figures and what each shows, and stop")
    parser.add_argument("--data", default="flights", metavar="NAME", help="a data set (default: flights)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the data set's files are")
    parser.add_argument("--rows", type=int, metavar="N", help=f"default: {SMALL_ROWS:,}; all at --scale paper")
    parser.add_argument(
        "--sample", type=float, metavar="SHARE",
        help="of the rows, drawn at random (default: all; 0.1 for criteo at --scale paper, as in the papers)",
    )  # fmt: skip
    parser.add_argument("--epochs", type=int, metavar="N", help="default: the scale's own")
    parser.add_argument(
        "--scale", choices=("small", "paper"), default="small",
        help="small takes minutes on two cores; paper has the papers' batches, epochs and strengths",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="of each setting (default: 1)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first one (default: 0)")
    parser.add_argument("--learning-rate", type=float, metavar="X", help="of Adam; default: the scale's own")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where large data sets are kept encoded")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto (the default)")
    parser.add_argument("--from", dest="results", type=Path, metavar="FILE", help="draw from this file of a sweep")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for all of it (default: runs/papers-DATA)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--quiet", "-q", action="store_true", help="do not tell what is being done")
    return parser


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, as after `| head`: what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
