"""The verb that draws every figure and table of the papers from runs of your own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._show import Json, make_folder, one_bar
from tacit.cli._swept import left_out
from tacit.cli.sweep import Bad, Cache, Rate
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.lab.figures import Made

SMALL_ROWS = 30_000
"""Rows of the small scale, if no other number is given."""


def figures(
    name: Annotated[
        list[str] | None,
        typer.Argument(help="Names as --list has them, or `all`.", metavar="NAME", show_default=False),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Name all figures, what each shows and needs, and stop.")
    ] = False,
    data: Annotated[str, typer.Option(help="A data set, as flights, credit, criteo, generated:criteo.")] = "flights",
    folder: Annotated[
        Path | None, typer.Option(help="Where the data set's files are.", metavar="DIR", show_default=False)
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(min=500, help=f"Use only so many rows. [default: {SMALL_ROWS:,}; all at --scale paper]"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How often every row is visited. [default: the scale's own]")
    ] = None,
    scale: Annotated[
        Literal["small", "paper"],
        typer.Option(help="`small` takes minutes on two cores; `paper` has the papers' batches, epochs and strengths."),
    ] = "small",
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds of each setting; figures by day take three at least, for bands.")
    ] = 1,
    learning_rate: Rate = None,
    bad: Bad = "raise",
    cache: Cache = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to train.")] = "cpu",
    results: Annotated[
        Path | None,
        typer.Option("--from", help="Draw from this results.parquet of `tacit sweep` instead.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Pictures, numbers, trainings. [default: runs/figures-DATA]", metavar="DIR", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Every figure and table of the papers, from runs of your own.

    Trains what the named figures need, each training once and kept under --out, draws each as PNG with its numbers as
    CSV, and says where our runs agree with what the paper says and where they differ. Where the axes agree the authors'
    published points are a second layer. Attacks that the papers did not have stand beside theirs.
    """
    if listed:
        _list(as_json=as_json)
        return
    if not name:
        raise UsageError("name the figures to draw, or `all`: `tacit figures --list` has the names")
    from tacit.lab.figures import Asked, chosen, make, make_from

    chosen(name, data)  # a wrong name is said before anything is loaded
    where = out or Path("runs") / f"figures-{data.replace(':', '-').replace('/', '-')}"
    skipped = 0
    if results is not None:
        from tacit.lab.sweeping.results import read

        read(results)  # a wrong file is said before there is a folder
        make_folder(where)
        made = make_from(name, results, where)
    else:
        from tacit.lab.data import load
        from tacit.lab.sweeping.recipe import checked_rate

        with one_bar(quiet=as_json, first=f"loading {data}") as show:
            wanted = rows or (SMALL_ROWS if scale == "small" else None)
            rate = checked_rate(learning_rate)
            loaded = load(
                data, folder=folder, rows=wanted, bad=bad, cache=cache,
                progress=lambda part, all_: show(f"loading {data}", part, all_),
            )  # fmt: skip
            skipped = loaded.skipped
            make_folder(where)
            asked = Asked(loaded, scale, epochs, seeds, device=device, learning_rate=rate)
            made = make(name, asked, where, path=folder, progress=show)
    if as_json:
        typer.echo(json.dumps([{**one.as_dict(), "skipped_rows": skipped} for one in made], indent=2))
        return
    _print(made, where)
    if skipped:
        typer.echo(f"Note: {left_out(skipped)}.")


def _list(*, as_json: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tacit.lab.figures import FIGURES, PAPERS

    if as_json:
        told = [
            {"figure": one.name, "shows": one.shows, "data": one.data, "needs": one.needs} for one in FIGURES.values()
        ]
        typer.echo(json.dumps(told, indent=2))
        return
    console = Console(highlight=False)
    for paper, title in PAPERS.items():
        shown = Table(box=box.SIMPLE_HEAD, title=f"{paper}: {title}", title_justify="left")
        shown.add_column("figure", no_wrap=True)
        shown.add_column("paper's data", no_wrap=True)
        shown.add_column("shows", ratio=3)
        shown.add_column("needs", ratio=3)
        for one in FIGURES.values():
            if one.name.startswith(paper):
                shown.add_row(one.name, one.data, one.shows, one.needs)
        console.print(shown)


def _print(made: Sequence[Made], where: Path) -> None:
    from rich.console import Console

    from tacit.lab.figures import counted

    console = Console(highlight=False)
    for one in made:
        console.print(f"[bold]{one.name}[/bold]", end="")
        if one.skipped:
            console.print(f" was not drawn: {one.skipped}", markup=False)
            continue
        console.print(f" {one.picture}", markup=False, soft_wrap=True)
        if one.numbers is not None and one.numbers.stat().st_size < 6000:
            console.print(_table(one.numbers))
        for said in one.said:
            colour = {True: "green", False: "yellow", None: "cyan"}[said.agrees]
            console.print(f"  [{colour}]{said.verdict}[/{colour}]: ", end="")
            console.print(f"{said.text} ({said.found})", markup=False)
    count = counted(made)
    drawn = sum(one.picture is not None for one in made)
    console.print(
        f"\n{drawn} figure{'' if drawn == 1 else 's'} drawn; {count['agree']} sentences of the papers agree with these "
        f"runs, {count['differ']} "
        f"differ. Everything on one page: {where / 'summary.md'}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _table(path: Path) -> object:
    """The numbers of a figure, where they are few."""
    import csv

    from rich import box
    from rich.table import Table

    with path.open(newline="") as file:
        head, *lines = csv.reader(file)
    kept = [place for place, name in enumerate(head) if name not in ("source", "knob", "protection", "strength")]
    shown = Table(box=box.SIMPLE_HEAD)
    for place in kept:
        shown.add_column(head[place].replace("@", " @ "), justify="left" if place == kept[0] else "right")
    for line in lines:
        shown.add_row(*(_short(line[place]) for place in kept))
    return shown


def _short(text: str) -> str:
    if text.isdigit():
        return text
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text
