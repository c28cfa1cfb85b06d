"""The verb demo."""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit._version import __version__
from tacit.cli._options import Json, Quiet, flag, option
from tacit.cli._show import attack_rows, console, leak, make_folder, narrow, print_table
from tacit.errors import UsageError
from tacit.views.progress import one_bar

if TYPE_CHECKING:
    from tacit.lab.trial import Trial

_VARIANCE = (
    "Variance: what a decoder that knows half of the rows finds on the other half; accumulated averages all visits of a"
    " row first. More noise (a lower snr in the airport's party.toml) hides more and costs test AUC."
)
_FLIPS = "0.5 is a coin flip, 1.0 an open book."
_EMBEDDED = (
    " spectral, clustering, model_completion, surrogate_top and contextual(network) look at the airport's own"
    " embeddings: what those give away without any gradient is what the model has learned about flights, and does not"
    " count as the worst attack."
)


def demo(  # typer reads each option from a parameter
    rows: Annotated[int | None, option("Use only so many flights. [default: all]", "N", min=4096)] = None,
    limit: Annotated[float, option("Leak AUC that nobody can pass for any label.", "AUC")] = 0.6,
    odds: Annotated[float, option("The factor that the odds of a label change by, at most.", "FACTOR")] = 3.0,
    width: Annotated[int, option("Numbers that the airport sends of a flight.", "N", min=1, max=128)] = 1,
    label: Annotated[
        Literal["late", "when", "minutes"],
        option("What of a delay: over an hour; three classes of it (when); minutes.", "NAME"),
    ] = "late",
    seed: Annotated[int, option("Of everything that is drawn.", "N")] = 0,
    out: Annotated[Path | None, option("Keep both companies' folders and demo.json in DIR.", "DIR")] = None,
    split: Annotated[bool, flag("Instead: train step by step, gradients under noise.", "--split")] = False,
    compare: Annotated[bool, flag("Instead: four protections of split training, side by side.", "--compare")] = False,
    epochs: Annotated[int, option("How often every flight is visited, in split training.", "N", min=1)] = 3,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Two companies train one model, in two processes, and neither shows the other a row.

    An airport (weather, time) and an airline (aircraft, route) learn together which flights of 2013 arrive an hour
    late. Only the airline knows which did. Each has its own folder with keys, certificate and settings. They pin each
    other's certificates, align their flights without showing the others, and exchange two messages over mutual TLS: the
    airline sends each label once, flipped by a coin, which is certified; the airport learns from these at home, attacks
    what it is about to send, and sends one number a flight. The airline then trains a model that nobody else sees.

    --split trains step by step instead: every gradient under noise, attacked while it runs, held under a limit. That is
    a measurement, not a bound, and takes one to two minutes.

    Example: `tacit demo --out runs/demo`
    """
    if not 0.5 < limit < 1:
        raise UsageError(f"--limit {limit:g}: it lies above 0.5, a coin flip, and below 1: take one such as 0.6")
    if not 1 < odds <= 20:
        raise UsageError(f"--odds {odds:g}: a factor above 1 and at most 20: take one such as 3")
    if out is not None:
        make_folder(out)
    with one_bar(quiet=quiet, first="loading flights") as show, tempfile.TemporaryDirectory() as scratch:
        where = out or Path(scratch)
        if compare:
            from tacit.lab.demo import row, run

            table = run(epochs=epochs, rows=rows, seed=seed, progress=show)
            told: dict[str, Any] = {"epochs": epochs, "rows": [row(one) for one in table]}
        elif split:
            from tacit.lab.two_companies import run as step_by_step

            told = {"epochs": epochs, **step_by_step(where, epochs=epochs, rows=rows, seed=seed, progress=show)}
        else:
            from tacit.lab.one_exchange import run as in_one_exchange

            told = in_one_exchange(
                where, rows=rows, seed=seed, width=width, limit=limit, odds=odds, label=label, progress=show
            )
    document = {"seed": seed, "version": __version__, **told}
    if out is not None:
        (out / "demo.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    elif compare:
        _print_comparison(table, quiet=quiet)
    elif split:
        _print_two_companies(document, out, quiet=quiet)
    else:
        _print_one_exchange(document, out, quiet=quiet)


def _print_one_exchange(told: dict[str, Any], out: Path | None, *, quiet: bool) -> None:
    from tacit.views.report.words import count, spelled

    screen, certificate, audit = console(100), told["certificate"], told["audit"]
    if not quiet:
        screen.print(
            f"The airport brought {told['airport_rows']:,} flights, the airline {told['airline_rows']:,}; they found"
            f" {told['common']:,} common ones in {told['align_seconds']:.0f} s without showing the others, and trained"
            f" in one exchange over mutual TLS in {told['train_seconds']:.0f} s."
        )
    sent = told["bytes"]
    rows: list[list[str] | None] = [
        ["labels: leak AUC of any flight, at most", f"{certificate['total_auc']:.3f}"],
        ["labels: odds of any flight change by, at most", f"{certificate['total_odds']:.2f}"],
        None,
        ["features: read of the airport's numbers, mean", f"{audit['numbers']:.1%}"],
        ["features: read of its categories, mean", f"{audit['codes']:.1%}"],
        ["features: most read of any one thing, at most", f"{audit['worst']:.1%}"],
        None,
    ]
    for name, value in told["figures"].items():
        rows.append([f"[bold]{spelled(name)} of the airline's model", f"[bold]{value:.3f}"])
        rows.append(["without the airport", f"{told['alone'][name]:.3f}"])
    rows += [None, ["bytes sent, labels and embedding", f"{sent['labels']:,} + {sent['embedding']:,}"]]
    print_table("One exchange between an airline and an airport", ["what", "figure"], rows)
    known = {True: "an hour late", False: "not late"}
    scored: list[list[str]] = []
    for one in told["scored"]:
        scores = (" ".join(f"{value:.3f}" for value in one[name]) for name in ("score", "alone"))
        truth = known[one["truth"]] if isinstance(one["truth"], bool) else str(one["truth"])
        scored.append([f"{one['flight_id']}, {one['carrier']} to {one['dest']}", *scores, truth])
    print_table("Three flights that nobody trained on", ["flight", "score", "without the airport", "in truth"], scored)
    if quiet:
        return
    form = told["form"]
    screen.print(
        f"[bold]Labels[/bold]: a bound, against any partner, honest or not. {certificate['posterior']}"
        f" [bold]Features[/bold]: measured, by decoders that know half of the flights; {count(form['width'], 'number')}"
        f" of a flight left, in {form['ranks']} ranks. `--limit`, `--odds` and `--width` change that, `--split` trains"
        " step by step, `--compare` shows older protections."
    )
    where = out or Path("runs/demo")
    table, airline, airport = (
        shlex.quote(str(where / one)) for one in ("airline/flights.parquet", "airline", "airport")
    )
    begin = "Score" if out else f"With `--out {where}` both folders stay there. Score"
    screen.print(f"{begin} a file, both sides at once:")
    for line in (
        f"  tacit predict --folder {airport} &",
        f"  tacit predict {table} --out scores.csv --folder {airline}",
        f"Row by row, over HTTP: tacit serve --folder {airport} & tacit serve --folder {airline}",
        f"What left, every coin drawn again: tacit ledger --folder {airline} --check",
    ):
        screen.print(line, markup=False, soft_wrap=True)


def _print_two_companies(told: dict[str, Any], out: Path | None, *, quiet: bool) -> None:
    screen = console(100)
    if not quiet:
        screen.print(
            f"Two companies, two processes: the airport brought {told['airport_rows']:,} flights, the airline"
            f" {told['airline_rows']:,}; they found {told['common']:,} common ones in {told['align_seconds']:.0f} s"
            f" without showing the others, and trained {told['epochs']} epochs over mutual TLS in"
            f" {told['train_seconds']:.0f} s, every gradient protected by {told['protection']}, every embedding by"
            f" {told['embedding_protection']}."
        )
    rows: list[list[str] | None] = []
    for one in told["attacks"]:
        rows.append([one["attack"], leak(one["value"])])
        if one["baseline"] is not None and one["baseline"] != one["value"]:
            rows.append(["  (embedding alone)", f"{one['baseline']:.3f}"])
    rows += [
        None,
        [f"[bold]worst: {told['worst']['attack']}", f"[bold]{leak(told['worst']['value'])}"],
        [f"the airline's limit, {told['verdict']}", f"{told['limit']:.3f}"],
        ["test AUC of the model", f"{told['test_auc']:.3f}"],
    ]
    print_table("What the airport can tell from the gradients it received", ["attack", "leak AUC"], rows)
    print_table(
        "What the airline can read of the airport's columns in its embeddings",
        ["attack", "of their variance"],
        [[one["attack"], f"{one['value']:.1%}"] for one in told["inputs"]["attacks"]],
    )
    if not quiet:
        screen.print(_VARIANCE)
        screen.print(_FLIPS + _EMBEDDED + " `tacit demo --compare` shows the same attacks without protection and under"
                     " older ones.")  # fmt: skip
    if out is not None:
        screen.print(f"The airline's report, to be opened in a browser: {out / 'report.html'}", markup=False)
        where = f"Both companies' folders, with keys, journals and models: {out / 'airline'}, {out / 'airport'}"
        screen.print(where, markup=False)
        screen.print(f"How it went, step by step, in a browser: tacit dashboard {out}", markup=False)


def _print_comparison(rows: list[Trial], *, quiet: bool) -> None:
    head = ["attack", *(row.protection.removesuffix(")").replace("(", "\n").replace(", ", "\n") for row in rows)]
    lines = [
        *attack_rows(rows),
        None,
        ["[bold]worst attack", *(f"[bold]{narrow(row.worst.attack)}" for row in rows)],
        ["[bold]its leak AUC", *(f"[bold]{leak(row.worst.leak.value)}" for row in rows)],
        None,
        ["test AUC of the model", *(f"{row.test_auc:.3f}" for row in rows)],
        ["noise over gradient", *(f"{row.noise:.0f}x" for row in rows)],
    ]
    print_table("What the airport can tell from the gradients it received (leak AUC)", head, lines)
    if not quiet:
        console(100).print(
            "0.5 is a coin flip, 1.0 an open book. Without protection every attack reads the labels. max_norm and"
            " marvell blunt the attacks they were made for (norm, cosine) while others read on: under marvell the"
            " energy outside the leading directions (residual, which needs no label) gives everything away. matched"
            " leaves no attack much. spectral and contextual(network) look at the airport's own embeddings: what"
            " those give away without any gradient is what the model has learned about flights, not a leak of the"
            " gradients, and does not count as the worst attack."
        )
