"""The verb ledger: the ledger of split training, and the books of what left in one exchange and for predictions."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli._options import Folder, Json, Quiet, Run, flag, party_of
from tacit.cli._show import console, leak, plain, print_table
from tacit.cli.predict import predicted_of, print_predictions
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.ledger.ledger import Checked
    from tacit.ledger.summary import RunSummary, Summary

_WIDEST = 40  # signs of the longest bar
_BARS = 12  # lines of the histogram, at most
_CHARGES = 6  # lines of charges, the largest first


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
    if not party.is_dir():
        raise UsageError(f"{party} is no folder: say whose ledger with --folder")
    coins, shipped, predicted = _coins_of(party, check=check), _shipped_of(party), predicted_of(party)
    found: Summary | None = None
    checked: Checked | None = None
    if (party / "ledger" / "log").exists():
        book = Ledger(party / "ledger")
        checked = book.check() if check else None
        found = book.summary()
    elif coins is None and shipped is None:
        raise UsageError(f"{party} has no ledger yet: `tacit train` makes one; say whose folder with --folder")
    if as_json:
        books = {"coins": coins, "embeddings": shipped, "predictions": predicted}
        typer.echo(json.dumps(books if found is None else {**_plain(found, checked), **books}, indent=2))
    else:
        if found is not None:
            _print(found, checked, quiet=quiet)
        if coins is not None:
            _print_coins(coins, quiet=quiet)
        if shipped is not None:
            _print_shipments(shipped)
        if predicted:
            print_predictions(predicted)
    worst, budget = (None, None) if found is None else (found.worst_case, found.budget)
    if worst is not None and budget is not None and worst > budget:
        raise typer.Exit(1)


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
    lines = []
    for place, examples in sorted(sums.items()):
        many = str(place + 1) if width == 1 else f"{place * width + 1} to {(place + 1) * width}"
        lines.append((many, examples, "█" * -(-examples * widest // most)))
    return lines


# --- the books of one-shot training ----------------------------------------------------------------------------------


def _coins_of(party: Path, *, check: bool) -> dict[str, Any] | None:
    if not (party / "coins").exists():
        return None
    from tacit.company.folder import Folder
    from tacit.one_shot.book import open_book

    opened = Folder(party)
    with closing(open_book(party / "coins", opened.secret)) as book:
        checked = dataclasses.asdict(book.check()) if check else None
        found = book.summary()
    return {**dataclasses.asdict(found), "auc": found.auc, "odds": found.odds, "checked": checked}


def _print_coins(told: dict[str, Any], *, quiet: bool) -> None:
    rows = []
    for one in told["releases"]:
        figures = (f"{one['rows']:,}", f"{one['auc']:.4f}", f"{one['odds']:.3f}")
        rows.append([one["run"], one["label"], ", ".join(one["partners"]), *figures])
    head = ["run", "label", "to", "rows", "leak AUC", "odds"]
    print_table("Labels that left, each flipped once for good", head, rows, words=(0, 1, 2))
    screen = console()
    screen.print(
        f"{told['labels']:,} labels are frozen as they were sent. Over all releases together the leak AUC of any "
        f"{told['unit']} is at most {told['auc']:.4f}, and its odds change by at most a factor of {told['odds']:.4g}: "
        "a bound, whoever compares notes."
    )
    if quiet:
        return
    for charge in told["charges"][:_CHARGES]:
        units = told["unit"] if charge["units"] == 1 else f"{told['unit']}s"
        screen.print(f"  {charge['units']:>11,} {units}: AUC {charge['auc']:.4f}, odds {charge['odds']:.4g}")
    if told["checked"] is not None:
        checked = told["checked"]
        releases = "1 release" if checked["releases"] == 1 else f"{checked['releases']:,} releases"
        screen.print(
            f"Checked: all {checked['bits']:,} bits of {releases} are what the secret and the frozen labels give."
        )


def _shipped_of(party: Path) -> dict[str, Any] | None:
    if not (party / "embeddings").exists():
        return None
    from tacit.one_shot.shipments import Shipments

    book = Shipments(party / "embeddings")
    return {"shipments": [dataclasses.asdict(one) for one in book.all()], "versions": book.versions()}


def _print_shipments(told: dict[str, Any]) -> None:
    rows = [
        [one["run"], one["partner"], f"{one['rows']:,}", one["form"], f"{one['worst']:.3f}"]
        for one in told["shipments"]
    ]
    head = ["run", "to", "rows", "form", "read at most"]
    print_table("Embeddings that left, each attacked before", head, rows, words=(0, 1, 3))
    for versions, count in told["versions"].items():
        many = "" if versions == 1 else ", each attacked together with those before it"
        console().print(f"{count:,} rows have left in {versions} version{'' if versions == 1 else 's'}{many}.")
