"""The verb doctor."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tacit.cli._options import Folder, Json, Quiet, Where, party_folder
from tacit.cli._show import console, plain
from tacit.views.progress import one_bar

if TYPE_CHECKING:
    from tacit.company.doctor import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(where: Where = None, folder: Folder = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Check this machine and a party's folder, and say what to do about what is wrong.

    Versions, extras, GPU, clock and disk are those of the machine; keys, certificates, settings, data, port, the way to
    the peer and what runs are those of the folder, which is left out where none is named and none is here. Nothing is
    changed, and nothing is sent but a TLS handshake. With --quiet only what is wrong is told.

    Example: `tacit doctor --folder airline`

    Exit codes: 0 all is well or there are warnings alone, 1 there is a problem.
    """
    from tacit.company.doctor import examine

    named = where is not None or folder is not None
    path = party_folder(where, folder)
    wanted = path if named or (path / "party.toml").is_file() else None
    with one_bar(quiet=quiet, first="looking", unit="checks") as show:
        found = examine(wanted, progress=show)
    worst = "problem" if any(one.verdict == "problem" for one in found) else "ok"
    if as_json:
        typer.echo(json.dumps({"verdict": worst, "checks": [asdict(one) for one in found]}, indent=2))
    else:
        _print([one for one in found if one.verdict != "ok"] if quiet else found)
    if worst == "problem":
        raise typer.Exit(1)


def _print(found: list[Finding]) -> None:
    from rich.markup import escape
    from rich.padding import Padding

    screen = console(110)
    for one in found:
        colour = _COLOURS[one.verdict]
        screen.print(f"[{colour}]{one.verdict:<8}[/{colour}] [bold]{one.name}[/bold]")
        screen.print(Padding(escape(plain(one.seen)), (0, 0, 0, 9)))
        if one.do:
            screen.print(Padding(f"[{colour}]To do:[/{colour}] {escape(plain(one.do))}", (0, 0, 0, 9)))
