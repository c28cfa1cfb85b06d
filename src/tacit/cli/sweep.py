"""The verbs sweep and choose."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli._show import Json, make_folder, one_bar
from tacit.cli._swept import about, print_choice, print_files, print_points, title
from tacit.errors import UsageError

if TYPE_CHECKING:
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
Rate = Annotated[
    float | None, typer.Option("--learning-rate", help="Of Adam. [default: the papers', or 0.001]", metavar="RATE")
]
Attacks = Annotated[
    str | None,
    typer.Option(help="What is tried on every batch. [default: norm,cosine,hint]", metavar="A,B", show_default=False),
]
Bad = Annotated[
    Literal["raise", "skip"], typer.Option(help="Stop at a row that can't be read, or leave it out and count it.")
]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Where large data sets are kept once read. [default: beside their files]",
        metavar="DIR",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: CUDA where there is one.")]
Machines = Annotated[
    str | None,
    typer.Option(help="Share the work with a Ray cluster: ADDRESS, auto or local.", metavar="ADDRESS"),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Only the attacks on single batches, not the strong ones on recordings.")
]
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
    learning_rate: Rate = None,
    attacks: Attacks = None,
    bad: Bad = "raise",
    cache: Cache = None,
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
    source = {"folder": folder, "rows": rows, "bad": bad, "cache": cache}
    done = _swept(
        data, source, target, protect, strengths, attacks, quiet=as_json, seeds=seeds, epochs=epochs,
        batch_size=batch_size, learning_rate=learning_rate, device=device, cluster=cluster, thorough=not quick,
    )  # fmt: skip
    from tacit.lab.choosing import not_tried
    from tacit.lab.sweeping.drawing import draw

    found = done.points()
    picture = draw(found, target / "tradeoff.png", title=title(done))
    if as_json:
        typer.echo(json.dumps([{**point.as_dict(), **about(done)} for point in found], indent=2))
        return
    print_points(done, found)
    untried = not_tried(list(dict.fromkeys(name for point in found for name in point.untried)))
    if untried:
        typer.echo(f"{untried.capitalize()}.")
    print_files(done, found, picture)


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
    learning_rate: Rate = None,
    attacks: Attacks = None,
    bad: Bad = "raise",
    cache: Cache = None,
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
    layers, all parts of the training and all seeds. Exit code 1 where no setting holds the limit: then the nearest is
    named. A sweep on which strong attacks were not tried is refused; with --quick it is answered for the others alone.
    """
    if not 0.5 < limit < 1:
        raise UsageError(f"--limit {limit}: a leak AUC lies between 0.5, a coin flip, and 1; take one such as 0.6")
    if source is None:
        target = out or _usual("sweep", data)
        if not quick:
            from tacit.lab.choosing import check_attacks

            check_attacks(_attacks(attacks))
        where = {"folder": folder, "rows": rows, "bad": bad, "cache": cache}
        done = _swept(
            data, where, target, protect, strengths, attacks, quiet=as_json, seeds=seeds, epochs=epochs,
            batch_size=batch_size, learning_rate=learning_rate, device=device, cluster=cluster, thorough=not quick,
        )  # fmt: skip
    else:
        from tacit.lab.sweeping.results import read

        done = read(source)
        target = out or (source if source.is_dir() else source.parent)
    from tacit.lab.sweeping.drawing import draw

    found, choice = done.points(), done.best(limit, quick=quick)
    make_folder(target)
    picture = draw(found, target / "choose.png", title=title(done), choice=choice)
    if as_json:
        notes = [*done.metadata.get("notes", []), *choice.point.notes]
        typer.echo(json.dumps({**choice.as_dict(), "notes": notes, **about(done)}, indent=2))
    else:
        print_points(done, found, choice)
        print_choice(choice)
        print_files(done, found, picture)
    if not choice.holds:
        raise typer.Exit(1)


def _usual(kind: str, data: str) -> Path:
    return Path("runs") / f"{kind}-{Path(data).stem.replace(':', '-')}"


def split_protections(protect: str) -> list[str]:
    """The protections of `--protect`, of which there must be one."""
    from tacit.lab.sweeping.grids import split_names

    names = split_names(protect)
    if not names:
        raise UsageError("--protect names no protection: give one or more, as iso,marvell, or none")
    return names


def _attacks(text: str | None) -> list[str]:
    """The attacks of `--attacks`, or the usual ones."""
    from tacit.lab.stack.measuring import CHEAP, EVERY_BATCH

    if text is None:
        return list(EVERY_BATCH)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in CHEAP]
    if unknown or not names:
        said = f"{', '.join(unknown)} can't be tried on every batch" if unknown else "no attack is named"
        raise UsageError(f"--attacks {text}: {said}; name some of {', '.join(CHEAP)}")
    return list(dict.fromkeys(names))


def _swept(
    data: str, source: dict[str, Any], out: Path, protect: str, strengths: int, attacks: str | None, *, quiet: bool,
    **options: Any,
) -> Sweep:  # fmt: skip
    """Load and sweep, with one bar; what is not said here goes to `tacit.lab.sweep` as it is."""
    from tacit.lab.sweeping.grids import grid

    names, tried = split_protections(protect), _attacks(attacks)
    grid(names, strengths)  # a wrong name is said before the data is read
    with _interruptible(out), one_bar(quiet=quiet, first=f"loading {data}") as show:
        from tacit.lab.data import load
        from tacit.lab.sweeping.running import GOING_ON
        from tacit.lab.sweeping.running import sweep as run

        def told(what: str, done: int, total: int) -> None:
            show(what, done, total)
            if GOING_ON in what and not quiet:  # a line that stays
                typer.echo(f"tacit: {what}", err=True)

        loaded = load(data, **source, progress=lambda done, total: show(f"loading {data}", done, total))
        return run(loaded, protect=names, strengths=strengths, attacks=tried, out=out, progress=told, **options)


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
