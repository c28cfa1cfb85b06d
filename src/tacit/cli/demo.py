"""The verb demo."""

from __future__ import annotations

import json
import math
import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit._version import __version__
from tacit.cli._options import Json, Quiet, flag, option
from tacit.cli._show import console, leak, make_folder, print_table
from tacit.progress import one_bar


def demo(
    rows: Annotated[int | None, option("Use only so many flights. [default: all]", "N", min=4096)] = None,
    seed: Annotated[int, option("Of everything that is drawn.", "N")] = 0,
    out: Annotated[Path | None, option("Keep the companies' folders and demo.json in DIR.", "DIR")] = None,
    apart: Annotated[bool, flag("Train all of act 2 between two processes, not Marvell alone.", "--apart")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Two companies train one model on real flights, in both ways, and attack what they send.

    An airport (weather, schedule) and an airline (aircraft, route) learn which flights of 2013 arrive an hour late;
    only the airline knows which did. Each has a folder with keys, certificate and settings, and a process of its own.
    Act 1 finds the flights that both know. Act 2 is split learning as in the papers: five protections of gradients,
    under the papers' attacks and under all others. Act 3 is one exchange: randomized labels there, two bits a
    flight back, and a bound on what labels leak.

    Example: `tacit demo --out runs/demo`
    """
    from tacit.lab.demo import run

    if out is not None:
        make_folder(out)
    acts = {"match": _match, "split": _split, "exchange": _exchange}

    with one_bar(quiet=quiet, first="loading flights") as progress, tempfile.TemporaryDirectory() as scratch:
        where = out or Path(scratch)

        def show(act: str, told: dict[str, Any]) -> None:
            if not as_json:
                acts[act](told, quiet=quiet)

        told = run(where, rows=rows, seed=seed, apart=apart, progress=progress, show=show)
    document = {"seed": seed, "version": __version__, **told}
    if out is not None:
        (out / "demo.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    elif not quiet:
        _next(out)


def _match(told: dict[str, Any], *, quiet: bool) -> None:
    figures = [f"{told[name]:,}" for name in ("airport_rows", "airline_rows", "common")]
    head = ["flights of", "the airport", "the airline", "both", "seconds"]
    print_table("Act 1. Match", head, [["found", *figures, f"{told['align_seconds']:.0f}"]])


def _split(told: dict[str, Any], *, quiet: bool) -> None:
    rows: list[list[str] | None] = []
    for one in told["rows"]:
        papers = (leak(one["leak_auc"][name]["value"]) for name in ("norm", "cosine"))
        rows.append([one["protection"], *papers, leak(one["worst"]["value"]), f"{one['test_auc']:.3f}"])
    head = ["gradients under", "norm", "cosine", "best of all", "test AUC"]
    print_table(f"Act 2. Split learning, as in the papers: {told['flights']:,} flights, leak AUC", head, rows)
    if quiet:
        return
    marvell = next(one for one in told["rows"] if one["protection"].startswith("marvell"))
    norm, cosine, worst = *(marvell["leak_auc"][name]["value"] for name in ("norm", "cosine")), marvell["worst"]
    bare, noised = told["embedding"]["bare"], told["embedding"]["noised"]
    console(100).print(
        f"0.5 is a coin flip. Marvell holds the papers' attacks at {norm:.2f} and {cosine:.2f}; an attack that they did"
        f" not try ({worst['attack']}) reads {worst['value']:.3f}. It trained between two processes, the others in one."
        f" Linear decoders recover {bare['read']:.0%} of the airport's columns from bare embeddings, and"
        f" {noised['read']:.0%} from noised ones (test AUC {bare['test_auc']:.3f} and {noised['test_auc']:.3f})."
    )


def _exchange(told: dict[str, Any], *, quiet: bool) -> None:
    bound, audit, sent = told["label_bound"], told["audit"], told["bytes"]
    rows: list[list[str] | None] = [
        ["label bound: leak AUC of any flight, at most", f"{bound['total_auc']:.3f}", "0.500"],
        ["label bound: epsilon, at most", f"{math.log(bound['total_odds']):.2f}", "0"],
        [f"features: worst recovered, limit {told['limit']:g}", f"{audit['worst']:.2f}", "0"],
        ["features: recovered on average", f"{audit['numbers']:.2f}", "0"],
        ["bytes there and back", f"{sent['labels']:,} + {sent['embedding']:,}", "0"],
        ["[bold]test AUC", f"[bold]{told['figures']['test_auc']:.3f}", f"{told['alone']['test_auc']:.3f}"],
    ]
    for one in told["scored"]:
        truth = "an hour late" if one["truth"] else "not late"
        scores = (f"{one[name][0]:.3f}" for name in ("score", "alone"))
        rows.append([f"a new flight, {one['carrier']} to {one['dest']}, {truth}", *scores])
    head = ["", "with the airport", "alone"]
    print_table(f"Act 3. One exchange: {told['common']:,} flights", head, rows)
    if quiet:
        return
    console(100).print(
        "The bound holds against anybody, where labels went through act 3 alone. The airport sent one of"
        f" {told['groups']} groups of each flight, each at least {told['smallest']:.0%} of all, and would have sent"
        f" nothing had decoders recovered more than {told['limit']:g} of any column, category, range or conjunction"
        " (0 is nothing, 1 everything)."
    )


def _next(out: Path | None) -> None:
    """What to do with what is there now."""
    where = out or Path("runs/demo")
    marvell, airline, airport = (
        shlex.quote(str(where / one)) for one in ("split/marvell/airline", "airline", "airport")
    )
    lines = [
        f"Report of act 2: {marvell}/runs/flights/report.html",
        f"Report of act 3: {airport}/runs/flights/report.html",
        f"Every label that was sent, drawn again: tacit ledger --folder {airline} --check",
        f"Act 2 between two processes, whole: tacit demo --apart --out {shlex.quote(str(where))}",
        "The papers' figures: python -m papers --list",
    ]
    if out is None:
        lines = [f"Both companies' folders, with their reports: tacit demo --out {where}", *lines[3:]]
    for line in lines:
        console().print(line, markup=False, soft_wrap=True)
