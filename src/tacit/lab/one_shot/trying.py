"""Every setting tried on a data set: fitted, attacked, and judged on its test rows; what is done is kept."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.encoder import Columns, Inputs
from tacit.audit.attacks.accumulated import accumulated
from tacit.audit.run import attack_all
from tacit.disk import append_line, make_folder, read_lines
from tacit.errors import UsageError
from tacit.lab.data.flights import AIRPORT_INPUTS
from tacit.lab.data.rows import Data, Rows, Table
from tacit.lab.one_shot.settings import CUT, Family, Search, Setting
from tacit.lab.stack.network import network_for
from tacit.lab.trial import Course, Problem, train
from tacit.one_shot import floor
from tacit.one_shot.coins import Coins, counted_keys
from tacit.one_shot.forms import Coding, Form
from tacit.one_shot.head import fit_head
from tacit.one_shot.learn import learner
from tacit.one_shot.release import attack_release
from tacit.one_shot.target import Target, figures
from tacit.protect.gradient import protection

FILE = "one_shot.jsonl"
"""A line for each setting and seed that was tried."""

Progress = Callable[[str, int, int], None]

_EPOCHS, _RATE, _BATCHES = 5, 2e-3, 100  # of split training: visits of a row, learning rate, batches of an epoch
_CANARIES, _SHARE = (1000, 4096), 20  # at least, where there are so many rows, and at most; one for so many rows


@dataclass(frozen=True)
class Trial:
    """One setting with one seed."""

    setting: Setting  # that was tried
    seed: int  # of coins, learner, noise, decoders and head
    figure: float  # the AUC on the test rows
    numbers: float  # the mean share of the numbers' variance that decoders read
    codes: float  # likewise of the codes
    worst: float  # the most that decoders may have read of anything, as `tacit train` holds a limit against
    # the certified leak AUC of a label; 0.5 where none is sent, 1 where all are; of split training what was measured
    auc: float
    odds: float  # likewise the odds, 1 and infinite; gradients have no bound on them
    seconds: float  # that it took


def try_all(
    world: World, search: Search, out: Path, *, threads: int = 1, progress: Progress = lambda *_: None
) -> list[Trial]:
    """Try what a search asks for, but for what was tried before with the same data."""
    known = _known(out / FILE, {**search.as_dict(), "data": world.digest})
    jobs = [(family, seed) for seed in range(search.seeds) for family in search.families()]
    total, trials = sum(len(search.forms(family)) for family, _ in jobs), list[Trial]()
    for family, seed in jobs:
        progress(f"seed {seed}: {family.words}", len(trials), total)
        wanted = search.forms(family)
        new = [setting for setting in wanted if (setting, seed) not in known]
        made = {}
        for trial in _Trying(world, search, seed, threads).tried(new):
            form = {"width": trial.setting.width, "noise": trial.setting.noise}
            append_line(out / FILE, vars(trial) | {"setting": vars(trial.setting.family) | form})
            made[trial.setting] = trial
            progress(f"seed {seed}: {trial.setting.words}", len(trials) + len(made), total)
        trials += [made.get(setting) or known[setting, seed] for setting in wanted]
    progress("done", total, total)
    return trials


@dataclass(frozen=True)
class _Labels:
    auc: float  # the certified leak AUC
    odds: float  # likewise the odds
    sent: NDArray[Any]  # what a learner learns from
    mechanism: Any  # how it was made of labels


@dataclass(frozen=True)
class _Trying:
    """What all settings with one seed have in common."""

    world: World
    search: Search
    seed: int
    threads: int

    @property
    def train(self) -> Inputs:
        """The feature party's training rows, of a table."""
        return self.world.rows[: self.world.train]

    def tried(self, settings: list[Setting]) -> Iterator[Trial]:
        """The settings of one family; what they share is made once."""
        if not settings:
            return
        family, begun = settings[0].family, time.perf_counter()
        if family.labels == "split":
            figure, leak, embedding = self._split(family.bottom)
            read = self._read_of(embedding)
            yield Trial(settings[0], self.seed, figure, *read, leak, np.inf, time.perf_counter() - begun)
            return
        labels = self._labels(family)
        secret = hashlib.sha256(f"tacit choose {self.seed}".encode()).digest()
        z, digest = None, ""
        for setting in settings:
            begun = time.perf_counter()
            if family.bottom and (z is None or family.bottom == "waist"):
                wide = setting.width if family.bottom == "waist" else max(self.search.widths)
                z, digest = self._embedded(family, wide, labels)
            codes, read = None, (1.0, 1.0, 1.0) if family.labels == "raw" else (0.0, 0.0, 0.0)
            if z is not None:
                form = Form(setting.width, 256, setting.noise)
                coding = Coding.fit(z[: self.world.train], form, width=setting.width, secret=secret, digest=digest)
                codes = coding.codes(z, secret)
                read = self._read_of(codes)
            figure = self._figure(family, codes)
            yield Trial(setting, self.seed, figure, *read, labels.auc, labels.odds, time.perf_counter() - begun)

    def _read_of(self, z: NDArray[Any]) -> tuple[float, float, float]:
        """What decoders read of an embedding: of numbers and of codes on average, and at worst of anything."""
        world, rows = self.world, self.search.attack_rows
        audit = attack_release(
            z, world.rows, world.columns, train=world.train, seed=self.seed, threads=self.threads,
            known_rows=rows, judged_rows=rows, others=self.search.given,
        )  # fmt: skip
        return audit.numbers, audit.codes, audit.worst

    def _labels(self, family: Family) -> _Labels:
        """What is certified of labels, and what is sent of them."""
        world = self.world
        truth = np.asarray(world.target.values[: world.train], np.int64)
        secret = hashlib.sha256(f"coins of tacit choose {self.seed}".encode()).digest()
        if family.labels == "flips":
            coin = self.search.coin(family.odds, world.share)
            coins = Coins(secret, column="label", definition=world.target.definition, epoch=0)
            return _Labels(coin.auc, coin.odds, coins.draw(coin, counted_keys(np.arange(world.train)), truth), coin)
        auc, odds = (0.5, 1.0) if family.keeps_labels else (1.0, np.inf)
        return _Labels(auc, odds, truth.astype(np.uint8), SimpleNamespace(classes=2, a=1.0, b=0.0))

    def _embedded(self, family: Family, width: int, labels: _Labels) -> tuple[NDArray[np.float32], str]:
        """The embedding of all rows; of fewer numbers it is its first ones."""
        rows, seed = self.world.rows, self.seed
        if family.labels == "none":
            made = getattr(floor, family.bottom)(self.train, width, seed=seed)
        else:
            made = learner(family.bottom).fit(
                rows[: self.world.train], labels.sent, labels.mechanism, width, seed=seed, threads=self.threads
            )
        return made.embed(rows, threads=self.threads), made.digest

    def _figure(self, family: Family, codes: NDArray[np.uint8] | None) -> float:
        """The AUC on test rows of a head on true labels, own columns and what was sent."""
        world, own = self.world, self.world.own
        if family.labels == "raw":
            own = Inputs(
                torch.cat([own.categorical, world.rows.categorical], 1),
                torch.cat([own.numeric, world.rows.numeric], 1),
                (*own.cardinalities, *world.rows.cardinalities),
            )
        head = fit_head(
            self.search.head, codes, own, world.target.values, train=world.train, seed=self.seed, threads=self.threads
        )
        test = slice(world.train, len(world.target))
        scores = head.predict(None if codes is None else codes[test], own[test], threads=self.threads)
        return figures(world.target, test, scores)["test_auc"]

    def _split(self, name: str) -> tuple[float, float, NDArray[np.float32]]:
        """Split training on the same rows: its figure, what it tells of a label, and the embedding as it is sent then.

        What gradients tell is measured on canaries: copies of training rows whose labels are fair coins, so that
        nothing but messages can tell them. The attack knows half of them and looks at all visits of each.
        """
        world, draw, before = self.world, torch.Generator().manual_seed(self.seed), torch.get_num_threads()
        own = world.own.tensors if any(part.shape[1] for part in world.own.tensors) else ()
        rows = Rows(world.rows.tensors, own, torch.from_numpy(world.target.values).float())
        count = min(world.train, max(_CANARIES[0], min(_CANARIES[1], world.train // _SHARE)))
        canaries = torch.randperm(world.train, generator=draw)[:count]
        seen = rows[torch.cat([canaries, torch.arange(world.train)])]  # canaries first: these the recorder follows
        seen.labels[:count] = torch.randint(0, 2, (count,), generator=draw).float()
        size = max(32, min(1024, len(seen) // _BATCHES))
        course = Course(_EPOCHS, size, learning_rate=_RATE, last=0, follow=count, seed=self.seed)
        problem = Problem(seen, rows[world.train :], network_for(world.inputs, width=CUT).build)
        options = {} if name == "none" else {"leak_auc": self.search.label_limit, "visits": _EPOCHS}
        torch.set_num_threads(self.threads)
        try:
            trained = train(name, problem, course, protect=protection(name, **options))
            view, noise = trained.record.visits().view, torch.Generator().manual_seed(self.seed)
            (finding,) = attack_all(view, seen.labels, [accumulated("contextual")], noise=noise)
            embedding = trained.model.embed(rows.features).float().numpy()
        finally:
            torch.set_num_threads(before)
        return trained.test_auc, finding.leak.value, embedding


# --- what is kept ----------------------------------------------------------------------------------------------------


def _known(path: Path, recipe: dict[str, Any]) -> dict[tuple[Setting, int], Trial]:
    """The trials that a file holds; one of another data set or limit is refused."""
    if not path.exists():
        make_folder(path.parent)
        append_line(path, recipe)
        return {}
    try:
        before, *lines = read_lines(path)
        trials = []
        for line in lines:
            setting = line.pop("setting")
            family = Family(setting["labels"], setting["bottom"], setting["odds"])
            trials.append(Trial(setting=Setting(family, setting["width"], setting["noise"]), **line))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} can't be read ({error!r}): delete it, or choose another folder with --out") from None
    if before != recipe:
        changed = ", ".join(key for key in recipe if before.get(key) != recipe[key])
        raise UsageError(f"{path} holds trials with another {changed}: choose another folder with --out, or delete it")
    return {(trial.setting, trial.seed): trial for trial in trials}


# --- a data set as both parties have it ------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A data set as both parties have it, training rows first."""

    name: str  # of the data set
    inputs: Table  # what kind of rows these are
    rows: Inputs  # the feature party's
    columns: Columns  # their names
    own: Inputs  # the label party's
    target: Target  # the labels
    train: int  # how many rows are for training

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
    """A data set of the lab as both parties have it; it is a table, for one exchange takes nothing else."""
    if not isinstance(data.inputs, Table):
        raise UsageError(f"{data.name} holds pictures, and one exchange takes tables: choose split training for it")
    both = [torch.cat(pair) for pair in zip(data.train.features, data.test.features, strict=True)]
    mine = [torch.cat(pair) for pair in zip(data.train.own, data.test.own, strict=True)]
    labels = torch.cat([data.train.labels, data.test.labels]).long().numpy()
    target = Target("classes", 2, labels, np.ones(len(labels), bool), "2 classes")
    empty = Inputs(torch.zeros(len(labels), 0, dtype=torch.int64), torch.zeros(len(labels), 0), ())
    rows = Inputs(both[0].long(), both[1].float(), data.inputs.cardinalities)
    own = Inputs(mine[0].long(), mine[1].float(), data.inputs.own_cardinalities) if mine else empty
    codes, numbers = range(len(data.inputs.cardinalities)), range(data.inputs.numeric)
    names = Columns(tuple(f"c{place}" for place in codes), tuple(f"x{place}" for place in numbers))
    names = AIRPORT_INPUTS if data.name == "flights" else names
    return World(data.name, data.inputs, rows, names, own, target, len(data.train))
