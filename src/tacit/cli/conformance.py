"""The verb conformance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli._options import Json, Quiet, argument, complete, flag, option
from tacit.cli._show import attack_rows, console, leak, make_folder, narrow, print_table
from tacit.errors import UsageError
from tacit.views.progress import one_bar

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.lab.conformance import Conformance


def conformance(  # typer reads each option from a parameter
    file: Annotated[str, argument("The Python file; file.py:factory where it has several.", "FILE[:FACTORY]")],
    option: Annotated[
        list[str] | None, option("What the factory is called with.", "NAME=VALUE", "--option", "-o")
    ] = None,
    limit: Annotated[
        float | None,
        option("What no attack may reach: a leak AUC; for embeddings, the share that a decoder reads.", "AUC"),
    ] = None,
    data: Annotated[
        str,
        option(
            "A data set that needs no files: flights, or generated:NAME.",
            "NAME",
            autocompletion=complete(lambda: ["flights", "generated:adult", "generated:credit"]),
        ),
    ] = "flights",
    rows: Annotated[int, option("Use only so many rows.", "N", min=1000)] = 16000,
    quick: Annotated[bool, flag("The contract alone: no training, no attacks.", "--quick")] = False,
    out: Annotated[Path | None, option("Keep conformance.json in DIR.", "DIR")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
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

    if out is not None:
        make_folder(out)
    with one_bar(quiet=quiet, first=f"loading {file}") as show:
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


def options_of(pairs: list[str]) -> dict[str, object]:
    """Options as they stand on a command line; numbers, true, false and none are read as such.

    >>> options_of(["scale=4", "noise=uniform", "clip=none"])
    {'scale': 4, 'noise': 'uniform', 'clip': None}
    """
    from tacit.lab.sweeping.settings import value_of

    options: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not key.isidentifier():
            raise UsageError(f"--option {pair!r} is no option: write it as name=value")
        if key in options:
            raise UsageError(f"--option gives {key} twice: leave one of them out")
        options[key] = value_of(text)
    return options


def _print(found: Conformance) -> None:
    from rich.markup import escape

    screen = console(110)
    rows = []
    for one in found.outcomes:
        mark = "[green]passed[/green]" if one.passed else "[red]FAILS[/red]"
        rows.append([one.name.replace("_", " "), mark, escape(one.detail if one.passed else "see below")])
    print_table(
        f"{escape(found.loaded.spelled)} and the contract", ["check", "", "what was tried"], rows,
        words=(0, 2), on=screen,
    )  # fmt: skip
    if found.attacked:
        _print_attacked(screen, found)
    failed = [one for one in found.outcomes if not one.passed]
    for one in failed:
        screen.print(f"[red bold]{one.name.replace('_', ' ')}[/red bold]")
        said = {"asked": one.asks, "expected": one.expected, "happened": one.detail, "to do": one.remedy}
        for name, text in said.items():
            screen.print(f"  [bold]{name}[/bold]: {escape(text or '')}")
        screen.print()
    screen.print(
        f"{len(failed)} of {len(found.outcomes)} checks fail." if failed else f"All {len(found.outcomes)} checks pass.",
        style="red" if failed else "green",
    )
    if not failed and found.limit is None and found.data is not None:
        screen.print("Attacks were not judged: give a --limit to hold them against.")


def _print_attacked(screen: Console, found: Conformance) -> None:
    """What every attack reached, or every decoder read, yours in the first column, ours beside it."""
    limit, embedding = found.limit, found.kind == "embedding"
    title = f"What attacks reach on {found.data} (leak AUC)"
    rows = attack_rows(found.attacked)
    if embedding:
        title = f"What decoders read of the inputs of {found.data}, up to"
        every = zip(*(one.findings for one in found.attacked), strict=True)
        rows = [[each[0].attack, *(f"{finding.held:.1%}" for finding in each)] for each in every]
    rows.append(None)
    if not embedding:
        rows += [
            ["[bold]worst attack", *(f"[bold]{narrow(one.highest.attack)}" for one in found.attacked)],
            ["[bold]counts as up to", *(f"[bold]{leak(one.highest.held)}" for one in found.attacked)],
        ]
    if limit is not None:
        rows.append([f"[bold]holds {limit:g}", *("yes" if one.holds(limit) else "no" for one in found.attacked)])
    rows.append(["test AUC of the model", *(f"{one.test_auc:.3f}" for one in found.attacked)])
    print_table(title, ["attack", *(narrow(one.protection) for one in found.attacked)], rows, on=screen)
    if limit is not None:
        held = ", ".join(one.protection for one in found.attacked[1:] if one.holds(limit)) or "none of them"
        screen.print(f"Of ours, {held} holds {limit:g} on these rows.", markup=False)
    for name, reason in found.attacked[0].skipped.items():
        screen.print(f"Not tried: {name}: {reason}.", markup=False)
