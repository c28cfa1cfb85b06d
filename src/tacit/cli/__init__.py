"""The command line: thin, it composes and decides nothing. Heavy things are imported where they are used."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tacit._version import __version__
from tacit.cli._ending import DEBUG, Verbs, end_with
from tacit.cli._options import flag
from tacit.cli.audit import audit
from tacit.cli.check import check
from tacit.cli.demo import demo
from tacit.cli.ledger import ledger
from tacit.cli.predict import export, predict, serve
from tacit.cli.run import align, status, train
from tacit.cli.setup import contract, init, rotate, trust
from tacit.cli.sweep import choose, sweep
from tacit.cli.watch import dashboard

app = typer.Typer(
    name="tacit", cls=Verbs, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def tacit(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.", metavar="")
    ] = False,
    debug: Annotated[bool, flag(f"Show a traceback with every error; {DEBUG}=1 does the same.", "--debug")] = False,
) -> None:
    """Companies train one model on their joint data without exchanging rows; leakage is measured and limited.

    Begin with `tacit demo`; the docs are in docs/ of the repository. Every verb has --help with an example, --json and
    --quiet.

    Exit codes: 0 done, 1 a finding or a broken limit, 2 wrong use or a full disk, 3 peer or network, 70 a bug of ours,
    130 interrupted.
    """
    if debug:
        os.environ[DEBUG] = "1"


PANELS = {
    "Between companies": (init, trust, rotate, contract, check, align, train, status, predict, serve, export),
    "Seeing what leaks": (demo, audit, ledger, dashboard),
    "Lab": (sweep, choose),
}
"""The verbs, as the help groups them."""

for panel, verbs in PANELS.items():
    for verb in verbs:
        app.command(rich_help_panel=panel)(verb)


def main() -> None:
    """The `tacit` command: a user's mistake is one line on the error stream and an exit code, never a traceback."""
    end_with(lambda: app(prog_name="tacit", standalone_mode=False))
