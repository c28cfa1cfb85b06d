"""The verb rotate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli._show import Folder, groups


def rotate(
    folder: Folder = Path(),
    now: Annotated[bool, typer.Option("--now", help="Take the prepared certificate into use; all peers have it.")] = (
        False
    ),
    days: Annotated[int, typer.Option(min=1, help="How long the new certificate is valid.")] = 825,
) -> None:
    """Make a new key and certificate for this party; its runs, its peers and its noise secret stay.

    First `tacit rotate --folder airline`, which prepares: send the new certificate to the peers and compare the
    fingerprint on the phone, while training goes on. Then, at a time that was agreed on, stop on all sides, give
    `tacit rotate --now --folder airline` here and `tacit trust FILE --replace` there, and go on.
    """
    from tacit.party.folder import Folder as PartyFolder
    from tacit.party.rotating import next_certificate, prepare, switch

    opened = PartyFolder(folder)
    if now:
        found = switch(opened)
        typer.echo(f"{found.name} has a new certificate, until {found.not_after:%Y-%m-%d}; the old key is gone.")
    else:
        found = prepare(opened, days=days)
        typer.echo(
            f"{next_certificate(opened)} is the next certificate of {found.name}, until {found.not_after:%Y-%m-%d}. "
            "Send it to the peers; the present one goes on working."
        )
    typer.echo(f"\nIts fingerprint, to be compared on the phone:\n{groups(found.fingerprint)}")
    if not now:
        typer.echo(
            "\nNext, when all have it:\n"
            f"  here:  tacit rotate --now --folder {opened.path}\n"
            f"  peers: tacit trust {next_certificate(opened).name} --replace"
        )
