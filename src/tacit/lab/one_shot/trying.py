"""Every setting tried on a data set: fitted, attacked, and judged on its test rows; what is done is kept."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Columns, Inputs
from tacit.errors import UsageError
from tacit.lab.data.flights import AIRPORT_INPUTS
from tacit.lab.data.rows import Data, Table
from tacit.lab.one_shot.settings import Family, Search, Setting
from tacit.one_shot import floor
from tacit.one_shot.coins import Coins, counted_keys
from tacit.one_shot.forms import Coding, Form
from tacit.one_shot.head import fit_head
from tacit.one_shot.learn import learner
from tacit.one_shot.reading import looked_for
from tacit.one_shot.release import attack_release
from tacit.one_shot.target import Target, figures

__all__ = ["FILE", "Trial", "World", "try_all", "world_of"]

FILE = "one_shot.jsonl"
"""A line for each setting and seed that was tried."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Trial:
    """One setting with one seed.

    Attributes:
        setting: that was tried.
        seed: of coins, learner, noise, decoders and head.
        figure: the AUC on the test rows.
        numbers: the mean share of the numbers' variance that decoders read.
        codes: likewise of the codes.
        worst: the most that decoders may have read of anything, as `tacit train` holds a limit against.
        auc: the certified leak AUC of a label; 0.5 where none is sent, 1 where all are.
        odds: likewise the odds, 1 and infinite.
        seconds: that it took.
    """

    setting: Setting
    seed: int
    figure: float
    numbers: float
    codes: float
    worst: float
    auc: float
    odds: float
    seconds: float


@dataclass(frozen=True)
class World:
    """A data set as both parties have it, training rows first.

    Attributes:
        name: of the data set.
        rows: the feature party's.
        columns: their names.
        own: the label party's.
        target: the labels.
        train: how many rows are for training.
    """

    name: str
    rows: Inputs | Tensor
    columns: Columns
    own: Inputs
    target: Target
    train: int

    @property
    def share(self) -> float:
        """Of positives, among the training rows."""
        return float(self.target.values[: self.train].mean())

    @property
    def digest(self) -> str:
        """Of the labels and the shape: enough to tell that another data set was meant."""
        shape = f"{self.name} {self.train} {len(self.target)} {self.columns}"
        return hashlib.sha256(shape.encode() + self.target.values.tobytes()).hexdigest()[:16]


def world_of(data: Data) -> World:
    """A data set of the lab as both parties have it."""
    both = [torch.cat(pair) for pair in zip(data.train.features, data.test.features, strict=True)]
    mine = [torch.cat(pair) for pair in zip(data.train.own, data.test.own, strict=True)]
    labels = torch.cat([data.train.labels, data.test.labels]).long().numpy()
    target = Target("classes", 2, labels, np.ones(len(labels), bool), "2 classes")
    empty = Inputs(torch.zeros(len(labels), 0, dtype=torch.int64), torch.zeros(len(labels), 0), ())
    if not isinstance(data.inputs, Table):
        pictures = both[0].float() / (255 if both[0].dtype == torch.uint8 else 1)
        places = looked_for(pictures, len(data.train)).numeric.shape[1]
        named = Columns((), tuple(f"place {number}" for number in range(places)))
        return World(data.name, pictures, named, empty, target, len(data.train))
    rows = Inputs(both[0].long(), both[1].float(), data.inputs.cardinalities)
    own = Inputs(mine[0].long(), mine[1].float(), data.inputs.own_cardinalities) if mine else empty
    return World(data.name, rows, _names(data), own, target, len(data.train))


def _names(data: Data) -> Columns:
    """Of the columns, where they are known."""
    assert isinstance(data.inputs, Table)
    if data.name == "flights":
        return AIRPORT_INPUTS
    return Columns(
        tuple(f"c{place}" for place in range(len(data.inputs.cardinalities))),
        tuple(f"x{place}" for place in range(data.inputs.numeric)),
    )


def try_all(
    world: World, search: Search, out: Path, *, threads: int = 1, progress: Progress = lambda *_: None
) -> list[Trial]:
    """Try what a search asks for, but for what was tried before with the same data.

    Args:
        world: the data set.
        search: what is tried.
        out: a folder, for what is done.
        threads: that may be used.
        progress: told what is being done, how many settings are done and how many there are.
    """
    known = _known(out / FILE, {**search.as_dict(), "data": world.digest})
    jobs = [(family, seed) for seed in range(search.seeds) for family in search.families() if _able(family, world)]
    total, found = sum(len(search.forms(family)) for family, _ in jobs), list[Trial]()
    for family, seed in jobs:
        progress(f"seed {seed}: {family.said}", len(found), total)
        wanted = search.forms(family)
        new = [setting for setting in wanted if (setting, seed) not in known]
        made = {}
        for trial in _tried(world, search, new, seed, threads):
            _keep(out / FILE, trial)
            made[trial.setting] = trial
            progress(f"seed {seed}: {trial.setting.said}", len(found) + len(made), total)
        found += [made.get(setting) or known[setting, seed] for setting in wanted]
    progress("done", total, total)
    return found


def _able(family: Family, world: World) -> bool:
    """Whether a family is for such rows: pictures have no label-free embedding here, and no raw columns for a head."""
    return isinstance(world.rows, Inputs) or family.labels not in ("none", "raw")


