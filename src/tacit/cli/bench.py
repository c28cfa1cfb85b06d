"""The verb bench."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli._show import progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from tacit.bench import Result


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks to run. [default: all]", metavar="NAME")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of the table.")] = False,
) -> None:
    """Measure speed, as ratios side by side in one run: attack, audit, embedding, loaders, parties,
    protect, solver, step, sweep.

    A ratio of 1.2x means 1.2 times as long as what it is compared with. Where a goal is set, a figure that misses it
    is marked, and the exit code is 1.
    """
    import tacit.bench as benchmarks

    results = []
    with progress_bar(quiet=as_json) as bar:
        task = bar.add_task("", total=None)
        for name in names or benchmarks.names():
            bar.update(task, description=f"bench {name}")
            results += list(benchmarks.run(name))
    if as_json:
        typer.echo(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        _print_bench(results)
    if any(result.holds is False for result in results):
        raise typer.Exit(1)


def _print_bench(results: list[Result]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table: Table = Table(box=box.SIMPLE_HEAD)
    for name in ("bench", "case"):
        table.add_column(name)
    for name in ("value", "goal", ""):
        table.add_column(name, justify="right")
    for result in results:
        goal = "" if result.goal is None else f"{result.goal:.3g} {result.unit}"
        mark = {None: "", True: "[green]holds", False: "[red]missed"}[result.holds]
        table.add_row(result.bench, result.case, f"{result.value:.3g} {result.unit}", goal, mark)
    Console().print(table)
