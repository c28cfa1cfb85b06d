"""The verbs sweep and choose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli._ending import interruptible
from tacit.cli._exchanged import Exchange, choose_exchange
from tacit.cli._options import Json, Lab, Quiet, attacks, complete_list, flag, option, spread
from tacit.cli._show import console, leak, make_folder, print_table
from tacit.errors import UsageError
from tacit.progress import one_bar

if TYPE_CHECKING:
    from tacit.lab.choosing import Choice, Point
    from tacit.lab.sweeping.results import Sweep


@dataclass(frozen=True)
class Asked(Lab):
    """What is swept over, which `sweep` and `choose` share; each field is an option of both."""

    strengths: Annotated[int, option("How many of each protection, from mild to strong.", "N", min=1)] = 8
    epochs: Annotated[int, option("How often every row is visited.", "N", min=1)] = 5
    attacks: Annotated[
        str | None,
        option(
            "What is tried on every batch. [default: norm,cosine,hint]", "A,B", autocompletion=complete_list(attacks)
        ),
    ] = None
    cluster: Annotated[str | None, option("Share the work with a Ray cluster: ADDRESS, auto or local.", "ADDRESS")] = (
        None
    )
    quick: Annotated[bool, flag("Only the attacks on single batches, not the strong ones.", "--quick")] = False


@spread
def sweep(
    asked: Asked,
    out: Annotated[Path | None, option("Results and picture. [default: runs/sweep-DATA]", "DIR")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every protection at every strength, and see what leaks and what the model is worth.

    All settings train together as one batched model, in as many waves as memory asks for; attacks run on every batch,
    at the cut and at the first layer. One Parquet file holds every figure, and a picture the trade-off. Interrupted,
    the same command goes on with the wave that it was in.

    Example: `tacit sweep --data flights --protect marvell,matched --strengths 4`
    """
    target = out or asked.usual("sweep")
    done = _swept(asked, target, quiet=quiet)
    from tacit.lab.choosing import not_tried
    from tacit.lab.drawing import draw_sweep

    found = done.points()
    picture = draw_sweep(found, target / "tradeoff.svg", title=_title(done))
    if as_json:
        typer.echo(json.dumps([{**point.as_dict(), **_about(done)} for point in found], indent=2))
        return
    _print_points(done, found)
    untried = not_tried(list(dict.fromkeys(name for point in found for name in point.untried)))
    if untried:
        typer.echo(f"{untried.capitalize()}.")
    _print_files(done, found, picture, quiet=quiet)


