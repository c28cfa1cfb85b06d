"""The verbs sweep and choose."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli._show import Json, leak, make_folder, one_bar
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.lab.choosing import Choice, Point
    from tacit.lab.sweeping.results import Sweep

_INTERRUPTED = 2

Name = Annotated[
    str, typer.Option(help="A data set by name, or a .toml that describes your own files.", metavar="NAME")
]
DataFolder = Annotated[
    Path | None, typer.Option("--folder", help="Where its files are.", metavar="DIR", show_default=False)
]
Rows = Annotated[int | None, typer.Option(min=100, help="Use only so many rows. [default: all]")]
Protect = Annotated[
    str, typer.Option(help="Names, as iso,marvell:sum_kl or matched(leak_auc=0.6,visits=5).", metavar="A,B")
]
Strengths = Annotated[int, typer.Option(min=1, help="How many of each protection, from mild to strong.")]
Epochs = Annotated[int, typer.Option(min=1, help="How often every row is visited.")]
Seeds = Annotated[int, typer.Option(min=1, help="With how many seeds each setting runs.")]
BatchSize = Annotated[int | None, typer.Option(min=2, help="Rows of a batch. [default: the papers', or 1024]")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: CUDA where there is one.")]
Machines = Annotated[
    str | None,
    typer.Option(help="Share the work with a Ray cluster: ADDRESS, auto or local.", metavar="ADDRESS"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Only the attacks on single batches, not those on recordings.")]
_PROTECT = "iso,max_norm,marvell,matched"


def sweep(
    data: Name = "flights",
    folder: DataFolder = None,
    protect: Protect = _PROTECT,
    strengths: Strengths = 8,
    epochs: Epochs = 5,
    seeds: Seeds = 1,
    rows: Rows = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    cluster: Machines = None,
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option(help="[default: runs/sweep-DATA]", metavar="DIR", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Train every protection at every strength, and see what leaks and what the model is worth.

    All settings train together as one batched model, in as many waves as memory asks for; attacks run on every batch,
    at the cut and at the first layer. One Parquet file holds every figure, and a picture the trade-off. Interrupted,
    the same command goes on where it was, give or take some minutes.
    """
    target = out or _usual("sweep", data)
    done = _swept(
        data, folder, rows, target, protect, strengths, quiet=as_json, seeds=seeds, epochs=epochs,
        batch_size=batch_size, device=device, cluster=cluster, thorough=not quick,
    )  # fmt: skip
    from tacit.lab.choosing import points
    from tacit.lab.sweeping.drawing import draw

    found = points(done.whole)
    picture = draw(found, target / "tradeoff.png", title=_title(done))
    if as_json:
        typer.echo(json.dumps([point.as_dict() for point in found], indent=2))
        return
    _print(done, found)
    _print_files(done, picture)


