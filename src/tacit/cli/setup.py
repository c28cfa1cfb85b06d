"""The verbs that set up a party, and renew its keys: init, trust, contract, rotate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._options import Folder, Json, Quiet, Where, argument, flag, option, party_folder
from tacit.cli._show import groups, tell
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.config import Contract, OneShotContract

_COMPARED = "Its fingerprint, to be compared on the phone:"


def init(
    folder: Annotated[Path, argument("Where to make it; it may hold data already.", "DIR")],
    role: Annotated[
        Literal["label", "features"], option("`label` has the column to be learnt, `features` has columns that help.")
    ],
    name: Annotated[str | None, option("Of the party. [default: the folder's name]", "NAME")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a party's folder: keys, a certificate, and a commented party.toml.

    Keys stay in the folder; nothing that exists is overwritten. The fingerprint that is printed is for the peers.

    Example: `tacit init --role label airline`
    """
    from tacit.company.folder import create
    from tacit.wire.certificates import fingerprint

    made = create(folder, role=role, name=name)
    path, name, mark = made.path, made.identity.name, fingerprint(made.identity.cert_pem)
    others, certificate = "feature parties" if role == "label" else "label party", str(path / f"{name}.crt")
    told = {"name": name, "role": role, "folder": str(path), "fingerprint": mark, "certificate": certificate}
    words = (
        f"The {'label' if role == 'label' else 'feature'} party {name} is ready.\n"
        f"  {path / 'party.toml'}: settings of this party, to be filled in\n"
        f"  {certificate}: certificate, for the others\n"
        f"  {path / 'keys'}: private, never to leave this machine\n"
        f"\nFingerprint of the certificate:\n{groups(mark)}\n"
        "\nNext:\n"
        f"  1. Send {name}.crt to the {others}, and read the fingerprint out on the phone.\n"
        f"  2. tacit trust PEER.crt --folder {path}\n"
        f"  3. Fill in party.toml.\n"
        f"  4. Agree on one contract: tacit contract --new --folder {path}\n"
        f"  5. See whether everything is in place: tacit doctor --folder {path}"
    )
    tell(told, mark, words, as_json=as_json, quiet=quiet)


def trust(
    certificate: Annotated[Path, argument("The file that the peer sent.", "PEER.crt")],
    folder: Folder = None,
    replace: Annotated[bool, flag("Take the place of another one of that name.", "--replace")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pin a peer's certificate: from now on this one, and no other, is that peer.

    Compare the fingerprint with the peer on the phone: it is what makes sure that nobody stands in between.

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
    new: Annotated[bool, flag("Write a commented contract.toml to start from.", "--new")] = False,
    split: Annotated[bool, flag("With --new: to train step by step, not in one exchange.", "--split")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what was agreed on, with the digest that must be equal on all sides; and whether the own table fits it.

    --new writes a draft with the names that are trusted there, of a training in one exchange, or step by step with
    --split. All parties have the same contract.toml. With --quiet the digest alone is printed.

    Examples:

    `tacit contract --new --folder airline`

    `tacit contract --folder airline`
    """
    from tacit.align.ids import read_ids
    from tacit.company.check import check_table
    from tacit.company.folder import Folder as PartyFolder

    opened = PartyFolder(party_folder(where, folder))
    drafted = opened.draft_contract("split" if split else "one_shot") if new else None
    agreed = opened.terms
    lacks = None
    try:
        opened.check_pair(agreed)
        if opened.config.data is not None and opened.data.is_file():  # of a query nothing is here yet
            check_table(opened, opened.data, read_ids(opened.data, opened.table.ids))
    except TacitError as error:
        lacks = str(error)
    if as_json:
        told = {"contract": agreed.model_dump(mode="json"), "digest": agreed.digest, "lacks": lacks}
        typer.echo(json.dumps(told, indent=2))
        return
    if quiet:
        typer.echo(agreed.digest)
        return
    if drafted is not None:
        typer.echo(f"{drafted} is written: fill it in, and give it to all parties.\n")
    _print_contract(agreed)
    typer.echo(f"\n{opened.config.name} is ready for it." if lacks is None else f"\nNot ready yet: {lacks}")


def _print_contract(agreed: Contract | OneShotContract) -> None:
    from tacit.views.report.words import count

    lines = {
        "run": agreed.run,
        "label party": agreed.label_party,
        "feature parties": ", ".join(agreed.feature_parties),
        "test rows": f"{agreed.test_share:.0%} of the common ones",
        "ids of a side": f"{agreed.alignment.smallest_set:,} to {agreed.alignment.largest_set:,}",
    }
    if agreed.mode == "one_shot":
        told = agreed.exchange
        numbers = f"numbers from {told.low} to {told.high} in {told.cells} cells"
        lines |= {
            "mode": "one-shot: labels are flipped once, embeddings are sent once",
            "labels": numbers if told.target == "number" else f"{told.classes} classes",
            "rare class": told.rare,
            "counted by": told.unit,
            "sent back": f"{count(told.width, 'number')} a row, by each feature party",
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

    Without --now it prepares: send the new certificate to the peers and compare the fingerprint on the phone, while
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
