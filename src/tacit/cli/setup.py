"""The verbs that set up a party: init, trust, contract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._show import Folder, groups
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.config import Contract


def init(
    folder: Annotated[Path, typer.Argument(help="Where to make it; it may hold data already.", metavar="DIR")],
    role: Annotated[
        Literal["label", "features"],
        typer.Option(help="`label` has the column to be learnt, `features` has columns that help."),
    ],
    name: Annotated[str | None, typer.Option(help="Of the party. [default: the folder's name]")] = None,
) -> None:
    """Make a party's folder: keys, a certificate, and a commented party.toml.

    Example: `tacit init --role label airline`. Keys stay in the folder; nothing that exists is overwritten.
    """
    from tacit.party.folder import create
    from tacit.wire.certificates import fingerprint

    made = create(folder, role=role, name=name)
    own = made.identity
    others = "feature parties" if role == "label" else "label party"
    typer.echo(
        f"{own.name}: {made.path} is ready, with the role {role!r}.\n"
        f"  {made.path / 'party.toml'}: settings of this party, to be filled in\n"
        f"  {made.path / f'{own.name}.crt'}: certificate, for the others\n"
        f"  {made.path / 'keys'}: private, never to leave this machine\n"
        f"\nFingerprint of the certificate:\n{groups(fingerprint(own.cert_pem))}\n"
        "\nNext:\n"
        f"  1. Send {own.name}.crt to the {others}, and read the fingerprint out on the phone.\n"
        f"  2. tacit trust PEER.crt --folder {made.path}\n"
        f"  3. Fill in party.toml.\n"
        f"  4. Agree on one contract: tacit contract --new --folder {made.path}"
    )


def trust(
    certificate: Annotated[Path, typer.Argument(help="The file that the peer sent.", metavar="PEER.crt")],
    folder: Folder = Path(),
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of another one of that name.")] = False,
) -> None:
    """Pin a peer's certificate: from now on this one, and no other, is that peer.

    Example: `tacit trust airport.crt --folder airline`. Compare the fingerprint with the peer on the phone: it is what
    makes sure that nobody stands in between.
    """
    from tacit.party.folder import Folder as PartyFolder

    found = PartyFolder(folder).trust(certificate, replace=replace)
    typer.echo(
        f"{found.name} is trusted, until {found.not_after:%Y-%m-%d}.\n"
        f"\nIts fingerprint, to be compared on the phone:\n{groups(found.fingerprint)}"
    )


def contract(
    folder: Folder = Path(),
    new: Annotated[bool, typer.Option("--new", help="Write a commented contract.toml to start from.")] = False,
) -> None:
    """Show what was agreed on, with the digest that must be equal on all sides.

    Examples: `tacit contract --new --folder airline` writes a draft with the names that are trusted there;
    `tacit contract --folder airline` shows it. All parties have the same contract.toml.
    """
    from tacit.party.folder import Folder as PartyFolder

    opened = PartyFolder(folder)
    if new:
        typer.echo(f"{opened.draft_contract()} is written: fill it in, and give it to all parties.\n")
    agreed = opened.contract
    _print_contract(agreed)
    try:
        opened.check_pair(agreed)
    except TacitError as error:
        typer.echo(f"\nNot ready yet: {error}")
    else:
        typer.echo(f"\n{opened.config.name} is ready for it.")


def _print_contract(agreed: Contract) -> None:
    cuts = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in agreed.cut.widths.items())
    lines = {
        "run": agreed.run,
        "label party": agreed.label_party,
        "feature parties": ", ".join(agreed.feature_parties),
        "cut": f"{cuts}, {agreed.cut.dtype}",
        "training": f"{agreed.epochs} epochs of batches of {agreed.batch_size}, loss {agreed.loss}",
        "test rows": f"{agreed.test_share:.0%} of the common ones",
        "ids of a side": f"{agreed.alignment.smallest_set:,} to {agreed.alignment.largest_set:,}",
        "least protection": ", ".join(map(str, (agreed.minimum.gradient, *agreed.minimum.embedding))),
        "told at epoch ends": ", ".join(agreed.share.metrics) or "nothing",
    }
    for what, value in lines.items():
        typer.echo(f"{what:<20}{value}")
    typer.echo(f"\nDigest, which must be equal on all sides:\n{groups(agreed.digest)}")
