"""`tacit sweep` and `tacit choose` for one-shot training: their options, their table and the advice."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._ending import interruptible
from tacit.cli._options import flag, option
from tacit.cli._show import leak, make_folder, print_table
from tacit.errors import UsageError
from tacit.views.progress import one_bar

if TYPE_CHECKING:
    from tacit.cli.sweep import Asked
    from tacit.lab.one_shot.advising import Advice, Point
    from tacit.lab.one_shot.settings import Search

FeatureLimit = Annotated[
    float | None, option("One-shot: the most that decoders may read of anything, 0 to 1.", "SHARE")
]


@dataclass(frozen=True)
class Exchange:
    """What one-shot training is tried with; each field is an option of `sweep` and of `choose`."""

    label_limit: Annotated[float | None, option("One-shot: the leak AUC of a label, certified.", "AUC")] = None
    odds: Annotated[
        float | None, option("One-shot: try a coin with these odds beside the symmetric one.", "FACTOR")
    ] = None
    widths: Annotated[str, option("One-shot: numbers sent of a row, up to 128.", "N,N")] = "1,2,4,8"
    noise: Annotated[str, option("One-shot: noise on the narrowest, in deviations.", "X,X")] = "1,4"
    learners: Annotated[str, option("One-shot: trees, network, linear.", "A,B")] = "trees"
    compare: Annotated[str, option("One-shot: beside flips; of raw, true, split, pca, waist, clusters.", "A,B")] = (
        "raw,true,split,pca,waist,clusters"
    )
    head: Annotated[Literal["trees", "network"], option("One-shot: the label party's private model.")] = "trees"
    attack_rows: Annotated[int, option("One-shot: rows that decoders know, and are judged on.", "N", min=1000)] = 8000
    given: Annotated[bool, flag("One-shot: decoders know all other columns, as in `tacit train`.", "--given")] = False
    threads: Annotated[int | None, option("One-shot: that may be used. [default: all]", "N", min=1)] = None

    @property
    def asked(self) -> bool:
        """Whether it is about one-shot training at all; odds alone are a mistake."""
        if self.label_limit is None and self.odds is not None:
            raise UsageError("--odds is for one-shot training: give --label-limit too, as 0.6")
        return self.label_limit is not None

    def search(self, seeds: int) -> Search:
        """What is to be tried, from options as they were typed."""
        from tacit.lab.one_shot.settings import Search

        assert self.label_limit is not None  # else it is not asked
        widths = _numbers("--widths", self.widths)
        if any(width != int(width) for width in widths):
            raise UsageError(f"--widths {self.widths}: give whole numbers, as 1,2,4,8")
        return Search(
            self.label_limit, self.odds, tuple(map(int, widths)), _numbers("--noise", self.noise),
            _names(self.learners), _names(self.compare), head=self.head, seeds=seeds, attack_rows=self.attack_rows,
            given=self.given,
        )  # fmt: skip


def choose_exchange(
    asked: Asked, exchange: Exchange, feature_limit: float | None, out: Path, *, as_json: bool, quiet: bool
) -> None:
    """Try everything, show what came of it, and say what to take; exit code 1 where that is no partner."""
    if feature_limit is not None and not 0 < feature_limit <= 1:
        raise UsageError(f"--feature-limit {feature_limit:g}: it lies above 0, nothing, and is at most 1, everything")
    search = exchange.search(asked.seeds)
    points, rows = _tried(asked, search, out, exchange.threads, quiet=quiet)
    from tacit.lab.one_shot.advising import advise

    advice = advise(points, label_limit=search.label_limit, feature_limit=feature_limit, given=search.given)
    _show(asked, points, rows, search, out / "choose-one-shot.svg", advice, as_json=as_json)
    if advice.chosen is None:
        raise typer.Exit(1)


def sweep_exchange(asked: Asked, exchange: Exchange, out: Path, *, as_json: bool, quiet: bool) -> None:
    """Try everything, and show what came of it."""
    search = exchange.search(asked.seeds)
    points, rows = _tried(asked, search, out, exchange.threads, quiet=quiet)
    _show(asked, points, rows, search, out / "sweep-one-shot.svg", None, as_json=as_json)


def _tried(asked: Asked, search: Search, out: Path, threads: int | None, *, quiet: bool) -> tuple[list[Point], int]:
    make_folder(out)
    kept = f"what was tried is kept in {out}: the same command goes on"
    with interruptible(lambda: kept), one_bar(quiet=quiet, first=f"loading {asked.data}", unit="settings") as show:
        from tacit.lab.one_shot.advising import points
        from tacit.lab.one_shot.trying import try_all, world_of

        loaded = asked.load(show)
        trials = try_all(world_of(loaded), search, out, threads=threads or os.cpu_count() or 1, progress=show)
    return points(trials), len(loaded.train)


def _show(
    asked: Asked, points: Sequence[Point], rows: int, search: Search, path: Path, advice: Advice | None,
    *, as_json: bool,
) -> None:  # fmt: skip
    from tacit.lab.drawing import draw_exchange, draw_page

    title = f"{asked.data}, {rows:,} training rows, label limit {search.label_limit:g}"
    picture = draw_exchange(points, path, title=title, advice=advice)
    page = draw_page(points, path.with_suffix(".html"), title=title, label_limit=search.label_limit, advice=advice)
    if as_json:
        advised = {"label_limit": search.label_limit} if advice is None else advice.as_dict()
        settings = [point.as_dict() for point in points]
        typer.echo(json.dumps({"data": asked.data, "training_rows": rows, **advised, "settings": settings}, indent=2))
        return
    _print(title, points, advice)
    typer.echo(f"Every figure: {path.parent}. Picture: {picture}. Both limits as sliders: {page}.")


def _print(title: str, points: Sequence[Point], advice: Advice | None) -> None:
    from tacit.lab.one_shot.advising import spelled

    limit, chosen = (None, None) if advice is None else (advice.feature_limit, advice.chosen)
    rows = []
    for point in points:
        cells = [
            ("* " if point.frontier else "") + point.setting.words, spelled(point.figure),
            f"{point.numbers.value:.0%}, {point.codes.value:.0%}", f"{point.worst:.3f}", leak(point.auc),
            "" if math.isinf(point.odds) else f"{point.odds:.3g}", "yes" if point.holds(limit) else "no",
        ]  # fmt: skip
        rows.append([f"[bold reverse]{cell}" if point is chosen else cell for cell in cells])
    head = ["setting", "test\nAUC", "numbers,\ncodes\nread", "worst\nread", "label\nAUC", "label\nodds",
            "limits\nhold"]  # fmt: skip
    print_table(title, head, rows)
    typer.echo("* Of those that hold the label limit none is better with less read at worst.")
    for sentence in () if advice is None else advice.sentences:
        typer.echo(sentence)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in text.split(",") if one.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: give numbers, as 1,4") from None
