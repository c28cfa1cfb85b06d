"""The verb demo."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._version import __version__
from tacit.cli._show import Json, leak, make_folder, one_bar

if TYPE_CHECKING:
    from tacit.lab.demo import Row


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="How often every flight is visited.")] = 3,
    rows: Annotated[int | None, typer.Option(min=4096, help="Use only so many flights. [default: all]")] = None,
    seed: Annotated[int, typer.Option(help="Of weights and attacks; with --compare also of batches and noise.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Keep both companies' folders and demo.json in DIR.", metavar="DIR")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Instead: four protections in one process, side by side.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Two companies train one model, in two processes, and the one with the labels sees what it gave away.

    An airport (weather, time) and an airline (aircraft, route) learn together which flights of 2013 arrive an hour
    late. Only the airline knows which did. Each has its own folder with keys, certificate, settings and journal. They
    pin each other's certificates, align their flights without showing the others, and train over mutual TLS, with
    every gradient protected. The airline attacks what the airport receives, while it trains and afterwards, and holds
    it under its limit: leak AUC 0.5 is a coin flip, 1.0 is an open book. report.html says what came of it. Takes one
    to two minutes.
    """
    if out is not None:
        make_folder(out)
    with one_bar(quiet=as_json, first="loading flights") as show:
        if compare:
            from tacit.lab.demo import run

            table = run(epochs=epochs, rows=rows, seed=seed, progress=show)
            told: dict[str, Any] = {"rows": [row.as_dict() for row in table]}
        else:
            from tacit.lab.two_companies import run as meet

            with tempfile.TemporaryDirectory() as scratch:
                told = meet(out or Path(scratch), epochs=epochs, rows=rows, seed=seed, progress=show)
    document = {"epochs": epochs, "seed": seed, "version": __version__, **told}
    if out is not None:
        (out / "demo.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    elif compare:
        _print_comparison(table)
    else:
        _print_two_companies(document, out)


def _print_two_companies(told: dict[str, Any], out: Path | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.width = min(console.width, 100)
    console.print(
        f"Two companies, two processes: the airport brought {told['airport_rows']:,} flights, the airline"
        f" {told['airline_rows']:,}; they found {told['common']:,} common ones in {told['align_seconds']:.0f} s without"
        f" showing the others, and trained {told['epochs']} epochs over mutual TLS in {told['train_seconds']:.0f} s,"
        f" every gradient protected by {told['protection']}, every embedding by {told['embedding_protection']}."
    )
    table = Table(box=box.SIMPLE_HEAD, title="What the airport can tell from the gradients it received")
    table.add_column("attack", no_wrap=True)
    table.add_column("leak AUC", justify="right")
    for one in told["attacks"]:
        table.add_row(one["attack"], leak(one["value"]))
        if one["baseline"] is not None and one["baseline"] != one["value"]:
            table.add_row("  (embedding alone)", f"{one['baseline']:.3f}")
    table.add_section()
    table.add_row(f"[bold]worst: {told['worst']['attack']}", f"[bold]{leak(told['worst']['value'])}")
    table.add_row(f"the airline's limit, {told['verdict']}", f"{told['limit']:.3f}")
    table.add_row("test AUC of the model", f"{told['test_auc']:.3f}")
    console.print(table)
    table = Table(box=box.SIMPLE_HEAD, title="What the airline can read of the airport's columns in its embeddings")
    table.add_column("attack", no_wrap=True)
    table.add_column("of their variance", justify="right")
    for one in told["inputs"]["attacks"]:
        table.add_row(one["attack"], f"{one['value']:.1%}")
    console.print(table)
    console.print(
        "Variance: what a decoder that knows half of the rows finds on the other half; accumulated averages all visits"
        " of a row first. More noise (a lower snr in the airport's party.toml) hides more and costs test AUC."
    )
    console.print(
        "0.5 is a coin flip, 1.0 an open book. spectral, clustering, model_completion, surrogate_top and contextual"
        " look at the airport's own embeddings: what those give away without any gradient is what the model has learned"
        " about flights, and does not count as the worst attack. `tacit demo --compare` shows the same attacks without"
        " protection and under older ones."
    )
    if out is not None:
        console.print(f"The airline's report, to be opened in a browser: {out / 'report.html'}", markup=False)
        where = f"Both companies' folders, with keys, journals and models: {out / 'airline'}, {out / 'airport'}"
        console.print(where, markup=False)


def _print_comparison(rows: list[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title="What the airport can tell from the gradients it received (leak AUC)")
    table.add_column("attack", no_wrap=True)
    for row in rows:
        name, _, options = row.protection.removesuffix(")").partition("(")
        table.add_column(f"{name}\n{options}", justify="right", overflow="fold")
    for i, finding in enumerate(rows[0].findings):
        here = [row.findings[i] for row in rows]
        table.add_row(finding.attack, *(leak(one.leak.value) for one in here))
        if finding.baseline is not None and finding.baseline != finding.leak:
            table.add_row("  (embedding alone)", *(f"{one.baseline.value:.3f}" for one in here if one.baseline))
    table.add_section()
    table.add_row("[bold]worst attack", *(f"[bold]{row.worst.attack}" for row in rows))
    table.add_row("[bold]its leak AUC", *(f"[bold]{leak(row.worst.leak.value)}" for row in rows))
    table.add_section()
    table.add_row("test AUC of the model", *(f"{row.test_auc:.3f}" for row in rows))
    table.add_row("noise over gradient", *(f"{row.noise:.0f}x" for row in rows))
    console = Console()
    console.print(table)
    console.width = min(console.width, 100)
    console.print(
        "0.5 is a coin flip, 1.0 an open book. Without protection every attack reads the labels. max_norm and"
        " marvell blunt the attacks they were made for (norm, cosine) while others read on: under marvell the energy"
        " outside the leading directions (residual, which needs no label) gives everything away. matched leaves no"
        " attack much. spectral and contextual look at the airport's own embeddings: what those give away without any"
        " gradient is what the model has learned about flights, not a leak of the gradients, and does not count as"
        " the worst attack.",
        highlight=False,
    )
