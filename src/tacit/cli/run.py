"""The verbs of a run between companies: align, train, status."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli._ending import interruptible
from tacit.cli._one_shot import print_exchange, print_outcome
from tacit.cli._options import Folder, Json, Quiet, Run, Wait, Where, flag, option, party_folder, party_of, patience
from tacit.cli._show import figures, plain, print_plan, print_report, tell
from tacit.errors import TacitError, UsageError
from tacit.progress import Progress, one_bar

AfterRestore = Annotated[str | None, option("Who lets it go on from an older copy of its folder; on record.", "NAME")]
Reason = Annotated[str | None, option("Why; on record with the name.", "WHY")]


def align(
    where: Where = None,
    folder: Folder = None,
    again: Annotated[bool, flag("Align anew, on all sides, before training begins.", "--again")] = False,
    run: Annotated[
        str | None, option("Begin another run of the contract, of this name, with the tables as they are.", "NAME")
    ] = None,
    cluster: Annotated[
        str | None, option("Multiply on a Ray cluster of your own machines: ADDRESS, auto or local.", "ADDRESS")
    ] = None,
    wait: Wait = None,
    after_restore: AfterRestore = None,
    reason: Reason = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the rows that all parties have, without showing anybody the others.

    All parties give this command at the same time; it waits for them. Ids leave this machine only as points that
    nobody can read without this party's key, which is drawn anew each time. A link that breaks once a peer has been
    answered ends it, and so does a kill: ask there what happened, and decide together whether to align again. How often
    others have aligned is counted apart from the folder; an older copy is refused, as `tacit train` does it.

    With --run, on all sides, everything begins anew under another name, which is written into contract.toml: the rows
    of tables that have grown are aligned, and `tacit train` then sends what is new. The yes to the contract stays.

    Examples:

    `tacit align --folder airline`

    `tacit align --run august --folder airline`
    """
    from tacit.company.agreed import check_agreed
    from tacit.company.align import align as aligned_rows
    from tacit.company.aligned import has_begun
    from tacit.company.folder import Folder as PartyFolder

    path = party_folder(where, folder)
    if run is not None:
        opened = PartyFolder(path)
        opened.begin_run(run)
        again = again or not has_begun(opened)
    check_agreed(path)
    kept = interruptible(lambda: "nothing is aligned; give the same command again on all sides")
    with kept, one_bar(quiet=quiet, first="reading ids", unit="ids") as show:
        found = aligned_rows(
            path, again=again, cluster=cluster, progress=show, waiting=waiting_of(show), wait=patience(wait),
            alarm=alarm_of,
            report=lambda text: None if quiet else typer.echo(text, err=as_json),
            after_restore=None if after_restore is None else (after_restore, reason or ""),
        )  # fmt: skip
    told = {"run": found.run, "rows": found.count, "alignment": found.id}
    words = f"{found.count:,} rows are common to all parties of the run {found.run!r}"
    next_one = shlex.join(["tacit", "train", *(["--folder", str(path)] if path != Path() else [])])
    tell(told, words, f"{words}; next: {next_one}", as_json=as_json, quiet=quiet)


