"""The verb conformance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli._show import Json, leak, make_folder, one_bar

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.lab.conformance import Conformance, Outcome


def conformance(
    file: Annotated[
        str, typer.Argument(help="The Python file; file.py:factory where it has several.", metavar="FILE[:FACTORY]")
    ],
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="What the factory is called with.", metavar="NAME=VALUE")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="What no attack may reach: a leak AUC; for embeddings, the share that a decoder reads.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(help="What to train on: flights, or generated:NAME.", metavar="NAME")
    ] = "flights",
    rows: Annotated[int, typer.Option(min=1000, help="Use so many rows of it.")] = 16000,
    quick: Annotated[bool, typer.Option("--quick", help="The contract alone: no training, no attacks.")] = False,
    out: Annotated[Path | None, typer.Option(help="Keep conformance.json in DIR.", metavar="DIR")] = None,
    as_json: Json = False,
) -> None:
    """Examine a protection that you wrote: does it keep the contract, and what do attacks make of it?

    FILE has a function that returns a protection of gradients (init, update, call) or of embeddings (transform,
    regularizer). First every rule of the contract is checked on made-up batches: shapes, randomness, odd batches on
    which it must not fail open, state, report. Then a small model trains under it, every attack is tried on what was
    sent, and the same is done under protections of ours.

    Example: `tacit conformance my_protection.py --option strength=4 --limit 0.6`

    Exit codes: 0 every check passed, 1 something fails, 2 wrong use. Takes about a minute, with --quick seconds.
    """
    from tacit.lab.conformance import run
    from tacit.lab.conformance.loading import options_of

    if out is not None:
        make_folder(out)
    with one_bar(quiet=as_json, first=f"loading {file}") as show:
        found = run(file, options_of(option or []), limit=limit, data=data, rows=rows, quick=quick, progress=show)
    document = json.dumps(found.as_dict(), indent=2)
    if out is not None:
        (out / "conformance.json").write_text(document + "\n")
    if as_json:
        typer.echo(document)
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(1)


def _print(found: Conformance) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.width = min(console.width, 110)
    table = Table(box=box.SIMPLE_HEAD, title=f"{found.loaded.spelled} and the contract")
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("what was tried")
    for one in found.outcomes:
        mark = "[green]passed[/green]" if one.passed else "[red]FAILS[/red]"
        table.add_row(mark, one.name.replace("_", " "), _escaped(one.detail if one.passed else "see below"))
    console.print(table)
    _print_attacked(console, found)
    _print_read(console, found)
    failed = [one for one in found.outcomes if not one.passed]
    for one in failed:
        _print_failure(console, one)
    console.print(
        f"{len(failed)} of {len(found.outcomes)} checks fail." if failed else f"All {len(found.outcomes)} checks pass.",
        style="red" if failed else "green",
    )
    if not failed and found.limit is None and found.data is not None:
        console.print("Attacks were not judged: give a --limit to hold them against.")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_failure(console: Console, one: Outcome) -> None:
    console.print(f"[red bold]{one.name.replace('_', ' ')}[/red bold]")
    for name, text in (
        ("asked", one.asks),
        ("expected", one.expected),
        ("happened", one.detail),
        ("to do", one.remedy),
    ):
        console.print(f"  [bold]{name}[/bold]: {_escaped(text or '')}")
    console.print()


def _print_attacked(console: Console, found: Conformance) -> None:
    """What every attack reached, yours in the first column, ours beside it."""
    if not found.attacked:
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=f"What attacks reach on {found.data} (leak AUC)")
    table.add_column("attack", no_wrap=True)
    for one in found.attacked:
        name, _, options = one.protection.removesuffix(")").partition("(")
        table.add_column(f"{name}\n{options}", justify="right", overflow="fold")
    for finding in found.attacked[0].findings:
        here = [{other.attack: other for other in one.findings}.get(finding.attack) for one in found.attacked]
        table.add_row(finding.attack, *("" if one is None else leak(one.leak.value) for one in here))
        if finding.baseline is not None and finding.baseline != finding.leak:
            alone = [None if one is None else one.baseline for one in here]
            table.add_row("  (embedding alone)", *("" if one is None else f"{one.value:.3f}" for one in alone))
    table.add_section()
    table.add_row("[bold]worst attack", *(f"[bold]{one.worst.attack}" for one in found.attacked))
    table.add_row("[bold]counts as up to", *(f"[bold]{leak(one.worst.held)}" for one in found.attacked))
    if found.limit is not None:
        limit = found.limit
        table.add_row(f"[bold]holds {limit:g}", *("yes" if one.holds(limit) else "no" for one in found.attacked))
    table.add_row("test AUC of the model", *(f"{one.test_auc:.3f}" for one in found.attacked))
    console.print(table)
    if found.limit is not None:
        beside = found.attacked[1:]
        held = ", ".join(one.protection for one in beside if one.holds(found.limit)) or "none of them"
        console.print(f"Of ours, {held} holds {found.limit:g} on these rows.", markup=False)
    for name, reason in found.attacked[0].skipped.items():
        console.print(f"Not tried: {name}: {reason}.", markup=False)


def _print_read(console: Console, found: Conformance) -> None:
    """What every decoder read, yours in the first column, ours beside it."""
    if not found.read:
        return
    from rich import box
    from rich.table import Table

    from tacit.lab.conformance.reading import up_to

    table = Table(box=box.SIMPLE_HEAD, title=f"What decoders read of the inputs of {found.data}, up to")
    table.add_column("attack", no_wrap=True)
    for one in found.read:
        table.add_column(one.protection, justify="right", overflow="fold")
    for place, finding in enumerate(found.read[0].findings):
        table.add_row(finding.attack, *(f"{up_to(one.findings[place]):.1%}" for one in found.read))
    table.add_section()
    table.add_row("test AUC of the model", *(f"{one.test_auc:.3f}" for one in found.read))
    console.print(table)
