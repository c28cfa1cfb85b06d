"""The book of a label party's coins, as `tacit ledger` shows it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tacit.cli._tables import console, print_table

_SHOWN = 6  # lines of charges, the largest first


def told_of(party: Path, *, check: bool) -> dict[str, Any] | None:
    """What the book says, as values that JSON has; None where there is none."""
    if not (party / "coins").exists():
        return None
    from tacit.company.folder import Folder
    from tacit.one_shot.book import open_book

    book = open_book(party / "coins", Folder(party).secret)
    try:
        checked = dataclasses.asdict(book.check()) if check else None
        found = book.summary(Folder(party).config.delta)
    finally:
        book.close()
    return {**dataclasses.asdict(found), "auc": found.auc, "odds": found.odds, "checked": checked}


def print_coins(told: dict[str, Any], *, quiet: bool) -> None:
    """The releases, and what they add up to."""
    print_table(
        "Labels that left, each flipped once for good",
        ["run", "label", "to", "rows", "leak AUC", "odds"],
        [
            [
                one["run"],
                one["label"],
                ", ".join(one["partners"]),
                f"{one['rows']:,}",
                f"{one['auc']:.4f}",
                f"{one['odds']:.3f}",
            ]
            for one in told["releases"]
        ],
        words=(0, 1, 2),
    )
    screen = console()
    screen.print(
        f"{told['labels']:,} labels are frozen as they were sent. Over all releases together the leak AUC of any "
        f"{told['unit']} is at most {told['auc']:.4f}, and its odds change by at most a factor of {told['odds']:.4g}: "
        "a bound, whoever compares notes."
    )
    if quiet:
        return
    for charge in told["charges"][:_SHOWN]:
        units = told["unit"] if charge["units"] == 1 else f"{told['unit']}s"
        screen.print(f"  {charge['units']:>11,} {units}: AUC {charge['auc']:.4f}, odds {charge['odds']:.4g}")
    if told["checked"] is not None:
        checked = told["checked"]
        screen.print(
            f"Checked: all {checked['bits']:,} bits of {checked['releases']} releases are what the secret and the "
            "frozen labels give."
        )


def shipped_of(party: Path) -> dict[str, Any] | None:
    """What the book of a feature party's embeddings says, as values that JSON has; None where there is none."""
    if not (party / "embeddings").exists():
        return None
    from tacit.one_shot.shipments import Shipments

    book = Shipments(party / "embeddings")
    return {"shipments": [dataclasses.asdict(one) for one in book.all()], "versions": book.versions()}


def print_shipments(told: dict[str, Any]) -> None:
    """Embeddings and groups that left, and of how many rows in several versions."""
    rows = [
        [one["run"], one["partner"], f"{one['rows']:,}", one["form"], f"{one['worst']:.3f}"]
        for one in told["shipments"]
    ]
    head = ["run", "to", "rows", "form", "read at most"]
    print_table("Embeddings, groups and sums that left, each attacked or bounded before", head, rows, words=(0, 1, 3))
    for versions, count in told["versions"].items():
        many = "" if versions == 1 else ", each attacked together with those before it"
        console().print(f"{count:,} rows have left in {versions} version{'' if versions == 1 else 's'}{many}.")
