"""The verb days."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli._options import Json, Lab, Protect, Quiet, Seeds, option, spread
from tacit.cli._show import leak, make_folder, print_table
from tacit.cli.sweep import left_out
from tacit.errors import UsageError
from tacit.views.progress import one_bar

if TYPE_CHECKING:
    import polars as pl

_COLUMNS = ("norm@cut", "hint@cut", "test_auc")


@dataclass(frozen=True)
class Asked(Lab):
    """What is trained by day; each field is an option."""

    protect: Protect = "max_norm,marvell(scale=4),matched(leak_auc=0.6)"
    seeds: Seeds = 3
    period: Annotated[int, option("How many days count as one.", "N", min=1)] = 7


@spread
def days(
    asked: Asked,
    out: Annotated[Path | None, option("Results and picture. [default: runs/days-DATA]", "DIR")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on a stream of days, each tested before it is trained on: utility and leak by day, with bands.

    No protection is always among the settings. OUT gets results.parquet (a row for each setting, seed and day) and
    days.svg, with 95% bands over the seeds.

    Example: `tacit days --data flights --period 7 --seeds 3`
    """
    from tacit.lab.sweeping.recipe import checked_rate, paper_of
    from tacit.lab.sweeping.settings import grid
    from tacit.models.layers import device_named

    settings, period = grid(asked.protections, 1, range(asked.seeds)), asked.period
    rate, where = checked_rate(asked.learning_rate), device_named(asked.device)
    target = out or asked.usual("days")
    if (target / "results.parquet").exists():
        raise UsageError(f"{target / 'results.parquet'} is there already: choose another --out, or delete it")
    with one_bar(quiet=quiet, first=f"loading {asked.data}", unit="days" if period == 1 else "periods") as show:
        from tacit.lab.days import by_day

        loaded = asked.load(show)
        make_folder(target)
        paper = paper_of(loaded.name)
        table = by_day(
            loaded, settings, period=period, batch_size=asked.batch_size or (paper.batch_size if paper else 256),
            learning_rate=rate or (paper.learning_rate if paper else 1e-3), device=where,
            progress=lambda done, total: show(f"training {len(settings)} settings by day", done, total),
        )  # fmt: skip
    numbers, picture = _written(table, target, loaded.name, period)
    import polars as pl

    mean = numbers.group_by("setting", maintain_order=True).agg(pl.col("seeds").first(), pl.col(_COLUMNS).mean())
    found = mean.to_dicts()
    if as_json:
        typer.echo(json.dumps([{**one, "skipped": loaded.skipped} for one in found], indent=2))
        return
    _print(found, loaded.name, numbers["day"].n_unique(), period)
    if loaded.skipped and not quiet:
        typer.echo(f"Note: {left_out(loaded.skipped)}.")
    typer.echo(f"Every day: {target / 'results.parquet'}. Picture: {picture}.")


def _written(table: pl.DataFrame, target: Path, data: str, period: int) -> tuple[pl.DataFrame, Path]:
    from tacit.disk import replaced
    from tacit.lab.days import drawn_days, numbers_by_day, spelled
    from tacit.lab.sweeping.results import write

    write(target / "results.parquet", table, {"data": data, "by day": True, "period": period})
    numbers = numbers_by_day(spelled(table), _COLUMNS)
    picture = drawn_days(numbers, _COLUMNS, f"{data} by day: each tested before it is trained on")
    replaced(target / "days.svg", lambda file: file.write(picture.encode()), durable=False)
    return numbers, target / "days.svg"


def _print(found: list[dict[str, Any]], data: str, count: int, period: int) -> None:
    each = "days" if period == 1 else f"periods of {period} days"
    rows = []
    for row in found:
        worth = "" if row["test_auc"] is None else f"{row['test_auc']:.3f}"
        rows.append([row["setting"], worth, leak(row["norm@cut"]), leak(row["hint@cut"])])
    print_table(f"{data}: means over {count} {each}", ["setting", "test\nAUC", "norm\nleak", "hint\nleak"], rows)
