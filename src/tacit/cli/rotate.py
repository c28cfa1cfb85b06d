"""The verb rotate."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tacit.cli._options import Folder, Json, Quiet, Where, party_folder
from tacit.cli._show import groups


def rotate(
    where: Where = None,
    folder: Folder = None,
    now: Annotated[
        bool, typer.Option("--now", help="Take the prepared certificate into use; all peers have it.", metavar="")
    ] = False,
    days: Annotated[
        int, typer.Option(min=1, max=1100, help="How long the new certificate is valid.", metavar="N")
    ] = 825,
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
    until = f"{found.not_after:%Y-%m-%d}"
    if as_json:
        told = {"name": found.name, "fingerprint": found.fingerprint, "until": until, "in_use": now}
        typer.echo(json.dumps({**told, "certificate": None if now else str(next_certificate(opened))}))
        return
    if quiet:
        typer.echo(found.fingerprint)
        return
    if now:
        typer.echo(f"{found.name} has a new certificate, until {until}; the old key is gone.")
    else:
        typer.echo(
            f"{next_certificate(opened)} is the next certificate of {found.name}, until {until}. "
            "Send it to the peers; the present one goes on working."
        )
    typer.echo(f"\nIts fingerprint, to be compared on the phone:\n{groups(found.fingerprint)}")
    if not now:
        typer.echo(
            "\nNext, when all have it:\n"
            f"  here:  tacit rotate --now --folder {opened.path}\n"
            f"  peers: tacit trust {next_certificate(opened).name} --replace"
        )
