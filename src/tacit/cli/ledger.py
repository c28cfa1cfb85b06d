"""The verb ledger."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli._coins import print_coins, print_shipments, shipped_of, told_of
from tacit.cli._options import Folder, Json, Quiet, Run, flag, party_of
from tacit.cli._show import leak, plain
from tacit.cli._tables import console, print_table
from tacit.cli.predict import predicted_of, print_predictions
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.ledger.ledger import Checked
    from tacit.ledger.summary import RunSummary, Summary

_WIDEST = 40  # signs of the longest bar
_BARS = 12  # lines of the histogram, at most


def ledger(
    run: Run = None,
    folder: Folder = None,
    check: Annotated[bool, flag("Read all of it and see that nothing was changed or left out.", "--check")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what has been spent of every example, over all runs of this party: visits, worst case, budget.

    Of one-shot trainings it shows the book of a label party: every release, and the bound that all of them together
    have come to, by unit; there --check draws every bit that ever left again, from the secret and the frozen labels. Of
    a feature party it shows which embeddings left, and of how many rows in several versions. Of either it shows what
    left for predictions.

    Works while a training is going on. Exit code 1 where the worst case is above the budget, 2 where the ledger is
    damaged.

    Example: `tacit ledger --folder airline --check`
    """
    from tacit.ledger.ledger import Ledger

    party = party_of(run, folder)
    where = party / "ledger"
    coins, shipped, predicted = told_of(party, check=check), shipped_of(party), predicted_of(party)
    if not (where / "log").exists():
        if coins is None and shipped is None:
            raise UsageError(f"{party} has no ledger yet: `tacit train` makes one; say whose folder with --folder")
        if as_json:
            typer.echo(json.dumps({"coins": coins, "embeddings": shipped, "predictions": predicted}, indent=2))
        else:
            _print_books(coins, shipped, predicted, quiet=quiet)
        return
    book = Ledger(where)
    checked = book.check() if check else None
    found = book.summary()
    if as_json:
        books = {"coins": coins, "embeddings": shipped, "predictions": predicted}
        typer.echo(json.dumps({**_plain(found, checked), **books}, indent=2))
    else:
        _print(found, checked, quiet=quiet)
        _print_books(coins, shipped, predicted, quiet=quiet)
    if found.budget is not None and found.worst_case is not None and found.worst_case > found.budget:
        raise typer.Exit(1)


def _print_books(
    coins: dict[str, Any] | None, shipped: dict[str, Any] | None, predicted: list[dict[str, Any]], *, quiet: bool
) -> None:
    if coins is not None:
        print_coins(coins, quiet=quiet)
    if shipped is not None:
        print_shipments(shipped)
    if predicted:
        print_predictions(predicted)


def _plain(found: Summary, checked: Checked | None) -> dict[str, Any]:
    """Everything as values that JSON has: figures as leak AUC, since a sumKL may be infinite."""
    whole = dataclasses.asdict(found)
    for line in whole["each"]:
        line["worst_case"] = _figure(line.pop("sum_kl"))
    return {**whole, "checked": None if checked is None else dataclasses.asdict(checked)}


def _figure(sum_kl: float | None) -> float | None:
    from tacit.ledger.summary import auc_of

    return None if sum_kl is None else auc_of(sum_kl)


def _print(found: Summary, checked: Checked | None, *, quiet: bool) -> None:
    head = ("run", "mechanism", "rows", "epochs", "steps", "tests", "answers", "worst case")
    print_table("The ledger: what was answered", head, [_cells(line) for line in found.each], words=(0, 1))
    screen = console()
    budget = "none set" if found.budget is None else f"{found.budget:.3f}"
    worst = "not known" if found.worst_case is None else leak(found.worst_case)
    screen.print(
        f"{found.examples} examples, {found.answers} answers about them in {found.runs} "
        f"{'run' if found.runs == 1 else 'runs'}; the most visited one {found.most_visits} times.\n"
        f"Worst case of a row's own messages over all visits and runs (leak AUC): {worst}; budget: {budget}."
    )
    if quiet:
        return
    for visits, examples, bar in _bars(found.visits, max(8, min(_WIDEST, screen.width - 38))):
        screen.print(f"  {visits:>13} {'visit ' if visits == '1' else 'visits'}  {examples:>11}  {bar}")
    for note in found.notes:
        screen.print(f"Note: {plain(note)}.", markup=False)
    said = f"Head of the chain: {found.head}"
    if checked is not None:
        said += f"; {checked.records} records, {checked.bytes} bytes, all as they were written"
        said += f"; the last {checked.torn} bytes are being written" if checked.torn else ""
    screen.print(said + ".", soft_wrap=True)


def _cells(line: RunSummary) -> tuple[str, ...]:
    from rich.markup import escape

    figure = _figure(line.sum_kl)
    worst = "not known" if figure is None else leak(figure)
    counts = (line.rows, line.epochs, line.trained, line.evaluated, line.answers)
    return escape(plain(line.name)), escape(plain(", ".join(line.mechanisms))), *(str(count) for count in counts), worst


def _bars(visits: dict[int, int], widest: int) -> list[tuple[str, int, str]]:
    """A line for each number of visits; where there are many, for each of a few ranges of the same width."""
    if not visits:
        return []
    width = -(-max(visits) // _BARS)
    sums: dict[int, int] = {}
    for count, examples in visits.items():
        sums[(count - 1) // width] = sums.get((count - 1) // width, 0) + examples
    most = max(sums.values())
    return [
        (
            str(place + 1) if width == 1 else f"{place * width + 1} to {(place + 1) * width}",
            examples,
            "█" * -(-examples * widest // most),
        )
        for place, examples in sorted(sums.items())
    ]
