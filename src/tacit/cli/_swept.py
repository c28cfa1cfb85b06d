"""What `tacit sweep` and `tacit choose` show when the sweep is done: a table, an answer, and what there is to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tacit.cli._show import leak
from tacit.cli._tables import console, print_table

if TYPE_CHECKING:
    from tacit.lab.choosing import Choice, Point
    from tacit.lab.sweeping.results import Sweep


def title(done: Sweep) -> str:
    """What was swept, in a line."""
    recipe = done.metadata["recipe"]
    return f"{recipe['data']}, {recipe['training_rows']:,} rows, {recipe['epochs']} epochs"


def about(done: Sweep) -> Mapping[str, Any]:
    """What the JSON forms say about a sweep as a whole."""
    return {"papers": done.metadata.get("papers"), "skipped": done.metadata.get("skipped", 0)}


def left_out(rows: int) -> str | None:
    """A sentence about rows that could not be read; None where there are none."""
    if not rows:
        return None
    many = f"{rows:,} rows could not be read and were" if rows > 1 else "1 row could not be read and was"
    return f"{many} left out"


def print_points(done: Sweep, found: Sequence[Point], choice: Choice | None = None) -> None:
    """The table of all settings."""
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
    print_table(title(done), head, rows, words=(0, 5))


def print_choice(choice: Choice) -> None:
    """What to take, or what comes nearest."""
    point = choice.point
    said = f"test AUC {_number(point.test_auc)}{_cost(choice)}; worst attack {_attack(point)}, up to "
    said += f"{_number(point.high)}. "
    warning = "" if choice.warning is None else f" But {choice.warning}."
    if choice.holds:
        typer.echo(f"Take {point.setting.spelled}: {said}".rstrip() + warning)
    else:
        typer.echo(
            f"No setting keeps every attack under {choice.limit:g}. The nearest is {point.setting.spelled}: {said}"
            f"Try stronger ones, fewer epochs, or a higher limit.{warning}"
        )


def print_files(done: Sweep, found: Sequence[Point], picture: Path | None, *, quiet: bool = False) -> None:
    """Notes, which `quiet` leaves out, and where everything is."""
    screen = console()
    known: Mapping[str, Any] = done.metadata
    if not quiet and len(known.get("waves", [])) > 1:
        sizes = known["waves"]
        why = "to fit into memory" if known.get("machines") is None else f"shared by {known['machines']} workers"
        screen.print(f"Trained in {len(sizes)} waves of {max(sizes)} replicas or fewer, {why}.")
    notes = dict.fromkeys(note for point in found for note in point.notes)
    for note in [left_out(known.get("skipped", 0)), known.get("papers"), *[*notes][:3]]:
        if note and not quiet:
            screen.print(f"Note: {note}.", markup=False, soft_wrap=True)
    drawn = f"Picture: {picture}." if picture else "No picture was drawn: no setting has both a test AUC and a leak."
    screen.print(f"Every figure: {done.path}. {drawn}", markup=False, soft_wrap=True)


def _cost(choice: Choice) -> str:
    """What the setting costs, in brackets."""
    if choice.cost is None or choice.point == choice.baseline:
        return ""
    return " (no loss)" if abs(choice.cost) < 5e-5 else f" ({-choice.cost:+.4f} against no protection)"


def _attack(point: Point) -> str:
    """The worst attack by its name, with its layer where that is not the cut, and its part of the training if any."""
    name = (point.attack or "").removesuffix("@cut")
    return name if point.part in (None, "whole") else f"{name}, {point.part}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
