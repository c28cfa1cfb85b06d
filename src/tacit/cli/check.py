"""The verb check."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from tacit.cli._options import Folder, Json, Quiet, Where, party_folder
from tacit.cli._show import console, plain

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def check(where: Where = None, folder: Folder = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say what `contract`, `align` and `train` would refuse about a party's folder, and what to do about it.

    Keys, certificates, settings, contract, all rows of the own table, what would be sent, the port and the way to the
    peer; all mistakes at once, a sentence each. Nothing is changed, and nothing is sent but a TLS handshake. With
    --quiet only what is wrong is told.

    Example: `tacit check --folder airline`

    Exit codes: 0 all is well or there are warnings alone, 1 there is a problem.
    """
    from rich.markup import escape
    from rich.padding import Padding

    from tacit.company.ready import checks

    found = []
    screen = console(110)
    for one in checks(party_folder(where, folder)):
        found.append(one)
        if not as_json and (one.verdict != "ok" or not quiet):
            colour = _COLOURS[one.verdict]
            screen.print(f"[{colour}]{one.verdict:<8}[/{colour}] [bold]{escape(plain(one.name))}[/bold]")
            for line in one.words.splitlines():
                screen.print(Padding(escape(plain(line)), (0, 0, 0, 9)))
    worst = "problem" if any(one.verdict == "problem" for one in found) else "ok"
    if as_json:
        typer.echo(json.dumps({"verdict": worst, "checks": [asdict(one) for one in found]}, indent=2))
    if worst == "problem":
        raise typer.Exit(1)
