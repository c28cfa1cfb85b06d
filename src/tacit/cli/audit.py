"""`tacit audit`: what the other side could learn, after the fact, of our runs and of anybody's messages."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._one_shot import print_report as print_exchange_report
from tacit.cli._options import Folder, Json, Quiet, Run, option
from tacit.cli._show import making_folder, print_report
from tacit.errors import UsageError
from tacit.progress import one_bar

if TYPE_CHECKING:
    from tacit.report.document import Report


def audit(  # typer reads each option from a parameter
    run: Run = None,
    folder: Folder = None,
    messages: Annotated[
        Path | None, option("What somebody else's system sent, named arrays in one .npz file.", "FILE")
    ] = None,
    batch_size: Annotated[int, option("Rows of a batch, of messages that are not batched.", "N", min=2)] = 1024,
    side: Annotated[
        Literal["features", "label"] | None,
        option("Who is looking: `features` is after labels, `label` after features."),
    ] = None,
    limit: Annotated[
        float | None, option("That no attack may pass; a run has its own.", "AUC", min=0.0, max=1.0)
    ] = None,
    out: Annotated[
        Path | None, option("Where report.json and report.html go; a run's folder if not given.", "DIR")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run every attack on a recorded run, and write a report.

    Of a run it replays what the party recorded, also while the training goes on: a label party learns what its
    gradients gave away about labels, a feature party what its embeddings gave away about its columns. Of a training in
    one exchange, once it is over, a label party's flips are drawn and measured again beside the label bound, and a
    feature party's embedding is attacked again as it was before it left. Of anybody else's system it takes the messages
    from one .npz file, with arrays gradients, labels, ids, embeddings, clean and inputs; --side label judges by
    embeddings and inputs, without it gradients and labels are needed.

    Examples:

    `tacit audit --folder airline`

    `tacit audit --messages messages.npz --limit 0.6 --out report`

    `tacit audit --messages messages.npz --side label --out report`

    Exit codes: 0 done, 1 a limit is broken or could not be judged, 2 wrong use.
    """
    where = _where(run, folder, messages, out)
    report, paths = _audited(where, messages, batch_size, side, limit, out, quiet=quiet)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    elif report.exchange is not None:
        print_exchange_report(report, paths)
    else:
        print_report(report, paths)
    if report.verdict in ("broken", "not judged"):
        raise typer.Exit(1)


def _where(run: Path | None, folder: Path | None, messages: Path | None, out: Path | None) -> Path | None:
    """The run to be audited, or None where messages are; what does not go together is refused."""
    where = run if run is not None else folder
    if run is not None and folder is not None:
        raise UsageError("RUN and --folder say the same: give one of them")
    if messages is not None and where is not None:
        raise UsageError(f"--messages is somebody else's, and {where} is a run of ours: give one of them")
    if messages is None and where is None:
        raise UsageError("there is nothing to audit: give a run's folder, or a file with --messages")
    if messages is not None and out is None:
        raise UsageError("--out is missing: say in which folder report.json and report.html are to be written")
    return where


def _audited(
    where: Path | None, messages: Path | None, batch_size: int, side: Literal["features", "label"] | None,
    limit: float | None, out: Path | None, *, quiet: bool,
) -> tuple[Report, tuple[Path, Path]]:  # fmt: skip
    from tacit.company.audit import audit_run, find_run
    from tacit.report.rendering import write
    from tacit.report.seals import write_report
    from tacit.split.audit import audit_files

    run = None if where is None else find_run(where)[1]
    target = out if out is not None else run or Path()
    repeat = (shlex.join(["tacit", *sys.argv[1:]]),)
    with making_folder(target), one_bar(quiet=quiet, first="reading", unit="attacks") as show:
        if messages is not None:
            report = audit_files(
                messages, side=side or "features", limit=limit, batch_size=batch_size, repeat=repeat, progress=show
            )
        else:
            assert where is not None
            report = audit_run(where, side=side, limit=limit, repeat=repeat, progress=show)
    own = run is not None and target.resolve() == run.resolve()
    return report, write_report(report, run or target) if own else write(report, target)
