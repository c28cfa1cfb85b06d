"""The verbs that set up a party, and renew its keys: init, trust, contract, rotate."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._options import Folder, Json, Quiet, Where, argument, flag, option, party_folder
from tacit.cli._show import groups, print_plan, tell
from tacit.errors import TacitError, UsageError

if TYPE_CHECKING:
    from tacit.company.folder import Folder as PartyFolder
    from tacit.company.plans import Plan
    from tacit.config import Contract, OneShotContract

_COMPARED = "Its fingerprint, to be compared by phone:"


def init(
    folder: Annotated[Path, argument("Where to make it; it may hold data already.", "DIR")],
    role: Annotated[
        Literal["label", "features"], option("`label` has the column to be learnt, `features` has columns that help.")
    ],
    name: Annotated[str | None, option("Of the party. [default: the folder's name]", "NAME")] = None,
    data: Annotated[
        Path | None, option("A data set of the party's own, Parquet or CSV, whose columns are looked at.", "FILE")
    ] = None,
    ids: Annotated[
        list[str] | None, option("A column that names a row, as the partner names it; once for each.", "COLUMN")
    ] = None,
    label: Annotated[str | None, option("The column to be learnt.", "COLUMN")] = None,
    exclude: Annotated[list[str] | None, option("A column that is not used; once for each.", "COLUMN")] = None,
    address: Annotated[
        str | None,
        option("Where the label party listens, or where a feature party finds it. [default: port 7443]", "ADDRESS"),
    ] = None,
    split: Annotated[bool, flag("To train step by step, not in one exchange.", "--split")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a party's folder: keys, a certificate, and a party.toml.

    With --data and --ids (and --label) party.toml is whole: every other column is used as what it is, text, booleans
    and few whole numbers as categories, numbers as numbers, dates as days, weekdays and months; constant columns and
    those that name a row are left out. Keys stay in the folder; nothing that exists is overwritten. The fingerprint
    that is printed is for the peers.

    Examples:

    `tacit init --role label --data customers.parquet --ids customer --label bought bank`

    `tacit init --role features --data visits.csv --ids user --address bank.example.com:7443 media`
    """
    from tacit.company.draft import missing_option, read_data
    from tacit.company.folder import create
    from tacit.wire.certificates import fingerprint

    table, left_out = None, dict[str, str]()
    if label is not None and role == "features":
        raise UsageError("--label is for the label party: leave it out, or write --role label")
    if data is None and (ids or label or exclude):
        raise UsageError("--data is missing: name the table whose columns these are")
    if data is not None and not ids:
        raise missing_option("--ids", "by which column the partner names a row as well", data)
    if data is not None and label is None and role == "label":
        raise missing_option("--label", "which column is to be learnt", data)
    if data is not None:
        table, left_out = read_data(data, folder, ids=ids or (), label=label, exclude=exclude or ())
    made = create(
        folder, role=role, name=name, mode="split" if split else "one_shot", address=address, data=table,
        left_out=left_out,
    )  # fmt: skip
    path, name, mark = made.path, made.identity.name, fingerprint(made.identity.cert_pem)
    others, certificate = "feature parties" if role == "label" else "label party", str(path / f"{name}.crt")
    columns = (
        {} if table is None else {key: getattr(table, key) for key in ("categorical", "numeric", "dates", "times")}
    )
    told = {"name": name, "role": role, "folder": str(path), "fingerprint": mark, "certificate": certificate}
    used = "".join(f"\n  {key:<12}{', '.join(names)}" for key, names in columns.items() if names)
    used += "".join(f"\n  not used    {column or repr(column)}: {why}" for column, why in left_out.items())
    words = (
        f"{name} is a {'label' if role == 'label' else 'feature'} party now, in {path}.\n"
        f"{f'{chr(10)}Its columns, as party.toml says them:{used}{chr(10)}' if used else ''}"
        f"\nFingerprint of its certificate:\n{groups(mark)}\n"
        "\nNext:\n"
        f"  1. Send {certificate} to the {others}, and read the fingerprint out over the phone.\n"
        + ("" if table else f"     Fill in {path / 'party.toml'}.\n")
        + f"  2. tacit trust PEER.crt --folder {path}\n"
        f"  3. One of you: tacit contract --new{' --split' if split else ''} --folder {path}\n"
        "     The others get contract.toml from there, and give tacit contract.\n"
        f"  4. All at once: tacit align --folder {path}\n"
        f"  5. All at once: tacit train --folder {path}"
    )
    tell({**told, **columns, "not_used": left_out}, mark, words, as_json=as_json, quiet=quiet)