@spread
def choose(
    asked: Asked,
    exchange: Exchange,
    limit: Annotated[float, option("The leak AUC that no attack may reach; 0.5 is a coin flip.", "AUC")] = 0.6,
    source: Annotated[Path | None, option("Choose from a finished sweep's results.parquet.", "FILE", "--from")] = None,
    out: Annotated[
        Path | None,
        option("Results and picture. [default: that of --from, or runs/sweep-DATA]", "DIR"),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Name the protection and strength with the best test AUC whose worst attack stays under a limit.

    Sweeps first, or reads a sweep with --from. The worst attack counts with the upper end of its 95% interval, over all
    layers, all parts of the training and all seeds. Exit code 1 where no setting holds the limit: then the nearest is
    named. A sweep on which strong attacks were not tried is refused; with --quick it is answered for the others alone.

    With --label-limit it is about one exchange instead: no label at all first, then flips at each limit, in so many
    bits a row; of each the test AUC, the bound on a label, and what decoders recover of the features at worst, of
    anything and of a conjunction of columns. Of the other options it takes --data, --folder, --rows, --sample,
    --seeds and --cache.

    Example: `tacit choose --limit 0.6 --from runs/sweep-flights`

    Example: `tacit choose --label-limit 0.6,0.75 --odds 3 --bits 1,2,3 --rows 20000`
    """
    if exchange.asked:
        choose_exchange(asked, exchange, as_json=as_json, quiet=quiet)
        return
    from tacit.lab.choosing import check_limit
    from tacit.lab.drawing import draw_sweep

    check_limit(limit, "--limit")
    done, target = _found(asked, source, out, quiet=quiet)
    found, choice = done.points(), done.best(limit, quick=asked.quick)
    make_folder(target)
    picture = draw_sweep(found, target / "choose.svg", title=_title(done), choice=choice)
    if as_json:
        typer.echo(json.dumps({**choice.as_dict(), "notes": list(choice.point.notes), **_about(done)}, indent=2))
    else:
        _print_points(done, found, choice)
        _print_choice(choice)
        _print_files(done, found, picture, quiet=quiet)
    if not choice.holds:
        raise typer.Exit(1)


def _found(asked: Asked, source: Path | None, out: Path | None, *, quiet: bool) -> tuple[Sweep, Path]:
    """The sweep to choose from, which is read or made now, and where results go."""
    if source is not None:
        from tacit.lab.sweeping.results import read

        return read(source), out or (source if source.is_dir() else source.parent)
    target = out or asked.usual("sweep")
    if not asked.quick:
        from tacit.lab.choosing import check_attacks

        check_attacks(_attacks(asked.attacks))
    return _swept(asked, target, quiet=quiet), target


def _attacks(text: str | None) -> list[str]:
    from tacit.lab.stack.measuring import CHEAP, EVERY_BATCH

    if text is None:
        return list(EVERY_BATCH)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in CHEAP]
    if unknown or not names:
        said = f"{', '.join(unknown)} can't be tried on every batch" if unknown else "no attack is named"
        raise UsageError(f"--attacks {text}: {said}; name some of {', '.join(CHEAP)}")
    return list(dict.fromkeys(names))


def _swept(asked: Asked, out: Path, *, quiet: bool) -> Sweep:
    from tacit.lab.sweeping.settings import grid

    names, tried = asked.protections, _attacks(asked.attacks)
    grid(names, asked.strengths)  # a wrong name is said before the data is read
    with interruptible(lambda: _kept(out)), one_bar(quiet=quiet, first=f"loading {asked.data}") as show:
        from tacit.lab.sweeping.running import sweep as run

        return run(
            asked.load(show), protect=names, strengths=asked.strengths, attacks=tried, out=out, progress=show,
            seeds=asked.seeds, epochs=asked.epochs, batch_size=asked.batch_size, learning_rate=asked.learning_rate,
            bottom_rate=asked.bottom_rate, device=asked.device, cluster=asked.cluster, thorough=not asked.quick,
        )  # fmt: skip


def _kept(out: Path) -> str:
    """What an interrupted sweep leaves behind."""
    finished = len(list((out / "waves").glob("*.parquet")))
    kept = "1 finished wave is" if finished == 1 else f"{finished} finished waves are"
    return f"{kept} kept in {out / 'waves'}: the same command goes on after them"


# --- what is shown when it is done -----------------------------------------------------------------------------------


def _title(done: Sweep) -> str:
    recipe = done.metadata["recipe"]
    return f"{recipe['data']}, {recipe['training_rows']:,} rows, {recipe['epochs']} epochs"


def _about(done: Sweep) -> Mapping[str, Any]:
    return {"papers": done.metadata.get("papers")}


def _print_points(done: Sweep, found: Sequence[Point], choice: Choice | None = None) -> None:
    from rich.markup import escape

    rows = []
    for point in found:
        cells = [
            escape(point.setting.spelled), _number(point.test_auc), _number(point.test_loss),
            escape(point.failed or "") if point.worst is None else leak(point.worst), _number(point.high),
            escape(_attack(point)),
        ]  # fmt: skip
        marked = choice is not None and point == choice.point
        rows.append([f"[bold reverse]{cell}" if marked else cell for cell in cells])
    head = ["setting", "test\nAUC", "test\nloss", "worst\nleak", "up\nto", "by attack"]
    print_table(_title(done), head, rows, words=(0, 5))


def _print_choice(choice: Choice) -> None:
    point = choice.point
    cost = ""
    if choice.cost is not None and point != choice.baseline:
        cost = " (no loss)" if abs(choice.cost) < 5e-5 else f" ({-choice.cost:+.4f} against no protection)"
    said = f"test AUC {_number(point.test_auc)}{cost}; worst attack {_attack(point)}, up to {_number(point.high)}. "
    warning = "" if choice.warning is None else f" But {choice.warning}."
    if choice.holds:
        typer.echo(f"Take {point.setting.spelled}: {said}".rstrip() + warning)
    else:
        typer.echo(
            f"No setting keeps every attack under {choice.limit:g}. The nearest is {point.setting.spelled}: {said}"
            f"Try stronger ones, fewer epochs, or a higher limit.{warning}"
        )


def _print_files(done: Sweep, found: Sequence[Point], picture: Path | None, *, quiet: bool = False) -> None:
    """Notes, which `quiet` leaves out, and where everything is."""
    screen = console()
    known: Mapping[str, Any] = done.metadata
    if not quiet and len(known.get("waves", [])) > 1:
        sizes = known["waves"]
        why = "to fit into memory" if known.get("machines") is None else f"shared by {known['machines']} workers"
        screen.print(f"Trained in {len(sizes)} waves of {max(sizes)} replicas or fewer, {why}.")
    notes = dict.fromkeys(note for point in found for note in point.notes)
    for note in [known.get("papers"), *[*notes][:3]]:
        if note and not quiet:
            screen.print(f"Note: {note}.", markup=False, soft_wrap=True)
    drawn = f"Picture: {picture}." if picture else "No picture was drawn: no setting has both a test AUC and a leak."
    screen.print(f"Every figure: {done.path}. {drawn}", markup=False, soft_wrap=True)


def _attack(point: Point) -> str:
    """The worst attack by its name, with its layer where that is not the cut, and its part of the training if any."""
    name = (point.attack or "").removesuffix("@cut")
    return name if point.part in (None, "whole") else f"{name}, {point.part}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
