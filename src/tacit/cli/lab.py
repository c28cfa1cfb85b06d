"""The verbs of the lab: results of the papers, repeated by anyone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._ending import interruptible
from tacit.cli._options import BatchSize, DataFolder, Device, Epochs, Json, Name, Quiet, Rows, Seed
from tacit.cli._progress import one_bar
from tacit.cli._show import UNDRAWN, leak, make_folder
from tacit.cli._tables import console, narrow, print_table
from tacit.cli.sweep import usual

if TYPE_CHECKING:
    from tacit.lab.attack_table import AttackTable
    from tacit.lab.embedding import Lab

lab = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="Repeat the papers' tables with runs of your own.\n\nExample: `tacit lab attacks --data flights`",
)


@lab.command()
def embedding(
    data: Annotated[
        Literal["fashion", "flights", "adult"],
        typer.Option(help="A data set; `flights` is shipped, `fashion` is Debian's dataset-fashion-mnist."),
    ] = "fashion",
    folder: Annotated[
        Path | None,
        typer.Option("--folder", "--path", help="Where the data set's files are.", metavar="DIR", show_default=False),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="Only these, as table-2,figure-3. [default: table-2, figure-2 to figure-8]", metavar="A,B"),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="How often every row is visited. [default: 10; 3 for flights]", metavar="N"),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1000, help="Use only so many rows. [default: all]", metavar="N")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Records, figures, summary. [default: runs/embedding-DATA]", metavar="DIR", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train embeddings that do not give the features away: table 2 and figures 2 to 8 of the technical report.

    Trains a split model under every setting of the report (distance correlation, noise regularization, adversarial
    reconstructor, Gaussian noise, and together), and judges each on held-out rows: by what the report judges by, and by
    attackers that took no part in training. Each setting is written down at once: give the same command again after an
    interruption, and it goes on where it was. All settings take an hour or more on a CPU; try --only table-2, --rows
    4000 --epochs 1, or a machine with CUDA.

    Example: `tacit lab embedding --data flights --only table-2`
    """
    from tacit.lab.embedding import run
    from tacit.lab.sweeping.recipe import device_named

    machine, target = device_named(device), out or usual("embedding", data)
    make_folder(target)
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    kept = interruptible(lambda: f"finished settings are kept in {target}: the same command goes on")
    with kept, one_bar(quiet=quiet, first=f"loading {data}") as show:
        found = run(
            data=data, out=target, path=folder, only=names, epochs=epochs, rows=rows, device=machine, seed=seed,
            progress=show,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    _print(found, target, quiet=quiet)


@lab.command()
def attacks(
    data: Name = "flights",
    folder: DataFolder = None,
    epochs: Epochs = 3,
    rows: Rows = None,
    batch_size: BatchSize = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Table and figures. [default: runs/attacks-DATA]", metavar="DIR", show_default=False),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try every attack against every protection, on single batches and over all visits, with what each costs.

    Trains the papers' network once under each of: none, max_norm, iso, marvell, matched for one visit and matched for
    all of them. Each is attacked in every way there is; the last lines answer every request several times, which the
    protocol refuses, to show why. About half a minute for each protection on 25,000 rows and a CPU.

    Example: `tacit lab attacks --data flights --epochs 3`
    """
    from tacit.lab.attack_table import run
    from tacit.lab.data import load

    target = out or usual("attacks", data)
    make_folder(target)
    with one_bar(quiet=quiet, first=f"loading {data}") as show:
        loaded = load(data, folder=folder, rows=rows, seed=seed)
        found = run(loaded, epochs=epochs, batch_size=batch_size or 1024, seed=seed, progress=show)
    paths = found.save(target)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    _print_attacks(found, quiet=quiet)
    typer.echo(f"Written to {', '.join(str(path) for path in paths)}.")


def _print_attacks(found: AttackTable, *, quiet: bool) -> None:
    from tacit.lab._attack_words import BLOCKS, cell, lines, note

    rows: list[list[str] | None] = []
    empty = [""] * len(found.columns)
    for on, title in BLOCKS.items():
        block = lines(found, on)
        if block:
            rows.append([f"[bold]{title.format(**found.recipe)}", *empty])
        rows += [[name, *(cell(one) for one in each)] for name, each in block]
        rows.append(None)
    rows.append(["[bold]worst, as the protocol allows", *(leak(one.worst.leak.value) for one in found.columns)])
    rows.append(["test AUC of the model", *(f"{one.test_auc:.3f}" for one in found.columns)])
    head = ["attack", *(narrow(one.protection) for one in found.columns)]
    print_table("Leak AUC of every attack under every protection", head, rows)
    screen = console(100)
    for one in found.columns:
        screen.print(f"worst under {one.protection}: {one.worst.attack}", markup=False)
    if not quiet:
        screen.print(note(found), markup=False)


def _print(found: Lab, folder: Path, *, quiet: bool) -> None:
    screen = console()
    if found.found:
        first = next(iter(found.found.values()))
        rows = []
        for reading in found.found.values():
            figures = (reading.utility, reading.dcor(), reading.worst)
            rows.append([reading.label, *(f"{figure['value']:.3f}" for figure in figures)])
        head = ["setting", first.utility["name"], "dCor", "attacker's\nerror"]
        print_table(f"{found.title}: what embeddings give away (held-out rows)", head, rows)
    for figure, said in found.said.items():
        for one in said:
            if one.agrees is not None:
                colour = "green" if one.agrees else "yellow"
                screen.print(f"[{colour}]{figure} {one.verdict}[/{colour}]: ", end="")
                screen.print(f"{one.text} ({one.found})", markup=False)
    if not quiet:
        screen.print(
            "\nAttacker's error: of the best one that learnt from scratch after training, over the error of answering"
            " the mean: 0 reads everything, 1 nothing. The summary has every attacker, with intervals in the records."
        )
    drawn = f"Figures: {folder}/*.png and *.svg. " if found.drawn else f"{UNDRAWN} "
    screen.print(f"{drawn}Summary: {found.summary}. Records: {folder / 'records'}.", markup=False, soft_wrap=True)
