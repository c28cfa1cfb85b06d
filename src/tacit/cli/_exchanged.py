"""`tacit choose` for one exchange: its options and its table."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli._ending import interruptible
from tacit.cli._options import option
from tacit.cli._show import print_table
from tacit.errors import UsageError
from tacit.progress import one_bar

if TYPE_CHECKING:
    from tacit.cli.sweep import Asked
    from tacit.lab.exchanges import Search


@dataclass(frozen=True)
class Exchange:
    """Options of `choose` about one exchange."""

    label_limit: Annotated[str | None, option("One exchange: bounds on the leak AUC of a label.", "AUC,AUC")] = None
    odds: Annotated[float | None, option("One exchange: a bound on the odds of a label.", "FACTOR")] = None
    bits: Annotated[str, option("One exchange: bits of each number sent of a row, 1 to 5.", "N,N")] = "1,2,3"
    numbers: Annotated[str, option("One exchange: numbers sent of a row.", "N,N")] = "1"
    learner: Annotated[Literal["trees", "network", "linear"], option("One exchange: what learns from flips.")] = "trees"
    head: Annotated[Literal["trees", "network"], option("One exchange: the label party's private model.")] = "trees"
    attack_rows: Annotated[int, option("One exchange: rows that decoders know, and are judged on.", "N", min=1000)] = (
        8000
    )
    threads: Annotated[int | None, option("One exchange: that may be used. [default: all]", "N", min=1)] = None

    @property
    def asked(self) -> bool:
        """True where it is about one exchange at all; odds alone are a mistake."""
        if self.label_limit is None and self.odds is not None:
            raise UsageError("--odds is for one exchange: give --label-limit too, as 0.6")
        return self.label_limit is not None

    def search(self, seeds: int) -> Search:
        """The search that the options ask for, as they were typed."""
        from tacit.lab.exchanges import Search

        assert self.label_limit is not None  # else it is not asked
        return Search(
            _listed("--label-limit", self.label_limit), self.odds, _whole("--bits", self.bits),
            _whole("--numbers", self.numbers), self.learner, self.head, seeds, self.attack_rows,
        )  # fmt: skip


def choose_exchange(asked: Asked, exchange: Exchange, *, as_json: bool, quiet: bool) -> None:
    """Try everything, no label first, and print one table."""
    search = exchange.search(asked.seeds)
    with (
        interruptible(lambda: "nothing is kept of what was tried"),
        one_bar(quiet=quiet, first=f"loading {asked.data}", unit="settings") as show,
    ):
        from tacit.lab.exchanges import table, try_all, world_of

        loaded = asked.load(show)
        points = try_all(world_of(loaded), search, threads=exchange.threads or os.cpu_count() or 1, progress=show)
    if as_json:
        about = {"data": asked.data, "training_rows": len(loaded.train), "label_limits": search.limits}
        typer.echo(json.dumps({**about, "settings": [point.as_dict() for point in points]}, indent=2))
        return
    head = ["sent", "test AUC", "bound on a label", "worst question, recovered at most", "conjunction"]
    print_table(f"{asked.data}, {len(loaded.train):,} training rows", head, table(points), words=(0, 3))


def _listed(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in text.split(",") if one.strip())
    except ValueError:
        raise UsageError(f"{name} {text}: give numbers, as 1,4") from None


def _whole(name: str, text: str) -> tuple[int, ...]:
    found = _listed(name, text)
    if any(one != int(one) for one in found):
        raise UsageError(f"{name} {text}: give whole numbers, as 1,2,3")
    return tuple(map(int, found))