def train(  # typer reads each option from a parameter
    where: Where = None,
    folder: Folder = None,
    plan: Annotated[bool, flag("Say what would be sent and what it costs, and send nothing.", "--plan")] = False,
    audit: Annotated[bool, flag("Attack what was sent, when the training is over.", "--audit/--no-audit")] = True,
    wait: Wait = None,
    after_restore: AfterRestore = None,
    no_split_run: Annotated[
        str | None, option("Who says that no split run of an older version had these rows; on record.", "NAME")
    ] = None,
    reason: Reason = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train with the other parties. After a crash or a lost connection, the same command resumes.

    All parties give this command at the same time; it waits for them, with --wait so long and no longer. A party that
    is interrupted, has waited enough, has a full disk or a limit of its own that keeps its embeddings at home says that
    it gave up, which ends the command of the others with exit code 75: the same command resumes. Each attacks what it
    sends itself (the label party its gradients, a feature party its embeddings) while it trains, and with everything
    there is when it is over; what was found is in report.html in the run's folder, and stays at home. Where party.toml
    sets a limit, training pauses before it is passed, with exit code 1.

    What left in a run is counted apart from the party's folder (TACIT_STATE says where), so that a folder that was
    brought back from a backup is known as an older copy and refused: it would answer again what was answered, under
    other noise. After a real disaster somebody answers for that with --after-restore and --reason.

    Where the contract says mode = "one_shot", labels are sent once, through randomized response, and embeddings once: a
    feature party learns at home and attacks what it is about to send, the label party fits a private model. What it
    prints is for its own eyes: the label bound, and what decoders recover of features. In a folder with a ledger/ of an
    older version no bound is stated for labels unless somebody says with --no-split-run and --reason that no split run
    had these rows.

    Examples:

    `tacit train --plan --folder airline`

    `tacit train --folder airline`
    """
    from tacit.company.agreed import check_agreed

    path = party_folder(where, folder)
    if plan:
        _plan(path, as_json=as_json, quiet=quiet)
        return
    check_agreed(path)
    restored = None if after_restore is None else (after_restore, reason or "")
    one_shot = _in_one_exchange(path)
    what = "is done" if one_shot else "was answered"
    kept = interruptible(lambda: f"what {what} is in {path / 'runs'}: the same command resumes")
    if one_shot:
        from tacit.exchange.train import train_one_shot

        with kept, one_bar(quiet=quiet, first="preparing") as show:
            outcome = train_one_shot(
                path, progress=show, waiting=waiting_of(show), wait=patience(wait), alarm=alarm_of,
                after_restore=restored,
                no_split_run=None if no_split_run is None else (no_split_run, reason or ""),
            )  # fmt: skip
        print_outcome(outcome, as_json=as_json, quiet=quiet)
        _print_rows(outcome.folder, as_json=as_json)
        return
    if no_split_run is not None:
        raise UsageError("--no-split-run is about a bound on labels, which only one exchange has: leave it out")
    from tacit.company.audit import audit_run
    from tacit.company.folder import Folder as PartyFolder
    from tacit.report.seals import write_report
    from tacit.split.train import train as run

    opened = PartyFolder(path)  # one for both: the table's ids are read once
    with kept, one_bar(quiet=quiet, first="preparing") as show:
        done = [0, 0]

        def progress(turn: int, turns: int, last: Mapping[str, float]) -> None:
            done[:] = turn, turns
            show(f"training {figures(last)}".strip(), turn, turns)

        trained = run(
            opened, progress=progress, waiting=waiting_of(show, done), wait=patience(wait), alarm=alarm_of,
            after_restore=restored,
        )  # fmt: skip
        report = None
        if audit and (trained.folder / "transcript").exists():
            repeat = (f"tacit audit {shlex.quote(str(trained.folder))}",)
            report = audit_run(opened, repeat=repeat, progress=show)
    paths = None if report is None else write_report(report, trained.folder)
    if as_json:
        told: dict[str, Any] = {"run": trained.folder.name, "history": trained.history, "folder": str(trained.folder)}
        if report is not None:
            told |= {"verdict": report.verdict, "worst": report.worst and report.worst.model_dump()}
        typer.echo(json.dumps(told))
    else:
        for line in trained.history:
            typer.echo(f"epoch {int(line['epoch']) + 1}: {figures(line) or 'nothing is shared'}")
        half = trained.folder / "model.safetensors"
        typer.echo(f"The run {trained.folder.name!r} is finished; this party's half is {half}")
        if report is not None and paths is not None:
            print_report(report, paths)
    _print_rows(trained.folder, as_json=as_json)
    if report is not None and report.verdict in ("broken", "not judged"):
        raise typer.Exit(1)


def _plan(path: Path, *, as_json: bool, quiet: bool) -> None:
    """Say what a training would send."""
    from tacit.company.agreed import agreed
    from tacit.company.folder import Folder as PartyFolder
    from tacit.company.plans import rows_ahead
    from tacit.company.ways import way_of

    opened = PartyFolder(path)
    terms = opened.terms
    opened.check_pair(terms)
    ahead, found, when = rows_ahead(opened), way_of(terms).plan(opened), agreed(opened)
    told = {"run": terms.run, "digest": terms.digest, "aligned": ahead.aligned is not None, "rows": ahead.count}
    if as_json:
        typer.echo(json.dumps({**told, "agreed": when, "plan": asdict(found)}, indent=2))
        return
    if quiet:
        typer.echo("\n".join(plain(words) for words in (*found.sent, *found.warnings)))
        return
    print_plan(f"What {opened.config.name} would send in the run {terms.run!r}: nothing of it has been sent now", found)
    rows = f"{ahead.aligned.count:,} rows are common." if ahead.aligned else "Nothing is aligned yet."
    owner = "nobody has agreed to it yet" if when is None else f"agreed to on {when}"
    typer.echo(f"\n{rows} The contract is {terms.digest[:16]}…, {owner}.")


def _print_rows(where: Path, *, as_json: bool) -> None:
    """What a run tells its party's owner about rows, and nobody else; beside a document on the error stream."""
    from tacit.report.status import read_run

    for line in _of_rows(read_run(where)):
        typer.echo(line, err=as_json)


def _of_rows(run: Mapping[str, Any]) -> Iterator[str]:
    gone, unpaid = run.get("gone", 0), run.get("unpaid", 0)
    if gone:
        went = "as rows without a label" if run["role"] == "label" else "with all their values missing"
        yield (
            f"{gone:,} aligned rows are no longer in the table, or in several rows of it, and went on {went}: put them "
            "back before another run, or run `tacit align --again` on all sides then"
        )
    if unpaid:
        yield (
            f"{unpaid:,} rows had no room in the budget, or belong to another unit than before: they were sent as what "
            "was paid for them before, or as rows without a label, and stay so: a larger budget in party.toml counts "
            "for other rows, and for these under another coin_epoch. The partner can't see that; where you stop over "
            "it, it can"
        )


def _in_one_exchange(path: Path) -> bool:
    """Whether the contract in a folder says so; what is wrong with it is told by what trains."""
    from tacit.config import load_contract

    try:
        return load_contract(path / "contract.toml").mode == "one_shot"
    except TacitError:
        return False


def status(run: Run = None, folder: Folder = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Tell where the runs in a party's folder stand.

    Works while a training is going on. With --quiet there is one line for each run.

    Example: `tacit status --folder airline`
    """
    from tacit.report.status import read

    runs = read(party_of(run, folder))
    if as_json:
        typer.echo(json.dumps(runs, indent=2))
        return
    if not runs and not quiet:
        typer.echo("no run has begun here: align, then train")
    for one in runs:
        _print_state(one)
        if not quiet:
            _print_details(one)


def _print_state(run: dict[str, Any]) -> None:
    state = run["state"]
    if state == "paused":
        ended = run["gate"] is not None and run["gate"]["decision"] == "stop"
        state = f"{'ended' if ended else 'paused'} by its limit: {run.get('reason', 'see gate.jsonl')}"
    elif state not in ("finished", "unknown") and not run["alive"]:
        why = f" ({_short(run['reason'])})" if state == "stopped" and run.get("reason") else ""
        state = f"stopped{why}; `tacit train` resumes"
    elif state == "waiting":
        state = f"waiting for {run['peer']} since {run['waiting_seconds']} s ({_short(run['why'])})"
    who = f" ({run['party']}, {run['role']})" if "party" in run else ""
    typer.echo(plain(f"{run['run']}{who}: {state}"))


def _print_details(run: dict[str, Any]) -> None:
    for problem in run["problems"]:
        typer.echo(plain(f"  {problem}"))
    if "turn" in run:
        share, epoch = run["turn"] / run["turns"], min(run["epoch"] + 1, run["epochs"])  # a farewell is in no epoch
        typer.echo(f"  turn {run['turn']} of {run['turns']} ({share:.0%}), epoch {epoch} of {run['epochs']}")
    if "part" in run and run["state"] != "finished":
        share = f", {run['done'] / run['total']:.0%}" if run.get("total") else ""
        typer.echo(plain(f"  {run['part']}{share}"))
    if run.get("mode") == "one_shot":
        print_exchange(run)
    elif history := run.get("history"):
        epoch, told = int(history[-1]["epoch"]) + 1, figures(history[-1])
        typer.echo(plain(f"  after epoch {epoch}: {told or 'nothing is shared'}"))
    for one in run["left"]:
        rows = f" of {one['rows']:,} rows" if one["rows"] else ""
        typer.echo(plain(f"  {one['time']} sent: {one['what']}{rows}, {one['bytes']:,} bytes to {one['to']}"))
    if run["state"] != "paused" and run["gate"] is not None and run["gate"]["limit"] is not None:
        gate = run["gate"]
        typer.echo(plain(f"  limit {gate['limit']:g}, {gate['strength']}: {gate['reason']}"))
    for line in _of_rows(run):
        typer.echo(f"  {line}")
    if "journal_bytes" in run:
        typer.echo(f"  journal {run['journal_bytes'] / 2**20:.0f} MiB, alarms {run['alarms']}, at {plain(run['time'])}")
    for event in run["events"]:
        if event["event"] in ("part", "left", "gone", "unpaid"):  # which are told above
            continue
        rest = ", ".join(f"{name} {value}" for name, value in event.items() if name not in ("time", "event"))
        typer.echo(plain(f"  {event['time']} {event['event']}: {rest}"))


def waiting_of(show: Progress, done: Sequence[int] = (0, 0)) -> Callable[[str, float, str], None]:
    """What tells that a peer lets us wait."""
    return lambda peer, seconds, why: show(f"waiting for {peer}, {seconds:.0f} s ({_short(why)})", done[0], done[1])


def alarm_of(peer: str, field: str, reason: str) -> None:
    """Tell what was refused."""
    typer.echo(plain(f"refused: {peer}, about {field!r}: {reason}"), err=True)


def _short(text: str) -> str:
    line = plain(text.partition("\n")[0])
    return line if len(line) <= 120 else line[:119] + "…"  # with what to do about it, which comes last
