"""The verb bench."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli._names import complete, modules
from tacit.cli._options import Json, Quiet
from tacit.cli._progress import one_bar
from tacit.cli._tables import print_table

if TYPE_CHECKING:
    from tacit.bench import Result


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Benchmarks to run. [default: all]",
            metavar="NAME",
            autocompletion=complete(lambda: modules("bench")),
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed, as ratios side by side in one run.

    There are attack, audit, embedding, loaders, parties, protect, solver, step and sweep. A ratio of 1.2x means 1.2
    times as long as what it is compared with. Where a goal is set, a figure that misses it is marked, and the exit code
    is 1.

    Example: `tacit bench solver step`
    """
    import tacit.bench as benchmarks

    results: list[Result] = []
    wanted = names or benchmarks.names()
    with one_bar(quiet=quiet, first="measuring", unit="benchmarks") as show:
        for done, name in enumerate(wanted):
            show(f"measuring {name}", done, len(wanted))
            results += list(benchmarks.run(name))
    if as_json:
        typer.echo(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        _print_bench(results)
    if any(result.holds is False for result in results):
        raise typer.Exit(1)


def _print_bench(results: list[Result]) -> None:
    rows = []
    for result in results:
        goal = "" if result.goal is None else f"{result.goal:.3g} {result.unit}"
        mark = {None: "", True: "[green]holds", False: "[red]missed"}[result.holds]
        rows.append([result.bench, result.case, f"{result.value:.3g} {result.unit}", goal, mark])
    print_table(None, ["bench", "case", "value", "goal", ""], rows, words=(0, 1))
