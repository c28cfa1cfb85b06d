"""`tacit audit`: what the other side could learn, after the fact, of our runs and of anybody's messages."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from tacit.cli._show import Json, Quiet, make_folder, one_bar, print_report
from tacit.errors import UsageError

_SPELLED = "a file, or FILE:NAME where it holds several things"


def audit(
    run: Annotated[
        Path | None, typer.Argument(help="A run's folder, or that of a party with one run.", show_default=False)
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="The party's folder.", metavar="DIR")] = None,
    gradients: Annotated[
        str | None, typer.Option(help=f"What a feature party received: {_SPELLED}.", metavar="FILE")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="The label of each row, of two kinds.", metavar="FILE")] = None,
    ids: Annotated[
        str | None, typer.Option(help="The example in each row, for those that come again.", metavar="FILE")
    ] = None,
    embeddings: Annotated[str | None, typer.Option(help="What the feature party sent.", metavar="FILE")] = None,
    clean: Annotated[str | None, typer.Option(help="Gradients before they were protected.", metavar="FILE")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="What the embeddings are made of, for --side label.", metavar="FILE")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Of files that are not batched.")] = 1024,
    side: Annotated[
        str | None,
        typer.Option(help="Who is looking: `features` is after labels, `label` after features.", metavar="SIDE"),
    ] = None,
    limit: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="That no attack may pass; a run has its own.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where report.json and report.html go; a run's folder if not given.", metavar="DIR"),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attack what was sent with everything there is, and write a report.

    Of a run it replays what the party recorded, also while the training goes on: a label party learns what its
    gradients gave away about labels, a feature party what its embeddings gave away about its columns. Of anybody
    else's system it takes the messages as files: .npy, .npz, .safetensors, .parquet, .csv, .pt.

    Examples:

    `tacit audit --folder airline`

    `tacit audit --gradients g.npy --labels y.npy --limit 0.6 --out report`

    `tacit audit --gradients run.parquet:grad --labels run.parquet:clicked --ids run.parquet:user --out report`

    `tacit audit --side label --embeddings z.safetensors --inputs x.npy --out report`

    Exit codes: 0 done, 1 a limit is broken or could not be judged, 2 wrong use.
    """
    files = {
        "gradients": gradients, "labels": labels, "ids": ids, "embeddings": embeddings, "clean": clean,
        "inputs": inputs,
    }  # fmt: skip
    given = [name for name, value in files.items() if value is not None]
    where = run if run is not None else folder
    looking = _side(side)
    if run is not None and folder is not None:
        raise UsageError("RUN and --folder say the same: give one of them")
    if given and where is not None:
        raise UsageError(f"--{given[0]} is somebody else's, and {where} is a run of ours: give one of them")
    if not given and where is None:
        raise UsageError("there is nothing to audit: give a run's folder, or files with --gradients and --labels")
    if given and out is None:
        raise UsageError("--out is missing: say in which folder report.json and report.html are to be written")
    from tacit.party.replaying import audit_files, audit_run, find_run
    from tacit.report.rendering import write

    target = out if out is not None else find_run(where or Path())[1]
    make_folder(target)
    repeat = (shlex.join(["tacit", *sys.argv[1:]]),)
    with one_bar(quiet=quiet or as_json, first="reading") as show:
        if where is None:
            report = audit_files(
                side=looking or "features", limit=limit, repeat=repeat, progress=show, batch_size=batch_size, **files
            )
        else:
            report = audit_run(where, side=looking, limit=limit, repeat=repeat, progress=show)
    paths = write(report, target)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_report(report, paths)
    if report.verdict in ("broken", "not judged"):
        raise typer.Exit(1)


def _side(side: str | None) -> Literal["features", "label"] | None:
    if side == "features":
        return "features"
    if side == "label":
        return "label"
    if side is None:
        return None
    raise UsageError(
        f"--side {side} is unknown: it is `features`, who is after labels, or `label`, who is after features"
    )
