"""The verbs that show runs while they go on: dashboard and track."""

from __future__ import annotations

import html
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli._options import Json, Quiet, Runs, flag, option, run_folders
from tacit.cli._show import plain
from tacit.disk import replaced
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.views.track import Export, Tables
    from tacit.views.web.serving import Dashboard


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
    """Show runs and sweeps on a page in the browser, while they go on.

    The page is for this machine alone and for who has the token in its address; it reads the folders, and can change
    nothing in them. The same token, as a bearer, opens /metrics for Prometheus. Ctrl-C ends it.

    Examples:

    `tacit dashboard runs`

    `tacit dashboard airline --port 7000 --open`
    """
    from tacit.serve.listening import is_loopback
    from tacit.views.web.access import token_in
    from tacit.views.web.serving import Dashboard

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
        typer.echo(f"{_runs_and_sweeps(places)} under {where}; Ctrl-C ends it")
    else:
        typer.echo(
            f"No run or sweep is under {where} yet: it appears on the page once `tacit train` or `tacit sweep` begins "
            "there; Ctrl-C ends it"
        )


def _runs_and_sweeps(many: int) -> str:
    return "1 run or sweep" if many == 1 else f"{many} runs and sweeps"


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
    """Write the figures of runs for TensorBoard, for MLflow, or as Parquet files.

    Utility, every leak with its interval, limits, strengths, pace, and decisions; for TensorBoard and MLflow the
    contract's facts, for MLflow the report. What is there already is not written again, so the command can be
    given as often as one likes. MLflow without a server is a folder: sqlite: and other databases need
    `pip install mlflow`, of which `tacit[tracking]` installs a part.

    Examples:

    `tacit track airline --to tensorboard --out logs --follow`

    `tacit track airline --to mlflow --out https://mlflow.example.org`

    `tacit track runs --to parquet --out tables`
    """
    from tacit.views.report.words import count

    roots = run_folders(runs)
    if to != "mlflow" and "://" in out:
        raise UsageError(f"--out {out} is an address: --to {to} writes to a folder of this machine")
    from tacit.views.track import Export, MLflow, Tables, TensorBoard

    export: Export | Tables
    if to == "parquet":
        export = Tables(roots, out)
    elif to == "mlflow":
        export = Export(roots, lambda place: MLflow(out, place.id, run=place.name, experiment=experiment))
    else:
        export = Export(roots, lambda place: TensorBoard(out, run=f"{place.name} {place.id}".replace(" / ", "-")))
    try:
        export.update()
        if follow and not export.finished:
            if not quiet:
                typer.echo(f"Following {count(len(export.readers), 'run')}; Ctrl-C ends it", err=True)
            with suppress(KeyboardInterrupt):  # which is how one ends it
                while not export.finished:
                    time.sleep(_PAUSE)
                    export.update()
    finally:
        export.close()
    for problem in export.problems.values():
        typer.echo(f"tacit: {plain(problem)}", err=True)
    _tell_written(export, to, out, as_json=as_json, quiet=quiet)


def _tell_written(export: Export | Tables, to: str, out: str, *, as_json: bool, quiet: bool) -> None:
    from tacit.views.report.words import count
    from tacit.views.track import Tables

    summary: dict[str, Any] = {"to": to, "out": out}
    if isinstance(export, Tables):
        summary["rows"] = export.rows
    else:
        summary["runs"] = [{"id": run.id, "name": run.name, "new": new} for run, new in export.brought.items()]
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    elif quiet:
        typer.echo(out)
    elif isinstance(export, Tables):
        for name, many in export.rows.items():
            typer.echo(f"{Path(out) / name}.parquet: {count(many, 'row')}")
    else:
        for run, many in export.brought.items():
            typer.echo(f"{plain(run.name)}: {count(many, 'new figure')}")
        typer.echo(_LOOK[to].format(out=out) if "://" not in out else f"They are at {out}")


_LOOK = {
    "tensorboard": "Look at them with `tensorboard --logdir {out}`",
    "mlflow": "Look at them with `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {out}`; that page comes "
    "with `pip install mlflow`",
}