def trust(
    certificate: Annotated[Path, argument("The file that the peer sent.", "PEER.crt")],
    folder: Folder = None,
    replace: Annotated[bool, flag("Take the place of another one of that name.", "--replace")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pin a peer's certificate: from now on this one, and no other, is that peer.

    Compare the fingerprint with the peer by phone: it is what makes sure that nobody stands in between.

    Example: `tacit trust airport.crt --folder airline`
    """
    from tacit.company.folder import Folder as PartyFolder

    found = PartyFolder(party_folder(None, folder)).trust(certificate, replace=replace)
    told = {"name": found.name, "fingerprint": found.fingerprint, "until": found.not_after.isoformat()}
    words = f"{found.name} is trusted, until {found.not_after:%Y-%m-%d}.\n\n{_COMPARED}\n{groups(found.fingerprint)}"
    tell(told, found.fingerprint, words, as_json=as_json, quiet=quiet)


def contract(
    where: Where = None,
    folder: Folder = None,
    new: Annotated[bool, flag("Write a contract.toml, as it is recommended.", "--new")] = False,
    split: Annotated[bool, flag("With --new: to train step by step, not in one exchange.", "--split")] = False,
    run: Annotated[str | None, option("With --new: the name of the training. [default: run-1]", "NAME")] = None,
    yes: Annotated[bool, flag("Agree, where nobody can be asked.", "--yes")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what was agreed on and what this party sends under it, check the own table, and ask for the owner's yes.

    The digest must be equal on all sides: compare it by phone. --new writes a contract with the names that are trusted
    there, of one exchange, or of a training step by step with --split; a label party's says what its labels are. All
    parties have the same contract.toml. The yes is asked on a terminal, once, or given with --yes; `tacit align` and
    `tacit train` never ask. With --quiet the digest alone is printed.

    Examples:

    `tacit contract --new --folder airline`

    `tacit contract --folder airline`

    Exit codes: 0 this party is ready, or a yes is missing alone, 1 something is wrong with its folder or its table.
    """
    from tacit.company.agreed import agree, agreed
    from tacit.company.check import check_folder
    from tacit.company.folder import Folder as PartyFolder
    from tacit.company.ways import way_of

    opened = PartyFolder(party_folder(where, folder))
    drafted = opened.draft_contract("split" if split else "one_shot", run=run or "run-1") if new else None
    if run is not None and not new:
        raise UsageError(f"--run is for --new: for another run of this contract give tacit align --run {run}")
    terms, lacks, plan = opened.terms, None, None
    if drafted is not None and not as_json and not quiet:
        typer.echo(f"{drafted} is written: look at it, and give it to all parties.\n")
    try:
        check_folder(opened)
        plan = way_of(terms).plan(opened)
    except TacitError as error:
        lacks = str(error)
    if yes and lacks is None:
        agree(opened)
    if as_json:
        told = {"contract": terms.model_dump(mode="json"), "digest": terms.digest, "lacks": lacks}
        typer.echo(json.dumps({**told, "plan": plan and asdict(plan), "agreed": agreed(opened)}, indent=2))
    elif quiet:
        typer.echo(terms.digest)
    else:
        _print_contract(terms)
        _print_yes(opened, plan, lacks)
    if lacks is not None and not new:
        raise typer.Exit(1)


def _print_yes(opened: PartyFolder, plan: Plan | None, lacks: str | None) -> None:
    """What the owner agrees to, and whether that is done; on a terminal it is asked."""
    from tacit.company.agreed import agree, agreed
    from tacit.company.check import doubts

    name, command = opened.config.name, f"tacit contract --yes --folder {opened.path}"
    if plan is None:
        typer.echo(f"\nNot ready yet:\n{indent(lacks or '', '  ')}")
        return
    if opened.config.data is not None and opened.table.query is None:
        plan = replace(plan, warnings=(*plan.warnings, *doubts(opened, opened.data)))
    print_plan(f"What {name} sends", plan)
    if agreed(opened) is None and _on_terminal() and typer.confirm(f"\nDoes {name} agree to that?"):
        agree(opened)
    when = agreed(opened)
    typer.echo(
        f"\n{name} has not agreed yet: {command}" if when is None else f"\n{name} is ready, and agreed on {when}."
    )


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _print_contract(agreed: Contract | OneShotContract) -> None:
    lines = {
        "run": agreed.run,
        "label party": agreed.label_party,
        "feature parties": ", ".join(agreed.feature_parties),
        "test rows": agreed.test_words,
        "ids of a side": f"{agreed.alignment.smallest_set:,} to {agreed.alignment.largest_set:,}",
    }
    if agreed.mode == "one_shot":
        told = agreed.exchange
        numbers = f"numbers from {told.low} to {told.high} in {told.cells} cells"
        lines |= {
            "mode": "one-shot: randomized labels are sent once, embeddings once",
            "labels": numbers if told.target == "number" else f"{told.classes} classes",
            "sent of a label": "nothing" if told.labels == "none" else "one flip, for good",
            "rare class": told.rare,
            "counted by": told.unit,
            "sent back": f"of each row {told.form}, by each feature party",
        }
    else:
        cuts = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in agreed.cut.widths.items())
        lines |= {
            "mode": "split: embeddings go forward and gradients back, step by step",
            "cut": cuts,
            "training": f"{agreed.epochs} epochs of batches of {agreed.batch_size}, loss {agreed.loss}",
            "least protection": ", ".join(map(str, (agreed.minimum.gradient, *agreed.minimum.embedding))),
            "told at epoch ends": ", ".join(agreed.share.metrics) or "nothing",
        }
    for what, value in lines.items():
        typer.echo(f"{what:<20}{value}")
    typer.echo(f"\nDigest, which must be equal on all sides:\n{groups(agreed.digest)}")


def rotate(
    where: Where = None,
    folder: Folder = None,
    now: Annotated[bool, flag("Take the prepared certificate into use; all peers have it.", "--now")] = False,
    days: Annotated[int, option("How long the new certificate is valid.", "N", min=1, max=1100)] = 825,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a new key and certificate for this party; its runs, its peers and its noise secret stay.

    Without --now it prepares: send the new certificate to the peers and compare the fingerprint by phone, while
    training goes on. Then, at a time that was agreed on, stop on all sides, give it with --now here and
    `tacit trust FILE --replace` there, and go on.

    Examples:

    `tacit rotate --folder airline`

    `tacit rotate --now --folder airline`
    """
    from tacit.company.folder import Folder as PartyFolder
    from tacit.company.rotation import next_certificate, prepare, switch

    opened = PartyFolder(party_folder(where, folder))
    found = switch(opened) if now else prepare(opened, days=days)
    path, until = None if now else next_certificate(opened), f"{found.not_after:%Y-%m-%d}"
    told = {"name": found.name, "fingerprint": found.fingerprint, "until": until, "in_use": now}
    compared = f"{_COMPARED}\n{groups(found.fingerprint)}"
    if path is None:
        words = f"{found.name} has a new certificate, until {until}; the old key is gone.\n\n{compared}"
    else:
        words = (
            f"{path} is the next certificate of {found.name}, until {until}. Send it to the peers; the present one "
            f"goes on working.\n\n{compared}\n\nNext, when all have it:\n"
            f"  here:  tacit rotate --now --folder {opened.path}\n"
            f"  peers: tacit trust {path.name} --replace"
        )
    document = {**told, "certificate": None if path is None else str(path)}
    tell(document, found.fingerprint, words, as_json=as_json, quiet=quiet)
