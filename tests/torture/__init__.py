"""`make torture`: two parties as real processes that are killed, cut off, lied to and given broken disks.

Whatever happens, both end with the models of the run that nobody disturbed, bit for bit, and every step has had one
answer; what must be refused is refused with its name, and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Make the trials and print what came of them; the exit code is 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=main.__doc__)
    parser.add_argument("--kills", type=int, default=500, help="how often a process is killed in all (default: 500)")
    parser.add_argument(
        "--one-shot-kills",
        type=int,
        default=200,
        help="likewise, of parties that train in one exchange (default: 200)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the tables, and of when and where is killed")
    parser.add_argument("--only", default="", metavar="NAMES", help="trials with one of these words in their names")
    parser.add_argument("--out", type=Path, default=Path("runs/torture"), metavar="DIR", help="for torture.json")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(words)

    from tacit.errors import UsageError
    from tests.torture.trials import chosen, run, summary

    try:
        names = chosen(options.only)
    except UsageError as error:
        parser.error(str(error))
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tacit-torture-"))
    with _bar() as progress:
        outcomes = run(
            folder, names, count=options.kills, one_shot=options.one_shot_kills, seed=options.seed, progress=progress
        )
    found = summary(outcomes, seed=options.seed)
    (options.out / "torture.json").write_text(json.dumps(found, indent=2) + "\n")
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    if found["passed"]:
        shutil.rmtree(folder)
    else:
        print(f"what failed is left in {folder}", file=sys.stderr)
    return 0 if found["passed"] else 1


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on the error stream, so that what is piped on is the result alone."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<46}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)


def _print(found: Mapping[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("trial", "", "what was seen"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    group = ""
    for each in found["trials"]:
        if group not in ("", each["group"]):
            table.add_section()
        group = each["group"]
        mark = "[green]holds[/green]" if each["passed"] else "[red]FAILED[/red]"
        table.add_row(each["name"], mark, each["said"].replace("[", r"\["), f"{each['seconds']:.1f}")
    console = Console()
    console.print(table)
    if found["kills_survived"]:
        _print_kills(console, next(each["figures"] for each in found["trials"] if each["group"] == "kills"))


def _print_kills(console: Any, figures: Mapping[str, Any]) -> None:
    points = ", ".join(f"{point} {count}" for point, count in figures["by_point"].items())
    console.print(
        f"{figures['kills']} kills survived in {figures['trainings']} trainings; models identical; at most "
        f"{figures['distinct_answers']} distinct answer to a step; from start to the first new turn "
        f"{figures['recovery_median_s']:.2f} s (median), {figures['recovery_p95_s']:.2f} s (95%); "
        f"{figures['connections']} connections.\nWhere: {points}",
        soft_wrap=True,
    )
