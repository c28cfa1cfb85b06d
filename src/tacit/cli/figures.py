"""The verb that draws every figure and table of the papers from runs of your own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._ending import interruptible
from tacit.cli._names import complete
from tacit.cli._options import Bad, Cache, DataFolder, Device, Json, Name, Quiet, Rate, Seeds
from tacit.cli._progress import one_bar
from tacit.cli._show import make_folder
from tacit.cli._swept import left_out
from tacit.cli._tables import console, print_table
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.lab.figures import Made

SMALL_ROWS = 30_000
"""Rows of the small scale, if no other number is given."""


def figures(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names as --list has them, or `all`.",
            metavar="NAME",
            show_default=False,
            autocompletion=complete(lambda: _known()),
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Name all figures, what each shows and needs, and stop.", metavar="")
    ] = False,
    data: Name = "flights",
    folder: DataFolder = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=500, help=f"Use only so many rows. [default: {SMALL_ROWS:,}; all at --scale paper]", metavar="N"
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How often every row is visited. [default: the scale's own]", metavar="N")
    ] = None,
    scale: Annotated[
        Literal["small", "paper"],
        typer.Option(help="`small` takes minutes on two cores; `paper` has the papers' batches, epochs and strengths."),
    ] = "small",
    seeds: Seeds = 1,
    learning_rate: Rate = None,
    bad: Bad = "raise",
    cache: Cache = None,
    device: Device = "auto",
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
    quiet: Quiet = False,
) -> None:
    """Draw every figure and table of the papers from runs of your own.

    Trains what the named figures need, each training once and kept under --out, draws each as PNG with its numbers as
    CSV, and says where our runs agree with what the paper says and where they differ. Where the axes agree the authors'
    published points are a second layer. Attacks that the papers did not have stand beside theirs. Figures by day take
    three seeds at least, for their bands.

    Examples:

    `tacit figures --list`

    `tacit figures 002-labelling --data flights`
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
        from tacit.lab.sweeping.recipe import checked_rate, device_named

        rate, machine = checked_rate(learning_rate), device_named(device)
        kept = interruptible(lambda: f"finished trainings are kept in {where}: the same command goes on")
        with kept, one_bar(quiet=quiet, first=f"loading {data}") as show:
            loaded = load(
                data, folder=folder, rows=rows or (SMALL_ROWS if scale == "small" else None), bad=bad, cache=cache,
                progress=lambda part, all_: show(f"loading {data}", part, all_),
            )  # fmt: skip
            skipped = loaded.skipped
            make_folder(where)
            asked = Asked(loaded, scale, epochs, seeds, device=machine, learning_rate=rate)
            made = make(name, asked, where, path=folder, progress=show)
    if as_json:
        typer.echo(json.dumps([{**one.as_dict(), "skipped_rows": skipped} for one in made], indent=2))
        return
    _print(made, where)
    if skipped and not quiet:
        typer.echo(f"Note: {left_out(skipped)}.")


def _known() -> list[str]:
    """The names of all figures, for the shell."""
    from tacit.lab.figures import FIGURES

    return ["all", *FIGURES]


def _list(*, as_json: bool) -> None:
    from tacit.lab.figures import FIGURES, PAPERS

    if as_json:
        told = [
            {"figure": one.name, "shows": one.shows, "data": one.data, "needs": one.needs} for one in FIGURES.values()
        ]
        typer.echo(json.dumps(told, indent=2))
        return
    for paper, title in PAPERS.items():
        rows = [[one.name, one.data, one.shows, one.needs] for one in FIGURES.values() if one.name.startswith(paper)]
        print_table(f"{paper}: {title}", ["figure", "paper's data", "shows", "needs"], rows, words=(0, 1, 2, 3))


def _print(made: Sequence[Made], where: Path) -> None:
    from tacit.lab.figures import counted

    screen = console()
    for one in made:
        screen.print(f"[bold]{one.name}[/bold]", end="")
        if one.skipped:
            screen.print(f" was not drawn: {one.skipped}", markup=False)
            continue
        screen.print(f" {one.picture}", markup=False, soft_wrap=True)
        if one.numbers is not None and one.numbers.stat().st_size < 6000:
            _print_numbers(one.numbers)
        for said in one.said:
            colour = {True: "green", False: "yellow", None: "cyan"}[said.agrees]
            screen.print(f"  [{colour}]{said.verdict}[/{colour}]: ", end="")
            screen.print(f"{said.text} ({said.found})", markup=False)
    count = counted(made)
    drawn = sum(one.picture is not None for one in made)
    screen.print(
        f"\n{drawn} figure{'' if drawn == 1 else 's'} drawn; {count['agree']} sentences of the papers agree with these "
        f"runs, {count['differ']} "
        f"differ. Everything on one page: {where / 'summary.md'}",
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _print_numbers(path: Path) -> None:
    """The numbers of a figure, where they are few."""
    import csv

    with path.open(newline="") as file:
        head, *lines = csv.reader(file)
    kept = [place for place, name in enumerate(head) if name not in ("source", "knob", "protection", "strength")]
    rows = [[_short(line[place]) for place in kept] for line in lines]
    print_table(None, [head[place].replace("@", "\n@") for place in kept], rows)


def _short(text: str) -> str:
    if text.isdigit():
        return text
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text