def choose(
    limit: Annotated[float, typer.Option(help="The leak AUC that no attack may reach; 0.5 is a coin flip.")] = 0.6,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Choose from a finished sweep's results.parquet.", metavar="FILE"),
    ] = None,
    data: Name = "flights",
    folder: DataFolder = None,
    protect: Protect = _PROTECT,
    strengths: Strengths = 8,
    epochs: Epochs = 5,
    seeds: Seeds = 1,
    rows: Rows = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    cluster: Machines = None,
    quick: Quick = False,
    out: Annotated[
        Path | None,
        typer.Option(help="[default: that of --from, or runs/sweep-DATA]", metavar="DIR", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Name the protection and strength with the best test AUC whose worst attack stays under a limit.

    Sweeps first, or reads a sweep with --from. The worst attack counts with the upper end of its 95% interval, over all
    layers and all seeds. Exit code 1 where no setting holds the limit: then the nearest is named.
    """
    if not 0.5 < limit < 1:
        raise UsageError(f"--limit {limit}: a leak AUC lies between 0.5, a coin flip, and 1; take one such as 0.6")
    if source is None:
        target = out or _usual("sweep", data)
        done = _swept(
            data, folder, rows, target, protect, strengths, quiet=as_json, seeds=seeds, epochs=epochs,
            batch_size=batch_size, device=device, cluster=cluster, thorough=not quick,
        )  # fmt: skip
    else:
        from tacit.lab.sweeping.results import read

        done = read(source)
        target = out or (source if source.is_dir() else source.parent)
        make_folder(target)
    from tacit.lab.choosing import points
    from tacit.lab.sweeping.drawing import draw

    found, choice = points(done.whole), done.best(limit)
    picture = draw(found, target / "choose.png", title=_title(done), choice=choice)
    if as_json:
        typer.echo(json.dumps(choice.as_dict(), indent=2))
    else:
        _print(done, found, choice)
        _print_choice(choice)
        _print_files(done, picture)
    if not choice.holds:
        raise typer.Exit(1)


def _usual(kind: str, data: str) -> Path:
    return Path("runs") / f"{kind}-{Path(data).stem.replace(':', '-')}"


def _swept(
    data: str, folder: Path | None, rows: int | None, out: Path, protect: str, strengths: int, *, quiet: bool,
    **options: Any,
) -> Sweep:  # fmt: skip
    """Load and sweep, with one bar; what is not said here goes to `tacit.lab.sweep` as it is."""
    from tacit.lab.sweeping.grids import grid, split_names

    names = split_names(protect)
    grid(names, strengths)  # a wrong name is said before the data is read
    make_folder(out)
    with _interruptible(out), one_bar(quiet=quiet, first=f"loading {data}") as show:
        from tacit.lab.data import load
        from tacit.lab.sweeping.running import GOING_ON
        from tacit.lab.sweeping.running import sweep as run

        def told(what: str, done: int, total: int) -> None:
            show(what, done, total)
            if GOING_ON in what and not quiet:  # a line that stays
                typer.echo(f"tacit: {what}", err=True)

        loaded = load(data, folder=folder, rows=rows)
        return run(loaded, protect=names, strengths=strengths, out=out, progress=told, **options)


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """An interruption is no accident: say what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        finished, training = (list((out / "waves").glob(f"*.{kind}")) for kind in ("parquet", "checkpoint"))
        kept = f"{len(finished)} finished wave{'' if len(finished) == 1 else 's'}"
        if training:
            ago = time.time() - max(path.stat().st_mtime for path in training)
            kept += f" and the one in training, as it was {ago:.0f} s ago,"
        are = "is" if len(finished) == 1 and not training else "are"
        typer.echo(f"tacit: interrupted; {kept} {are} kept in {out / 'waves'}: the same command goes on", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def _title(done: Sweep) -> str:
    recipe = done.metadata["recipe"]
    return f"{recipe['data']}, {recipe['training_rows']:,} rows, {recipe['epochs']} epochs"


def _print(done: Sweep, found: Sequence[Point], choice: Choice | None = None) -> None:
    """The table of all settings."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=_title(done), padding=(0, 1, 0, 0))
    table.add_column("setting", no_wrap=True)
    for name in ("test\nAUC", "test\nloss", "worst\nleak", "up\nto"):
        table.add_column(name, justify="right")
    table.add_column("by attack", overflow="fold", min_width=15)
    for point in found:
        marked = choice is not None and point == choice.point
        table.add_row(
            point.setting.spelled, _number(point.test_auc), _number(point.test_loss),
            "ran away" if point.worst is None else leak(point.worst), _number(point.high),
            _attack(point), style="bold reverse" if marked else None,
        )  # fmt: skip
    Console(highlight=False).print(table)


def _attack(point: Point) -> str:
    """The worst attack by its name, with its layer where that is not the cut."""
    return (point.attack or "").removesuffix("@cut")


def _print_choice(choice: Choice) -> None:
    point = choice.point
    cost = "" if choice.cost is None else f" ({-choice.cost:+.4f} against no protection)"
    said = f"test AUC {_number(point.test_auc)}{cost}; worst attack {_attack(point)}, up to {_number(point.high)}"
    if choice.holds:
        typer.echo(f"Take {point.setting.spelled}: {said}.")
    else:
        typer.echo(
            f"No setting keeps every attack under {choice.limit:g}. The nearest is {point.setting.spelled}: {said}. "
            "Try stronger ones, fewer epochs, or a higher limit."
        )


def _print_files(done: Sweep, picture: Path | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    about: dict[str, Any] = dict(done.metadata)
    if len(about.get("waves", [])) > 1:
        sizes = about["waves"]
        console.print(f"Trained in {len(sizes)} waves of {max(sizes)} replicas or fewer, to fit into memory.")
    if about.get("papers"):
        console.print(f"Note: {about['papers']}.", soft_wrap=True)
    notes = [note for note in done.whole["notes"].unique().sort() if note is not None]
    for note in [*about.get("notes", []), *notes][:3]:
        console.print(f"Note: {note}.", markup=False, soft_wrap=True)
    drawn = f"Picture: {picture}." if picture else "No picture was drawn: pip install 'tacit[figures]'."
    console.print(f"Every figure: {done.path}. {drawn}", markup=False, soft_wrap=True)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
