"""The verb export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli._options import Folder, Json, Override, Quiet, Reason, Run, option, party_folder


def export(
    out: Annotated[Path, option("The safetensors file, or folder, to write.", "FILE", "--out")],
    run: Run = None,
    folder: Folder = None,
    override: Override = None,
    reason: Reason = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy this party's trained half out of its run, with its verdict in the file's metadata.

    Whatever the umask, only its owner can read it. Of a training in one exchange it is a folder: the label party's
    private model, with and without partners, or the feature party's bottom and ranks; about.json has the metadata.
    A run that broke its limit, or whose limit nobody has judged, is refused with exit code 1. Who lets it out all the
    same is on record in the run's folder and in its report.

    Examples:

    `tacit export --folder airline --out top.safetensors`

    `tacit export --folder airline --out top.safetensors --override "A. Owner" --reason "test data only"`
    """
    from tacit.company.export import export as let_out

    path = let_out(party_folder(run, folder), out, override=override, reason=reason)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "override": override}))
    elif quiet:
        typer.echo(str(path))
    else:
        typer.echo(f"{path} holds this party's half" + ("; the override is on record" if override else ""))
