"""The verb completion, and what the shell asks when a user presses the tab key."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Literal

import typer

from tacit.cli._options import Json, Quiet

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
        from typer._completion_classes import completion_init

        completion_init()


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
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="tacit", complete_var=_VARIABLE, shell=shell)
    if as_json:
        typer.echo(json.dumps({"shell": shell, "script": script}))
        return
    typer.echo(script)
    if not quiet and sys.stdout.isatty():
        typer.echo(f"# To keep it, write it to {_KEPT[shell]}", err=True)
