"""`tacit choose` for one-shot training: its options, its table and its advice."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import typer

from tacit.cli._ending import interruptible
from tacit.cli._progress import one_bar
from tacit.cli._show import leak, make_folder
from tacit.cli._tables import print_table
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.lab.one_shot.advising import Advice, Point
    from tacit.lab.one_shot.settings import Search

__all__ = [
    "AttackRows",
    "FeatureLimit",
    "Given",
    "HeadKind",
    "LabelLimit",
    "Learners",
    "Noise",
    "Odds",
    "Threads",
    "Widths",
    "ask_search",
    "choose_exchange",
]

LabelLimit = Annotated[
    float | None,
    typer.Option(help="One-shot: the leak AUC of a label, certified.", metavar="AUC", show_default=False),
]
Odds = Annotated[
    float | None,
    typer.Option(help="One-shot: try a coin with these odds beside the symmetric one.", metavar="FACTOR"),
]
FeatureLimit = Annotated[
    float | None,
    typer.Option(help="One-shot: the most that decoders may read of anything, 0 to 1.", metavar="SHARE"),
]
Widths = Annotated[str, typer.Option(help="One-shot: numbers sent of a row, up to 64.", metavar="N,N")]
Noise = Annotated[str, typer.Option(help="One-shot: noise on the narrowest, in deviations.", metavar="X,X")]
Learners = Annotated[str, typer.Option(help="One-shot: trees, network, linear.", metavar="A,B")]
HeadKind = Annotated[Literal["trees", "network"], typer.Option(help="One-shot: the label party's private model.")]
AttackRows = Annotated[
    int, typer.Option(min=1000, help="One-shot: rows that decoders know, and are judged on.", metavar="N")
]


Threads = Annotated[
    int | None, typer.Option(min=1, help="One-shot: that may be used. [default: all]", metavar="N", show_default=False)
]
Given = Annotated[
    bool,
    typer.Option("--given", help="One-shot: decoders also know all other columns, as in `tacit train`.", metavar=""),
]


class Wanted(Protocol):
    """The options of a data set."""

    @property
    def data(self) -> str:
        """Its name."""
        ...

    @property
    def folder(self) -> Path | None:
        """Of its files."""
        ...

    @property
    def rows(self) -> int | None:
        """At most."""
        ...

    @property
    def bad(self) -> str:
        """What to do with rows that can't be read."""
        ...

    @property
    def cache(self) -> Path | None:
        """Of what was read."""
        ...


def ask_search(
    label_limit: float, odds: float | None, widths: str, noise: str, learners: str,
    *, head: str, seeds: int, attack_rows: int, given: bool,
) -> Search:  # fmt: skip
    """What is to be tried, from options as they were typed."""
    from tacit.lab.one_shot.settings import Search

    wide = _numbers("--widths", widths)
    if any(one != int(one) for one in wide):
        raise UsageError(f"--widths {widths}: give whole numbers, as 1,2,4,8")
    names = tuple(one.strip() for one in learners.split(",") if one.strip())
    return Search(
        label_limit, odds, tuple(map(int, wide)), _numbers("--noise", noise), names, head=head, seeds=seeds,
        attack_rows=attack_rows, given=given,
    )  # fmt: skip


def choose_exchange(
    asked: Wanted, search: Search, feature_limit: float | None, out: Path,
    *, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Try everything, show what came of it, and say what to take; exit code 1 where that is no partner."""
    if feature_limit is not None and not 0 < feature_limit <= 1:
        raise UsageError(f"--feature-limit {feature_limit:g}: it lies above 0, nothing, and is at most 1, everything")
    make_folder(out)
    kept = f"what was tried is kept in {out}: the same command goes on"
    with interruptible(lambda: kept), one_bar(quiet=quiet, first=f"loading {asked.data}", unit="settings") as show:
        from tacit.lab.data import load
        from tacit.lab.one_shot.trying import try_all, world_of

        loaded = load(
            asked.data, folder=asked.folder, rows=asked.rows, bad=asked.bad, cache=asked.cache,
            progress=lambda done, total: show(f"loading {asked.data}", done, total),
        )  # fmt: skip
        world = world_of(loaded)
        trials = try_all(world, search, out, threads=threads or os.cpu_count() or 1, progress=show)
    from tacit.lab.one_shot.advising import advise, points
    from tacit.lab.one_shot.drawing import draw

    found = points(trials)
    advice = advise(found, label_limit=search.label_limit, feature_limit=feature_limit, given=search.given)
    title = f"{asked.data}, {world.train:,} training rows, label limit {search.label_limit:g}"
    picture = draw(found, out / "choose-one-shot.svg", title=title, advice=advice)
    if as_json:
        told = {"data": asked.data, "training_rows": world.train, **advice.as_dict()}
        typer.echo(json.dumps(told | {"settings": [point.as_dict() for point in found]}, indent=2))
    else:
        _print(title, found, advice)
        typer.echo(f"Every figure: {out}. Picture: {picture}.")
    if advice.chosen is None:
        raise typer.Exit(1)


def _print(title: str, found: Sequence[Point], advice: Advice) -> None:
    """The table, then the advice."""
    rows = []
    for point in found:
        half = point.figure.high - point.figure.value
        figure = f"{point.figure.value:.3f}" + (f" ±{half:.3f}" if math.isfinite(half) else "")
        shares = f"{point.numbers.value:.0%}", f"{point.codes.value:.0%}", f"{point.worst:.3f}"
        odds = "" if math.isinf(point.odds) else f"{point.odds:.3g}"
        held = "yes" if point.holds(advice.feature_limit) else "no"
        name = f"{point.setting.said} *" if point.frontier else point.setting.said
        cells = [name, figure, *shares, leak(point.auc), odds, held]
        rows.append([f"[bold reverse]{cell}" if point is advice.chosen else cell for cell in cells])
    head = ["setting", "test\nAUC", "numbers\nread", "codes\nread", "worst\nread", "label\nAUC", "label\nodds",
            "limits\nhold"]  # fmt: skip
    print_table(title, head, rows)
    typer.echo("* Of those that hold the label limit none is better with less read at worst.")
    for sentence in advice.sentences:
        typer.echo(sentence)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in text.split(",") if one.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: give numbers, as 1,4") from None
