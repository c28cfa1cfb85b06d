"""The verbs of the lab: results of the papers, repeated by anyone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._show import Json, make_folder, one_bar
from tacit.cli.sweep import BatchSize, DataFolder, Epochs, Name, Rows

if TYPE_CHECKING:
    from tacit.lab.attack_table import AttackTable
    from tacit.lab.embedding import Lab

lab = typer.Typer(name="lab", no_args_is_help=True, help="Repeat the papers' tables and figures with runs of your own.")


@lab.command()
def embedding(
    data: Annotated[
        Literal["fashion", "flights", "adult"],
        typer.Option(help="`flights` is shipped; `fashion` is Debian's dataset-fashion-mnist; `adult` needs --path."),
    ] = "fashion",
    path: Annotated[
        Path | None, typer.Option(help="Where the data set's files are.", metavar="FOLDER", show_default=False)
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="Only these, as table-2,figure-3. [default: table-2, figure-2 to figure-8]", metavar="NAMES"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How often every row is visited. [default: 10; 3 for flights]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1000, help="Use only so many rows. [default: all]")] = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to train and attack.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Of test rows, weights, batches, noise and attacks.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Records, figures, summary. [default: runs/embedding-DATA]", metavar="DIR", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Embeddings that do not give the features away: table 2 and figures 2 to 8 of the technical report.

    Trains a split model under every setting of the report (distance correlation, noise regularization, adversarial
    reconstructor, Gaussian noise, and together), and judges each on held-out rows: by what the report judges by, and by
    attackers that took no part in training. Each setting is written down at once: give the same command again after an
    interruption, and it goes on where it was. All settings take an hour or more on a CPU; try --only table-2, --rows
    4000 --epochs 1, or --device cuda.
    """
    from tacit.lab.embedding import run

    folder = out or Path("runs") / f"embedding-{data}"
    make_folder(folder)
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    with one_bar(quiet=as_json, first=f"loading {data}") as show:
        found = run(
            data=data,
            out=folder,
            path=path,
            only=names,
            epochs=epochs,
            rows=rows,
            device=device,
            seed=seed,
            progress=show,
        )
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    _print(found, folder)


@lab.command()
def attacks(
    data: Name = "flights",
    folder: DataFolder = None,
    epochs: Epochs = 3,
    rows: Rows = None,
    batch_size: BatchSize = None,
    seed: Annotated[int, typer.Option(help="Of test rows, weights, batches, noise and attacks.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Table and figures. [default: runs/attacks-DATA]", metavar="DIR", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Every attack against every protection, on single batches and over all visits, with what each attack costs.

    Trains the papers' network once under each of: none, max_norm, iso, marvell, matched for one visit and matched for
    all of them. Each is attacked in every way there is; the last lines answer every request several times, which the
    protocol refuses, to show why. About half a minute for each protection on 25,000 rows and a CPU.
    """
    from tacit.lab.attack_table import run
    from tacit.lab.data import load

    target = out or Path("runs") / f"attacks-{Path(data).stem.replace(':', '-')}"
    make_folder(target)
    with one_bar(quiet=as_json, first=f"loading {data}") as show:
        loaded = load(data, folder=folder, rows=rows, seed=seed)
        found = run(loaded, epochs=epochs, batch_size=batch_size or 1024, seed=seed, progress=show)
    paths = found.save(target)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    _print_attacks(found)
    typer.echo(f"Written to {', '.join(str(path) for path in paths)}.")


def _print_attacks(found: AttackTable) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tacit.cli._show import leak
    from tacit.lab._attack_words import BLOCKS, cell, lines, note

    table = Table(box=box.SIMPLE_HEAD, title="Leak AUC of every attack under every protection", padding=(0, 1, 0, 0))
    table.add_column("attack", overflow="fold")
    for column in found.columns:
        shown = column.protection.replace("(", "\n(").replace(", ", ",\n")
        table.add_column(shown, justify="right", overflow="fold", min_width=7)
    for on, title in BLOCKS.items():
        block = lines(found, on)
        if block:
            table.add_row(f"[bold]{title.format(**found.recipe)}")
        for name, each in block:
            table.add_row(name, *(cell(one) for one in each))
        table.add_section()
    table.add_row("[bold]worst, as the protocol allows", *(leak(one.worst.leak.value) for one in found.columns))
    table.add_row("test AUC of the model", *(f"{one.test_auc:.3f}" for one in found.columns))
    console = Console(highlight=False)
    console.print(table)
    for one in found.columns:
        console.print(f"worst under {one.protection}: {one.worst.attack}", markup=False)
    console.width = min(console.width, 100)
    console.print(note(found), markup=False)


def _print(found: Lab, folder: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if found.found:
        first = next(iter(found.found.values()))
        shown = Table(box=box.SIMPLE_HEAD, title=f"{found.title}: what embeddings give away (held-out rows)")
        shown.add_column("setting")
        for name in (first.utility["name"], "dCor", "attacker's error"):
            shown.add_column(name, justify="right")
        for reading in found.found.values():
            figures = (reading.utility, reading.dcor(), reading.worst)
            shown.add_row(reading.label, *(f"{figure['value']:.3f}" for figure in figures))
        console.print(shown)
    for figure, said in found.said.items():
        for one in said:
            if one.agrees is not None:
                colour = "green" if one.agrees else "yellow"
                console.print(f"[{colour}]{figure} {one.verdict}[/{colour}]: ", end="")
                console.print(f"{one.text} ({one.found})", markup=False)
    console.print(
        "\nAttacker's error: of the best one that learnt from scratch after training, over the error of answering the"
        " mean: 0 reads everything, 1 nothing. The summary has every attacker, with intervals in the records."
    )
    drawn = (
        f"Figures: {folder}/*.png and *.svg. " if found.drawn else "No figures were drawn: pip install tacit[figures]. "
    )
    console.print(f"{drawn}Summary: {found.summary}. Records: {folder / 'records'}.", markup=False, soft_wrap=True)
