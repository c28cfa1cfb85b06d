"""The verb ledger: the books of what was sent in alignments, in one exchange and for predictions."""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli._options import Folder, Json, Quiet, Run, flag, party_of
from tacit.cli._show import console, print_table
from tacit.cli.predict import print_predictions, records_of
from tacit.errors import UsageError

_CHARGES = 6  # lines of charges, the largest first


def ledger(
    run: Run = None,
    folder: Folder = None,
    check: Annotated[bool, flag("Work out again all labels and cells that ever left.", "--check")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what was sent in alignments, in one exchange and for predictions, over all runs of this party.

    First come alignments: each told a partner which of its ids are common. Of a label party it shows every release,
    and the bound that all of them together have come to, by unit; --check draws every bit that ever left again, from
    the secret and the frozen labels. Of a feature party it shows which embeddings left, and of how many rows in several
    versions; --check compares every cell that ever left with what the row's columns give, where these are as they were,
    and counts the other rows. Of either it shows what was sent for predictions.

    Works while a training is going on. Exit code 2 where a book is damaged.

    Example: `tacit ledger --folder airline --check`
    """
    from tacit.company.departures import alignments
    from tacit.company.facts import ALIGNMENT, PREDICTION

    party = party_of(run, folder)
    if not party.is_dir():
        raise UsageError(f"{party} is no folder: say whose ledger with --folder")
    coins, shipped = _coins_of(party, check=check), _shipped_of(party, check=check)
    predicted = records_of(party, PREDICTION)
    aligned = [one.model_dump() for one in alignments(records_of(party, ALIGNMENT))]
    if coins is None and shipped is None and not predicted and not aligned:
        raise UsageError(f"{party} has no ledger yet: an alignment makes one; say whose folder with --folder")
    if as_json:
        books = {"alignments": aligned, "coins": coins, "embeddings": shipped, "predictions": predicted}
        typer.echo(json.dumps(books, indent=2))
        return
    if aligned:
        rows = [[one["time"], one["to"], one["what"], f"{one['rows']:,}"] for one in aligned]
        print_table("Alignments: what partners were told", ["when", "to", "what", "common"], rows, words=(0, 1, 2))
    if coins is not None:
        _print_coins(coins, quiet=quiet)
    if shipped is not None:
        _print_shipments(shipped)
    if predicted:
        print_predictions(predicted)


def _coins_of(party: Path, *, check: bool) -> dict[str, Any] | None:
    if not (party / "coins").exists():
        return None
    from tacit.company.folder import Folder
    from tacit.labels.book import open_book

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
    print_table("Labels that were sent, each randomized once and for good", head, rows, words=(0, 1, 2))
    screen = console()
    screen.print(
        f"{told['labels']:,} labels are frozen as they were sent. Over all releases together the leak AUC of any "
        f"{told['unit']} is at most {told['auc']:.4f}, and its odds change by at most a factor of {told['odds']:.4g} "
        f"(epsilon {math.log(told['odds']):.3f}): a bound, whoever compares notes."
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


def _shipped_of(party: Path, *, check: bool) -> dict[str, Any] | None:
    if not (party / "embeddings").exists():
        return None
    from tacit.company.shipments import Shipments

    book, checked = Shipments(party / "embeddings"), None
    if check:
        from tacit.company.folder import Folder
        from tacit.exchange.checked import check_sent

        checked = dataclasses.asdict(check_sent(Folder(party), book))
    shipments = [dataclasses.asdict(one) for one in book.all()]
    return {"shipments": shipments, "versions": book.versions(), "checked": checked}


def _print_shipments(told: dict[str, Any]) -> None:
    rows = [
        [one["run"], one["partner"], f"{one['rows']:,}", one["form"], f"{one['worst']:.3f}"]
        for one in told["shipments"]
    ]
    head = ["run", "to", "rows", "form", "recovered, at most"]
    print_table("Embeddings that were sent, each attacked before", head, rows, words=(0, 1, 3))
    for versions, count in told["versions"].items():
        many = "" if versions == 1 else ", each attacked together with those before it"
        console().print(f"{count:,} rows have left in {versions} version{'' if versions == 1 else 's'}{many}.")
    if (checked := told["checked"]) is not None:
        console().print(
            f"Checked: the cells of {checked['same']:,} rows are what their columns give. Not to be compared: "
            f"{checked['changed']:,} rows whose columns have changed since, {checked['gone']:,} that are not in the "
            f"table, and {checked['others']:,} of runs whose model or columns are not here."
        )
