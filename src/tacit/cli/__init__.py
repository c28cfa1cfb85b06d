"""The command line: thin, it composes and decides nothing. Heavy things are imported where they are used."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tacit._version import __version__
from tacit.cli.audit import audit
from tacit.cli.bench import bench
from tacit.cli.conformance import conformance
from tacit.cli.days import days
from tacit.cli.demo import demo
from tacit.cli.export import export
from tacit.cli.figures import figures
from tacit.cli.lab import lab
from tacit.cli.ledger import ledger
from tacit.cli.run import align, status, train
from tacit.cli.setup import contract, init, trust
from tacit.cli.sweep import choose, sweep
from tacit.errors import LimitError, LinkError, ProtocolError, TacitError

__all__ = ["app", "main"]

app = typer.Typer(
    name="tacit",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def tacit(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Split learning that attacks itself while it trains, and keeps the leak under a limit.

    Exit codes: 0 done, 1 a finding or a broken limit, 2 wrong use or a full disk, 3 peer or network.
    """


_VERBS = (
    demo, init, trust, contract, align, train, status, audit, ledger, export, conformance, bench, sweep, choose, days,
    figures,
)  # fmt: skip
for verb in _VERBS:
    app.command()(verb)
app.add_typer(lab)


def main() -> None:
    """The `tacit` command: a user's mistake is one line on the error stream and an exit code, never a traceback."""
    try:
        app()
    except TacitError as error:
        typer.echo(f"tacit: {error}", err=True)
        sys.exit(3 if isinstance(error, LinkError | ProtocolError) else 1 if isinstance(error, LimitError) else 2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        remedy = (
            "look at who owns it" if isinstance(error, PermissionError) else "look at the disk, and at what is there"
        )
        typer.echo(f"tacit: {where}{error.strerror or error}: {remedy}, then give the same command again", err=True)
        sys.exit(2)
