"""What figures are drawn from: a few trainings, each shared by all figures that need it and done once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from papers.anchors import strengths
from papers.bounds import BOUNDS
from papers.daily import INDUSTRY, REPORT
from papers.labelling import label_rows
from papers.labels import SEARCH, Triple
from papers.observing import observe
from papers.progress import SCALES
from papers.runtimes import time_updates
from tacit.disk import replaced
from tacit.errors import UsageError
from tacit.lab.data.rows import Data, Pictures
from tacit.lab.stack.network import Network, network_for
from tacit.lab.sweeping.recipe import digest_of, paper_of
from tacit.lab.sweeping.settings import Setting
from tacit.progress import Count, Progress

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RECIPES", "Asked", "Recipe", "Scale", "results"]

Scale = Literal["small", "paper"]

_ISO_SMALL, _SCALES_SMALL = (0.25, 1.0, 4.0, 25.0, 100.0), (*SCALES, 10.0)
_AUCS_SMALL, _AUCS_PAPER = (0.9, 0.75, 0.65, 0.55), (0.95, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.52)


@dataclass(frozen=True)
class Asked:
    """What somebody wants figures of.

    Attributes:
        data: the rows.
        scale: "small" runs in minutes on two cores; "paper" takes the papers' batches and epochs.
        epochs: how often every row is visited, where the scale's own number is not wanted.
        seeds: how many seeds of each setting.
        seed: the first of them.
        device: "cpu" or "cuda".
        learning_rate: of Adam, where the scale's own is not wanted.
        rows: how many rows were asked for, if that was said: for figures that load their own.
    """

    data: Data
    scale: Scale = "small"
    epochs: int | None = None
    seeds: int = 1
    seed: int = 0
    device: str = "cpu"
    learning_rate: float | None = None
    rows: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """What must be the same for a training to be used again."""
        return {
            "data": self.data.name, "digest": self.digest, "training_rows": len(self.data.train),
            "test_rows": len(self.data.test), "scale": self.scale, "epochs": self.epochs, "seeds": self.seeds,
            "seed": self.seed, "learning_rate": self.learning_rate,
        }  # fmt: skip

    @cached_property
    def digest(self) -> str:
        """Of the rows."""
        return digest_of(self.data)


@dataclass(frozen=True)
class Recipe:
    """One training that figures are drawn from.

    Attributes:
        name: the folder's name.
        words: what is trained, for lists.
        sizes: of the network, where they are not the papers' usual ones; of pictures only what fits them.
        batch_size: the paper's; None where it has another for each data set.
        epochs: the paper's; None where it has another for each data set.
        small: batch size and epochs of the small scale.
        triples: for each scale and data set the settings, each as protection, knob and strength.
        kind: "sweep", "days", "observations", "labels" or "times".
        attacks: what is measured on every batch; `majority` is left out, its cost grows with the square of a batch.
        errors: of which of them the detection error is measured, too.
        every_layer: whether leaks are measured at all layers of the feature party and not only at cut and first.
        thorough: whether the attacks on recorded batches run as well.
        stops: updates after which observations look.
        seeds: how many at least, where bands are made of them.
    """

    name: str
    words: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    batch_size: int | None = 1024
    epochs: int | None = 5
    small: tuple[int, int] = (512, 4)
    triples: Callable[[Scale, str], Sequence[Triple]] = lambda scale, data: [("none", None, None)]
    kind: Literal["sweep", "days", "observations", "labels", "times"] = "sweep"
    attacks: tuple[str, ...] = ("norm", "cosine", "hint")
    errors: tuple[str, ...] = ()
    every_layer: bool = False
    thorough: bool = False
    stops: tuple[int, ...] = ()
    seeds: int = 1

    def network(self, data: Data) -> Network:
        """The paper's network; of pictures always the convolutional one with its usual sizes, as deep as they allow."""
        return network_for(data.inputs, **({} if isinstance(data.inputs, Pictures) else self.sizes))

    def layers(self, data: Data) -> tuple[str, ...]:
        """Where leaks are measured."""
        last = self.network(data).cut - 1  # the cut is the layer after it
        if isinstance(data.inputs, Pictures):  # a layer is its ReLU, and a pool lies between the last one and the cut
            last += 1
        return ("cut", *(f"layer{number}" for number in range(1, last + 1 if self.every_layer else min(2, last + 1))))

    def settings(self, asked: Asked) -> list[Setting]:
        """All replicas."""
        seeds = range(asked.seed, asked.seed + max(self.seeds, asked.seeds))
        triples = self.triples(asked.scale, asked.data.name)
        return [
            Setting(p, knob, value, (SEARCH if p == "marvell" and knob != "scale" else ()), seed)
            for seed in seeds
            for p, knob, value in triples
        ]

    def batch(self, asked: Asked) -> int:
        """The scale's batch size, halved until an epoch has some batches."""
        paper = paper_of(asked.data.name)
        usual = self.batch_size or (paper.batch_size if paper else 1024)
        size = self.small[0] if asked.scale == "small" else usual
        while size > 32 and size * 8 > len(asked.data.train):
            size //= 2
        return size

    def visits(self, asked: Asked) -> int:
        """How often every row is visited."""
        paper = paper_of(asked.data.name)
        usual = self.epochs or (paper.epochs if paper else 5)
        return asked.epochs or (self.small[1] if asked.scale == "small" else usual)


