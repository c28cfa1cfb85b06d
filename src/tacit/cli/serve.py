"""The verb serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli._options import Folder, Json, Override, Quiet, Reason, option, party_folder


def serve(
    folder: Folder = None,
    also: Annotated[
        list[Path] | None, option("A folder with another version of the model, live beside the first.", "DIR")
    ] = None,
    http: Annotated[
        str | None,
        option(
            "Host and port of HTTP. [default: as party.toml says, or 127.0.0.1:7080; a feature party: none]", "ADDRESS"
        ),
    ] = None,
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
    With TACIT_SERVE_TOKEN set, requests need it as a bearer token. SIGTERM or Ctrl-C ends the service, after what is
    under way; the log, a line of JSON for each event, is on the error stream.

    Examples:

    `tacit serve --folder airline --http 127.0.0.1:7080`

    `tacit serve --folder airport`
    """
    from tacit.serve.online import log_to_stderr
    from tacit.serve.serve import serve as run

    def told(address: str) -> None:
        typer.echo(json.dumps({"http": address}) if as_json else address)

    run(
        [party_folder(None, folder), *(also or ())], http=http, told=told, override=override, reason=reason,
        log=(lambda *_, **__: None) if quiet else log_to_stderr,
    )  # fmt: skip
