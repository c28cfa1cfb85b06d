"""The verb dashboard, which shows runs while they go on."""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli._options import Json, Quiet, Runs, flag, option, run_folders
from tacit.disk import replaced
from tacit.errors import UsageError
from tacit.report.words import count

if TYPE_CHECKING:
    from tacit.report.web.serving import Dashboard


def dashboard(
    runs: Runs = None,
    host: Annotated[str, option("Where to listen.", "HOST")] = "127.0.0.1",
    port: Annotated[int | None, option("0 for any. [default: 7860, or the next free]", "N", min=0, max=65535)] = None,
    token_file: Annotated[
        Path | None, option("Keep the token here, for a fixed one; made if missing. [default: a fresh one]", "FILE")
    ] = None,
    allow_remote: Annotated[bool, flag("Let --host be one that other machines reach.", "--allow-remote")] = False,
    opened: Annotated[bool, flag("Open the page in a browser.", "--open/--no-open")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show runs on a page in the browser, while they go on.

    The page is for this machine alone and for who has the token in its address; it reads the folders, and can change
    nothing in them. The same token, as a bearer, opens /metrics for Prometheus. Ctrl-C ends it.

    Examples:

    `tacit dashboard runs`

    `tacit dashboard airline --port 7000 --open`
    """
    from tacit.listening import is_loopback
    from tacit.report.web.access import token_in
    from tacit.report.web.serving import Dashboard

    roots = run_folders(runs)
    remote = not is_loopback(host)
    if remote and not allow_remote:
        raise UsageError(
            f"--host {host} can be reached from other machines: give --allow-remote if that is meant, or stay at "
            "127.0.0.1 and reach it through `ssh -L`"
        )
    token = None if token_file is None else token_in(token_file)
    server = Dashboard(roots, host=host, port=port, token=token)
    if remote:
        typer.echo(
            "tacit: the page goes over plain HTTP: whoever can listen in on the network between reads it, its token "
            f"too; safer is `ssh -L {server.port}:127.0.0.1:{server.port}` to a page at 127.0.0.1",
            err=True,
        )
    _tell(server, roots, as_json=as_json, quiet=quiet)
    with _browser(server.access.address if opened else None):
        server.run()


def _tell(server: Dashboard, roots: list[Path], *, as_json: bool, quiet: bool) -> None:
    """Say where the page is, before anything is served, and before a large tree is looked through."""
    address = server.access.address
    if as_json:
        told = {"address": address, "port": server.port, "token": server.access.token}
        typer.echo(json.dumps({**told, "places": len(server.shelf.places())}))
        return
    typer.echo(address)
    if quiet:
        return
    places = len(server.shelf.places())
    where = ", ".join(str(path.resolve()) for path in roots)
    if places:
        typer.echo(f"{count(places, 'run')} under {where}; Ctrl-C ends it")
    else:
        typer.echo(
            f"No run is under {where} yet: it appears on the page once `tacit train` begins there; Ctrl-C ends it"
        )


@contextmanager
def _browser(address: str | None) -> Iterator[None]:
    """Open a page by way of a file that only its owner can read: a program's arguments can be read by everybody."""
    if address is None:
        yield
        return
    import webbrowser

    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        way = Path(folder) / "page.html"
        text = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(address)}">'
        replaced(way, lambda file: file.write(text.encode()), durable=False)
        if not webbrowser.open(way.as_uri()):
            typer.echo("tacit: no browser could be opened: open the address above yourself", err=True)
        yield
