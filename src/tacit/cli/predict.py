"""The verbs that use a finished run: predict, serve, export."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tacit.cli._ending import interruptible
from tacit.cli._options import (
    Folder,
    Json,
    Override,
    Quiet,
    Reason,
    Run,
    Wait,
    argument,
    flag,
    option,
    party_folder,
    patience,
)
from tacit.cli._show import plain, print_table, tell
from tacit.cli.run import alarm_of, waiting_of
from tacit.progress import one_bar


def predict(  # typer reads each option from a parameter
    file: Annotated[
        Path | None,
        argument(
            "What to score: ids and the label party's own columns. A feature party's table, if not that of party.toml.",
            "FILE",
        ),
    ] = None,
    out: Annotated[Path | None, option("The .parquet or .csv of scores; the label party's.", "FILE", "--out")] = None,
    folder: Folder = None,
    match: Annotated[
        Literal["private", "keyed"], option("How rows are found: as align does it, or by tokens under the run's key.")
    ] = "private",
    fallback: Annotated[
        bool | None,
        flag(
            "Score rows that not all parties have without the others.", "--fallback/--no-fallback", show_default=False
        ),
    ] = None,
    wait: Wait = None,
    override: Override = None,
    reason: Reason = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a file with the model of a finished run, together with the other parties.

    All parties give this command at the same time, each in its folder; it waits for them. Killed or cut off, the same
    command resumes. The label party names a file with the ids of party.toml and its own columns, and gets
    the scores of all its rows, in the order of the file; the feature parties answer from their tables. Before anything
    is sent, both sides compare the versions of their halves.

    The label party learns which rows of its file the others have, and their embeddings. With --match private a feature
    party learns which of its rows are in the file and how many rows the file has; with --match keyed it can also try
    ids that it thinks of, since it has the key. Nobody sees a score but the label party.

    Column basis says of each row whether it was scored jointly, by the fallback, or not; reason says why.

    Examples:

    `tacit predict new.parquet --out scores.parquet --folder airline`

    `tacit predict --folder airport`
    """
    from tacit.serve.conversation import Telling
    from tacit.serve.predict import predict as run
    from tacit.serve.scores import Written

    path = party_folder(None, folder)
    kept = interruptible(lambda: f"what has come whole is in {path / 'runs'}: the same command resumes")
    with kept, one_bar(quiet=quiet, first="loading the model", unit="rows") as show:
        telling = Telling(
            progress=show, waiting=waiting_of(show), wait=patience(wait), alarm=alarm_of,
            report=lambda text: None if quiet else typer.echo(text, err=True),
        )  # fmt: skip
        done = run(
            path, file, out, match=match, fallback=fallback, telling=telling, override=override, reason=reason
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(asdict(done), default=str))
    elif not isinstance(done, Written):
        unheard = "" if done.confirmed else f"; {done.to} is gone: if it still waits for them, give this command again"
        typer.echo(
            f"{done.known:,} of {done.rows:,} rows that {done.to} asked for were here; their embeddings are sent"
            f"{unheard}"
        )
    else:
        alone = f", {done.fallback:,} by the fallback" if done.fallback else ""
        none = f", {done.none:,} have no score" if done.none else ""
        typer.echo(f"{done.path} has {done.rows:,} rows: {done.joint:,} scored jointly{alone}{none}")


def records_of(party: Path, kind: str) -> list[dict[str, Any]]:
    """The records of a kind of a party, oldest first."""
    from tacit.company.aligned import facts_of
    from tacit.company.folder import Folder as Opened

    facts = facts_of(Opened(party)) if (party / "facts.sqlite").exists() else None
    return facts.records(kind) if facts is not None else []


def print_predictions(predicted: list[dict[str, Any]]) -> None:
    """A line for each."""
    head = ("run", "when", "what was sent", "to", "rows", "known")
    lines = []
    for line in predicted:
        words = [plain(line[name]) for name in ("run", "time", "what", "to")]
        words[1] = words[1].replace("T", " ").removesuffix("+00:00")
        lines.append([*words, f"{line['rows']:,}", f"{line['known']:,}" if "known" in line else ""])
    print_table("Predictions: what was sent for them, by UTC", head, lines, words=(0, 1, 2, 3))


def serve(
    folder: Folder = None,
    http: Annotated[
        str | None,
        option(
            "Host and port of HTTP. [default: as party.toml says, or 127.0.0.1:7080; a feature party: none]", "ADDRESS"
        ),
    ] = None,
    behind_proxy: Annotated[
        bool, flag("Listen where others reach it, for a proxy before it ends slow clients.", "--behind-proxy")
    ] = False,
    wait: Wait = None,
    override: Override = None,
    reason: Reason = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer with the model of a finished run, row by row, until it is stopped.

    All parties give this command, each in its folder, in any order. A feature party connects to the label party, stays
    connected, and answers tokens of ids with embeddings. The label party answers POST /score on its own network:
    {"rows": [{...}]} with the ids of party.toml and its own columns, and says of each score whether it is joint or of
    the fallback, and why. GET /health, /ready and /metrics tell how it is; a feature party has these where --http is
    given.

    A feature party learns which of its rows are asked for, and when. Nobody sees a score but who asks the label party.
    With TACIT_SERVE_TOKEN set, requests need it as a bearer token: 32 signs or more. SIGTERM or Ctrl-C ends the
    service, after what is under way; the log, a line of JSON for each event, is on the error stream.

    Examples:

    `tacit serve --folder airline --http 127.0.0.1:7080`

    `tacit serve --folder airport`
    """
    from tacit.serve.log import log_to_stderr
    from tacit.serve.serve import serve as run

    def told(address: str) -> None:
        typer.echo(json.dumps({"http": address}) if as_json else address)

    run(
        party_folder(None, folder), http=http, behind_proxy=behind_proxy, wait=patience(wait), told=told,
        override=override, reason=reason,
        log=(lambda *_, **__: None) if quiet else log_to_stderr,
    )  # fmt: skip


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
    private model, with and without partners, or the feature party's bottom and cells; about.json has the metadata.
    A run that broke its limit, or whose limit nobody has judged, is refused with exit code 1. Who lets it out all the
    same is on record in the run's folder and in its report.

    Examples:

    `tacit export --folder airline --out top.safetensors`

    `tacit export --folder airline --out top.safetensors --override "A. Owner" --reason "test data only"`
    """
    from tacit.company.export import export as let_out

    path = let_out(party_folder(run, folder), out, override=override, reason=reason)
    words = f"This party's half of the model is now in {path}" + ("; the override is on record" if override else "")
    tell({"file": str(path), "override": override}, str(path), words, as_json=as_json, quiet=quiet)
