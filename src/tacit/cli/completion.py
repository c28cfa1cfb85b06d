"""The verb completion, and what the shell asks when a user presses the tab key."""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from importlib import metadata
from typing import Annotated, Literal

import typer

from tacit._version import __version__
from tacit.cli._options import Json, Quiet
from tacit.errors import UsageError

__all__ = ["completion", "ready_for_completion"]

_VARIABLE = "_TACIT_COMPLETE"
_KEPT = {
    "bash": "~/.local/share/bash-completion/completions/tacit",
    "zsh": "a folder of $fpath, as _tacit",
    "fish": "~/.config/fish/completions/tacit.fish",
}


def ready_for_completion() -> None:
    """Teach typer its shells, where a shell asks for completions."""
    if _VARIABLE in os.environ:
        with suppress(ImportError, AttributeError):  # a typer that keeps them elsewhere completes nothing
            importlib.import_module("typer._completion_classes").completion_init()


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell.", metavar="bash|zsh|fish")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the script that completes verbs, options and names in your shell.

    Examples:

    `source <(tacit completion bash)`

    `tacit completion fish > ~/.config/fish/completions/tacit.fish`
    """
    script = _script(shell)
    if as_json:
        typer.echo(json.dumps({"shell": shell, "script": script}))
        return
    typer.echo(script)
    if not quiet and sys.stdout.isatty():
        typer.echo(f"# To keep it, write it to {_KEPT[shell]}", err=True)


def _script(shell: str) -> str:
    """As typer has it; its own place for it is no promise of typer's, so another version may have another."""
    try:
        make = importlib.import_module("typer._completion_shared").get_completion_script
        return str(make(prog_name="tacit", complete_var=_VARIABLE, shell=shell))
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(
            f"typer {metadata.version('typer')} has no completion that tacit {__version__} knows ({error}): install "
            "another version of typer, or go on without"
        ) from None