def results(recipe: Recipe, asked: Asked, out: Path, progress: Progress = lambda *_: None) -> pl.DataFrame:
    """A recipe's results: from its folder where it was done before, else by training.

    Args:
        recipe: what to train.
        asked: of which data, at which scale.
        out: the folder of all recipes; each has one of its own in it.
        progress: called with what is being done, the parts done and all parts.
    """
    import polars as pl

    folder = out / recipe.name
    folder.mkdir(parents=True, exist_ok=True)
    _same(folder / "asked.json", asked)
    done = folder / "results.parquet"
    if done.exists():
        return pl.read_parquet(done)
    if recipe.kind == "sweep":
        return _swept(recipe, asked, folder, progress)
    table = _trained(recipe, asked, lambda part, all_: progress(f"{recipe.name}: training", part, all_))
    replaced(done, table.write_parquet)
    return table


def _swept(recipe: Recipe, asked: Asked, folder: Path, progress: Progress) -> pl.DataFrame:
    from tacit.lab import sweep

    return sweep(
        asked.data, settings=recipe.settings(asked), epochs=recipe.visits(asked), batch_size=recipe.batch(asked),
        learning_rate=_rate(asked), network=recipe.network(asked.data), device=asked.device, out=folder,
        attacks=recipe.attacks, errors=recipe.errors, layers=recipe.layers(asked.data), thorough=recipe.thorough,
        batches=True,
        progress=lambda what, part, all_: progress(f"{recipe.name}: {what}", part, all_),
    ).table  # fmt: skip


def _trained(recipe: Recipe, asked: Asked, progress: Count) -> pl.DataFrame:
    data, network = asked.data, recipe.network(asked.data)
    size, rate = recipe.batch(asked), _rate(asked)
    if recipe.kind == "observations":
        return observe(
            data.train, network, steps=recipe.stops, batch_size=size, learning_rate=rate, seed=asked.seed,
            device=asked.device, progress=progress,
        )  # fmt: skip
    if recipe.kind == "labels":
        return label_rows(
            data.train, network, recipe.settings(asked), epochs=recipe.visits(asked), batch_size=size,
            learning_rate=rate, device=asked.device, progress=progress,
        )  # fmt: skip
    if recipe.kind == "times":
        return time_updates(data.train, network, batch_size=size, seed=asked.seed, device=asked.device)
    from tacit.lab.days import by_day

    period, size = _period(data, size)
    return by_day(
        data, recipe.settings(asked), network=network, batch_size=size, learning_rate=rate, period=period,
        attacks=recipe.attacks, layers=("cut",), device=asked.device, progress=progress,
    )  # fmt: skip


def _rate(asked: Asked) -> float:
    """The papers' learning rate at their scale; at the small one a larger, because there are few updates."""
    paper = paper_of(asked.data.name) if asked.scale == "paper" else None
    return asked.learning_rate or (paper.learning_rate if paper else 1e-3)