def _tried(world: World, search: Search, settings: list[Setting], seed: int, threads: int) -> Iterator[Trial]:
    """The settings of one family; what they share is made once."""
    if not settings:
        return
    family = settings[0].family
    auc, odds, sent, mechanism = _labels(world, search, family, seed)
    secret = hashlib.sha256(f"tacit choose {seed}".encode()).digest()
    wide = max(search.widths)
    z, digest = None, ""
    for setting in settings:
        begun = time.perf_counter()
        if family.bottom and (z is None or family.bottom == "waist"):
            of = setting.width if family.bottom == "waist" else wide
            z, digest = _embedded(world, family, of, sent, mechanism, seed, threads)
        codes, read = None, (0.0, 0.0, 0.0)
        if z is not None:
            form = Form(setting.width, 256, setting.noise)
            coding = Coding.fit(z[: world.train], form, width=setting.width, secret=secret, digest=digest)
            codes = coding.codes(z, secret)
            audit = attack_release(
                codes, looked_for(world.rows, world.train), world.columns, train=world.train, seed=seed,
                threads=threads, known_rows=search.attack_rows, judged_rows=search.attack_rows, others=search.given,
            )  # fmt: skip
            read = (audit.numbers, audit.codes, audit.worst)
        figure = _figure(world, search, family, codes, seed, threads)
        read = (1.0, 1.0, 1.0) if family.labels == "raw" else read
        yield Trial(setting, seed, figure, *read, auc, odds, time.perf_counter() - begun)


def _labels(world: World, search: Search, family: Family, seed: int) -> tuple[float, float, NDArray[Any], Any]:
    """What is certified of labels, and what is sent of them."""
    truth = np.asarray(world.target.values[: world.train], np.int64)
    if family.labels != "flips":
        auc, odds = (0.5, 1.0) if family.keeps_labels else (1.0, np.inf)
        return auc, odds, truth.astype(np.uint8), SimpleNamespace(classes=2, a=1.0, b=0.0)
    coin = search.coin(family.odds, world.share)
    secret = hashlib.sha256(f"coins of tacit choose {seed}".encode()).digest()
    coins = Coins(secret, column="label", definition=world.target.definition, epoch=0)
    return coin.auc, coin.odds, coins.draw(coin, counted_keys(np.arange(world.train)), truth), coin


def _embedded(
    world: World, family: Family, width: int, sent: NDArray[Any], mechanism: Any, seed: int, threads: int
) -> tuple[NDArray[np.float32], str]:
    """The embedding of all rows; of fewer numbers it is its first ones."""
    if family.labels == "none":
        assert isinstance(world.rows, Inputs)
        made = getattr(floor, family.bottom)(world.rows[: world.train], width, seed=seed)
        return made.embed(world.rows, threads=threads), made.digest
    bottom = learner(family.bottom).fit(
        world.rows[: world.train], sent, mechanism, width, seed=seed, threads=threads
    )  # fmt: skip
    return bottom.embed(world.rows, threads=threads), bottom.digest


def _figure(
    world: World, search: Search, family: Family, codes: NDArray[np.uint8] | None, seed: int, threads: int
) -> float:
    """The AUC on test rows of a head on true labels, own columns and what was sent."""
    own = world.own
    if family.labels == "raw":
        assert isinstance(world.rows, Inputs)
        own = Inputs(
            torch.cat([own.categorical, world.rows.categorical], 1),
            torch.cat([own.numeric, world.rows.numeric], 1),
            (*own.cardinalities, *world.rows.cardinalities),
        )
    head = fit_head(search.head, codes, own, world.target.values, train=world.train, seed=seed, threads=threads)
    test = slice(world.train, len(world.target))
    scores = head.predict(None if codes is None else codes[test], own[test], threads=threads)
    return figures(world.target, test, scores)["test_auc"]


# --- what is kept ----------------------------------------------------------------------------------------------------


def _known(path: Path, recipe: dict[str, Any]) -> dict[tuple[Setting, int], Trial]:
    """The trials that a file holds; one of another data set or limit is refused."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(recipe) + "\n", encoding="utf-8")
        return {}
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        before = json.loads(first)
        whole = [line for line in lines if line.endswith("}")]  # a kill may have cut the last one
        trials = [_read(json.loads(line)) for line in whole]
        if len(whole) < len(lines):
            path.write_text("".join(f"{line}\n" for line in (first, *whole)), encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} can't be read ({error!r}): delete it, or choose another folder with --out") from None
    if before != recipe:
        changed = ", ".join(key for key in recipe if before.get(key) != recipe[key])
        raise UsageError(f"{path} holds trials with another {changed}: choose another folder with --out, or delete it")
    return {(trial.setting, trial.seed): trial for trial in trials}


def _keep(path: Path, trial: Trial) -> None:
    family = trial.setting.family
    told = vars(trial) | {"setting": {**vars(family), "width": trial.setting.width, "noise": trial.setting.noise}}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def _read(told: dict[str, Any]) -> Trial:
    of = told.pop("setting")
    family = Family(of["labels"], of["bottom"], of["odds"])
    return Trial(setting=Setting(family, of["width"], of["noise"]), **told)
