"""The verb track."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli._options import Json, Quiet, Runs, flag, option, run_folders
from tacit.cli._show import plain
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.views.track import Export, Tables

_PAUSE = 2.0  # seconds between two looks


def track(
    to: Annotated[Literal["tensorboard", "mlflow", "parquet"], option("What the figures are written for.")],
    out: Annotated[str, option("A folder; with mlflow also the http(s) URI of a server.", "DIR")],
    runs: Runs = None,
    experiment: Annotated[str, option("Of MLflow.", "NAME")] = "tacit",
    follow: Annotated[bool, flag("Go on until all runs are finished, or Ctrl-C.", "--follow")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the figures of runs and sweeps for TensorBoard, for MLflow, or as Parquet files.

    Utility, every leak with its interval, limits, strengths, pace, facts, decisions; for MLflow also the report. What
    is there already is not written again, so the command can be given as often as one likes. MLflow without a server is
    a folder: sqlite: and other databases need `pip install mlflow`, of which `tacit[tracking]` installs a part.

    Examples:

    `tacit track airline --to tensorboard --out logs --follow`

    `tacit track airline --to mlflow --out https://mlflow.example.org`

    `tacit track runs --to parquet --out tables`
    """
    roots = run_folders(runs)
    if to != "mlflow" and "://" in out:
        raise UsageError(f"--out {out} is an address: --to {to} writes to a folder of this machine")
    export = _export(to, roots, out, experiment)
    try:
        export.update()
        if follow and not export.finished:
            if not quiet:
                many = len(export.readers)
                what = "1 run or sweep" if many == 1 else f"{many} runs and sweeps"
                typer.echo(f"Following {what}; Ctrl-C ends it", err=True)
            with suppress(KeyboardInterrupt):  # which is how one ends it
                while not export.finished:
                    time.sleep(_PAUSE)
                    export.update()
    finally:
        export.close()
    for problem in export.problems.values():
        typer.echo(f"tacit: {plain(problem)}", err=True)
    _tell(export, to, out, as_json=as_json, quiet=quiet)


def _export(to: str, roots: list[Path], out: str, experiment: str) -> Export | Tables:
    from tacit.views.track import Export, MLflow, Tables, TensorBoard

    if to == "parquet":
        return Tables(roots, out)
    if to == "mlflow":
        return Export(roots, lambda place, name: MLflow(out, run=name, experiment=experiment, place=place))
    return Export(roots, lambda place, name: TensorBoard(out, run=f"{name} {place}".replace(" / ", "-")))


def _tell(export: Export | Tables, to: str, out: str, *, as_json: bool, quiet: bool) -> None:
    from tacit.views.report.words import count
    from tacit.views.track import Tables

    summary: dict[str, Any] = {"to": to, "out": out}
    if isinstance(export, Tables):
        summary |= {"rows": export.rows, "sweeps": [str(path) for path in export.sweeps]}
    else:
        summary |= {
            "runs": [{"id": place, "name": export.names[place], "new": new} for place, new in export.brought.items()]
        }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    elif quiet:
        typer.echo(out)
    elif isinstance(export, Tables):
        for name, many in export.rows.items():
            typer.echo(f"{Path(out) / name}.parquet: {count(many, 'row')}")
        for path in export.sweeps:
            typer.echo(f"{path / 'results.parquet'} is a sweep's table, and Parquet already: it stays there")
    else:
        for place, many in export.brought.items():
            typer.echo(f"{plain(export.names[place])}: {count(many, 'new figure')}")
        typer.echo(_LOOK[to].format(out=out) if "://" not in out else f"They are at {out}")


_LOOK = {
    "tensorboard": "Look at them with `tensorboard --logdir {out}`",
    "mlflow": "Look at them with `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {out}`; that page comes "
    "with `pip install mlflow`",
}