def _period(data: Data, size: int) -> tuple[int, int]:
    """Days that are taken together, so that each has a batch and there are at most thirty or so, and the batch size."""
    days = data.train.days
    if days is None:
        return 1, size
    span = int(days.max()) + 1
    period = max(1, -(-span // 30))
    while 0 < 2 * (span % period) < period:  # a last period of few days would have few rows
        period += 1
    counts = (days // period).bincount()
    fewest = int(counts[counts > 0].min())
    while size > 16 and size > fewest:
        size //= 2
    return period, size


def _same(path: Path, asked: Asked) -> None:
    """Refuse a folder that was made of something else."""
    wanted = asked.as_dict()
    if not path.exists():
        path.write_text(json.dumps(wanted))
        return
    there = json.loads(path.read_text())
    for key, value in wanted.items():
        if there.get(key) != value:
            raise UsageError(
                f"{path.parent} holds a training with {key} = {there.get(key)}, but {value} is asked for: choose "
                "another --out, or ask for the same"
            )


# --- the recipes -----------------------------------------------------------------------------------------------------

_NONE: Triple = ("none", None, None)
_HEURISTIC: Triple = ("max_norm", None, None)


def _trade_offs(scale: Scale, data: str) -> list[Triple]:
    """At the papers' scale every strength of the authors' table."""
    small = scale == "small"
    scales = _SCALES_SMALL if small else strengths(data, "marvell")
    return [
        _NONE, _HEURISTIC, *_isotropic(scale, data), *(("marvell", "scale", s) for s in scales),
        *(("matched", "leak_auc", a) for a in (_AUCS_SMALL if small else _AUCS_PAPER)),
    ]  # fmt: skip


def _isotropic(scale: Scale, data: str) -> list[Triple]:
    return [("iso", "t", t) for t in (_ISO_SMALL if scale == "small" else strengths(data, "iso"))]


def _hints(scale: Scale, data: str) -> list[Triple]:
    """The values of sumKL are those that the papers name; how many more Li 2021 drew is not told."""
    aucs = _AUCS_SMALL if scale == "small" else _AUCS_PAPER
    kls = (3.6, 0.64, 0.25, 0.1, 0.01) if scale == "small" else (3.6, 1.44, 0.64, 0.49, 0.25, 0.16, 0.1, 0.05, 0.01)
    return [
        _NONE, _HEURISTIC, *_isotropic(scale, data), *(("marvell", "sum_kl", k) for k in kls),
        *(("matched", "leak_auc", a) for a in aucs),
    ]  # fmt: skip


def _bounds(scale: Scale, data: str) -> list[Triple]:
    return [_NONE, *(("marvell", "detection_error", bound) for bound in BOUNDS), ("iso", "t", 25.0), _HEURISTIC]


def _layers(scale: Scale, data: str) -> list[Triple]:
    return [_NONE, ("marvell", "scale", 4.0)]


def _days(scale: Scale, data: str) -> list[Triple]:
    return list(dict.fromkeys([*INDUSTRY, *REPORT]))


def _report(scale: Scale, data: str) -> list[Triple]:
    return list(REPORT)


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "trade-offs", "no noise, max_norm, iso, marvell by s, matched; cut after 3 of 6 layers, all attacks",
            batch_size=None, epochs=None, triples=_trade_offs, thorough=True,
        ),
        Recipe(
            "layers", "no noise and marvell s = 4; cut after 8 of 11 layers (pictures: 4 of 6), every layer watched",
            {"cut": 8, "layers": 11}, triples=_layers, attacks=("norm", "cosine"), every_layer=True,
        ),
        Recipe(
            "first-version", "no noise, marvell by L, iso t = 25; cut after 4 of 4 layers, batches of 65,536",
            {"cut": 4, "layers": 4}, batch_size=65_536, epochs=30, small=(4096, 8), triples=_bounds,
            attacks=("norm",), errors=("norm",), every_layer=True,
        ),
        Recipe(
            "longer-version", "no noise, marvell by L, iso t = 25, max_norm; cut after 4 of 6 layers",
            {"cut": 4, "layers": 6}, triples=_bounds, attacks=("norm",), errors=("norm",), every_layer=True,
        ),
        Recipe(
            "hints", "no noise, max_norm, iso, marvell by sumKL, matched; cut after 4 of 6 layers",
            {"cut": 4, "layers": 6}, triples=_hints, thorough=True,
        ),
        Recipe(
            "days", "a stream of days; no noise, max_norm, iso t = 1 and 2, marvell with sumKL from 0.01 to 3.6",
            {"cut": 4, "layers": 6}, epochs=1, small=(128, 1), triples=_days, kind="days",
            attacks=("norm", "hint"), seeds=3,
        ),
        Recipe(
            "observations", "no noise, looked at after 100 to 500 updates; cut after 3 of 6 layers",
            kind="observations", stops=(100, 200, 300, 400, 500), small=(512, 1),
        ),
        Recipe(
            "first-observations", "no noise, looked at after 100 to 400 updates; cut after 2 of 4 layers",
            {"cut": 2, "layers": 4}, kind="observations", stops=(100, 200, 300, 400), small=(512, 1),
        ),
        Recipe(
            "labels", "no noise, max_norm, marvell with sumKL from 0.01 to 3.6; the last batches labelled by norm",
            triples=_report, kind="labels",
        ),
        Recipe(
            "times", "one replica under marvell s = 4: its update, its noise", kind="times", batch_size=None,
            small=(1024, 1),
        ),
    )
}  # fmt: skip
"""Every recipe by its name."""
