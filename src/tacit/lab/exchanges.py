"""What one exchange would be worth on a data set, and what could be read: no label, or flips, in so many bits a row."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from tacit.align.encoder import Columns, Inputs
from tacit.config.contract import MOST_BITS, WIDEST
from tacit.errors import UsageError
from tacit.exchange.cells import Cells, received_target
from tacit.exchange.findings import ReleaseAudit
from tacit.exchange.head import fit_head
from tacit.exchange.learn import Bottom, Learner, learner, pca
from tacit.exchange.release import attack_release
from tacit.lab.data.flights import AIRPORT_INPUTS
from tacit.lab.data.rows import Data, Table
from tacit.labels.coins import Coins, counted_keys
from tacit.labels.flips import Flips, flips
from tacit.labels.target import Target, figures
from tacit.progress import Progress

_LABEL_FREE = 8  # numbers of a row where no label is sent


@dataclass(frozen=True)
class Setting:
    """One way to do it."""

    labels: str  # "none", "flips"; or, to compare with, "alone", without a partner, and "raw", with all columns joined
    limit: float = 0.5  # on the leak AUC of a label
    bits: int = 0  # of each number
    numbers: int = 0  # of a row
    smallest: float = 0.02  # the share of the rows that a group has at least

    @property
    def words(self) -> str:
        """In a few words."""
        if self.labels == "alone":
            return "no partner"
        if self.labels == "raw":
            return "all columns joined, no protection"
        told = "no label" if self.labels == "none" else f"flips, limit {self.limit:g}"
        numbers = "" if self.numbers == 1 else f"{self.numbers} numbers of "
        return f"{told}, {numbers}{self.bits} bit{'' if self.bits == 1 else 's'}"


@dataclass(frozen=True)
class Search:
    """Everything that is tried."""

    limits: tuple[float, ...] = (0.6,)  # on the leak AUC of a label
    odds: float | None = None  # on the odds of a label
    bits: tuple[int, ...] = (1, 2, 3)  # of each number
    numbers: tuple[int, ...] = (1,)  # of a row
    learner: str | Learner = "trees"  # by name, or one that is made
    head: str = "trees"  # of the label party
    seeds: int = 1  # with how many each is tried
    attack_rows: int = 8000  # that decoders know, and are judged on, at most

    def __post_init__(self) -> None:
        for limit in self.limits:
            flips(limit, self.odds)  # refuses what is no limit
        if not self.limits or not self.bits or any(not 1 <= each <= MOST_BITS for each in self.bits):
            raise UsageError(f"bits {self.bits}: each is 1 to {MOST_BITS}")
        if not self.numbers or any(not 1 <= each <= WIDEST for each in self.numbers):
            raise UsageError(f"numbers {self.numbers}: a row has 1 to {WIDEST}")
        if self.seeds < 1 or self.attack_rows < 1000:
            raise UsageError("at least one seed is needed, and 1000 rows that decoders know")

    def settings(self, columns: int) -> Iterator[Setting]:
        """What sends no label first, with numbers enough to be worth something without any, of so many columns."""
        yield Setting("alone")
        yield Setting("none", 0.5, MOST_BITS, min(_LABEL_FREE, columns))
        for limit in self.limits:
            for numbers in self.numbers:
                yield from (Setting("flips", limit, bits, numbers) for bits in self.bits)
        yield Setting("raw", 1.0)


@dataclass(frozen=True)
class Trial:
    """One setting with one seed."""

    figure: float  # the AUC on the test rows
    auc: float  # the bound on the leak AUC of a label: 0.5 where none is sent
    odds: float  # likewise on its odds
    worst: float = 0.0  # the most that decoders may have recovered of any column
    numbers: float = 0.0  # the mean share of the numbers' variance that they read
    asked: str = ""  # the question that this is an answer to
    conjunction: float = 0.0  # the most that they may have recovered of a conjunction of columns


@dataclass(frozen=True)
class Point:
    """A setting over all of its seeds."""

    setting: Setting
    trials: tuple[Trial, ...]

    @property
    def figure(self) -> float:
        """The mean test AUC."""
        return float(np.mean([trial.figure for trial in self.trials]))

    @property
    def half(self) -> float | None:
        """Half of its 95% interval by Student's t; None with one seed."""
        count = len(self.trials)
        if count < 2:
            return None
        spread = float(np.std([trial.figure for trial in self.trials], ddof=1))
        return float(stdtrit(count - 1, 0.975)) * spread / math.sqrt(count)

    @property
    def worst(self) -> Trial:
        """That of the seed in which most was read."""
        return max(self.trials, key=lambda trial: trial.worst)

    @property
    def conjunction(self) -> float:
        """The most over the seeds that was read of a conjunction."""
        return max(trial.conjunction for trial in self.trials)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no infinity."""
        odds = self.worst.odds if math.isfinite(self.worst.odds) else None
        return {
            "setting": self.setting.words, **asdict(self.setting), "seeds": len(self.trials), "test_auc": self.figure,
            "half": self.half, "auc": self.worst.auc, "odds": odds, "worst": self.worst.worst,
            "asked": self.worst.asked, "conjunction": self.conjunction,
        }  # fmt: skip


def try_all(world: World, search: Search, *, threads: int = 1, progress: Progress = lambda *_: None) -> list[Point]:
    """Every setting with every seed."""
    settings = list(search.settings(sum(part.shape[1] for part in world.rows.tensors)))
    found: dict[Setting, list[Trial]] = {setting: [] for setting in settings}
    for seed in range(search.seeds):
        trying = Trying(world, search, seed, threads)
        for place, setting in enumerate(settings):
            progress(f"seed {seed}: {setting.words}", seed * len(settings) + place, search.seeds * len(settings))
            found[setting].append(trying.tried(setting))
    progress("done", search.seeds * len(settings), search.seeds * len(settings))
    return [Point(setting, tuple(trials)) for setting, trials in found.items()]


class Trying:
    """What all settings with one seed have in common."""

    def __init__(self, world: World, search: Search, seed: int, threads: int) -> None:
        self.world, self.search, self.seed, self.threads = world, search, seed, threads
        self._bottoms: dict[tuple[str, float, int], tuple[Bottom, NDArray[np.float32], Any]] = {}

    def tried(self, setting: Setting) -> Trial:
        """One setting."""
        if setting.labels == "alone":
            return Trial(self.figure(setting), 0.5, 1.0)
        if setting.labels == "raw":
            return Trial(self.figure(setting), 1.0, math.inf, 1.0, 1.0, "sent as they are", 1.0)
        coin, _, audit = self.released(setting)
        worst = next((one for one in audit.findings if one.counted), None)
        return Trial(
            self.figure(setting), 0.5 if coin is None else coin.auc, 1.0 if coin is None else coin.odds,
            audit.worst, audit.numbers, "" if worst is None else f"{worst.column}, {worst.question}",
            audit.conjunction.read.high if audit.conjunction is not None else 0.0,
        )  # fmt: skip

    def released(self, setting: Setting) -> tuple[Flips | None, NDArray[np.uint8], ReleaseAudit]:
        """The coin of the labels, what would be sent of each row, and the audit of that."""
        world, rows = self.world, self.search.attack_rows
        coin = None if setting.labels == "none" else self.coin(setting.limit)
        codes = self.codes(setting)
        audit = attack_release(
            codes, world.rows, world.columns, train=world.train, seed=self.seed, threads=self.threads,
            known_rows=rows, judged_rows=rows,
        )  # fmt: skip
        return coin, codes, audit

    def codes(self, setting: Setting) -> NDArray[np.uint8]:
        """What would be sent of all rows, in cells.  (rows, numbers)"""
        coin = None if setting.labels == "none" else self.coin(setting.limit)
        z, received = self._embedded(setting, coin)
        smallest = min(setting.smallest, 0.5**setting.bits)
        return Cells.fit(z[: self.world.train], bits=setting.bits, smallest=smallest, received=received).code(z)

    def sent(self, coin: Flips) -> NDArray[np.int64]:
        """What is sent of the training rows' labels."""
        world = self.world
        truth = np.asarray(world.target.values[: world.train], np.int64)
        secret = hashlib.sha256(f"coins of tacit choose {self.seed}".encode()).digest()
        coins = Coins(secret, column="label", definition=world.target.definition, epoch=0)
        return coins.draw(coin, counted_keys(np.arange(world.train)), truth)

    def coin(self, limit: float) -> Flips:
        """For the class that is rare, where odds say that there may be one."""
        rare = "neither" if self.search.odds is None else "positive" if self.world.share < 0.5 else "negative"
        return flips(limit, self.search.odds, rare=rare)

    def _embedded(self, setting: Setting, coin: Flips | None) -> tuple[NDArray[np.float32], Any]:
        """The embedding of all rows, and what was received of labels; the same for any number of bits."""
        key, world = (setting.labels, setting.limit, setting.numbers), self.world
        if key not in self._bottoms:
            rows, received = world.rows[: world.train], None
            if coin is None:
                bottom: Bottom = pca.fit(rows, setting.numbers, seed=self.seed)
            else:
                sent = self.sent(coin)
                received = received_target(sent, coin)
                made = self.search.learner
                made = learner(made) if isinstance(made, str) else made
                bottom = made.fit(rows, sent, coin, setting.numbers, seed=self.seed, threads=self.threads)
            self._bottoms[key] = bottom, bottom.embed(world.rows, threads=self.threads), received
        return self._bottoms[key][1:]

    def figure(self, setting: Setting) -> float:
        """The AUC on test rows of a head on true labels, own columns and what would be sent."""
        world, own = self.world, self.world.own
        codes = self.codes(setting) if setting.labels in ("none", "flips") else None
        if setting.labels == "raw":
            categorical, numeric = (torch.cat(pair, 1) for pair in zip(own.tensors, world.rows.tensors, strict=True))
            own = Inputs(categorical, numeric, (*own.cardinalities, *world.rows.cardinalities))
        head = fit_head(
            self.search.head, codes, own, world.target.values, train=world.train, seed=self.seed, threads=self.threads
        )
        test = slice(world.train, len(world.target))
        scores = head.predict(None if codes is None else codes[test], own[test], threads=self.threads)
        return figures(world.target, test, scores)["test_auc"]


# --- a data set as both parties have it ------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A data set as both parties have it, training rows first."""

    name: str  # of the data set
    rows: Inputs  # the feature party's
    columns: Columns  # their names
    own: Inputs  # the label party's
    target: Target  # the labels
    train: int  # how many rows are for training

    @property
    def share(self) -> float:
        """Of positives, among the training rows."""
        return float(self.target.values[: self.train].mean())


def world_of(data: Data) -> World:
    """A data set of the lab as both parties have it; it is a table, for one exchange takes nothing else.

    Where the label party has the feature party's own columns, as in the papers' set-up (`criteo`, `avazu`), it keeps
    its labels alone here: nothing that a partner sends could tell it more.
    """
    if not isinstance(data.inputs, Table):
        raise UsageError(f"{data.name} holds pictures, and one exchange takes tables: choose split training for it")
    both = [torch.cat(pair) for pair in zip(data.train.features, data.test.features, strict=True)]
    pairs = () if data.train.shared else zip(data.train.own, data.test.own, strict=True)
    mine = [torch.cat(pair) for pair in pairs]
    labels = torch.cat([data.train.labels, data.test.labels]).long().numpy()
    target = Target("classes", 2, labels, np.ones(len(labels), bool), "2 classes")
    empty = Inputs(torch.zeros(len(labels), 0, dtype=torch.int64), torch.zeros(len(labels), 0), ())
    rows = Inputs(both[0].long(), both[1].float(), data.inputs.cardinalities)
    own = Inputs(mine[0].long(), mine[1].float(), data.inputs.own_cardinalities) if mine else empty
    codes, numbers = range(len(data.inputs.cardinalities)), range(data.inputs.numeric)
    names = Columns(tuple(f"c{place}" for place in codes), tuple(f"x{place}" for place in numbers))
    names = AIRPORT_INPUTS if data.name == "flights" else names
    return World(data.name, rows, names, own, target, len(data.train))


def spelled(point: Point) -> str:
    """The figure with half of its interval, where that is known."""
    return f"{point.figure:.3f}" + ("" if point.half is None else f" ± {point.half:.3f}")


def table(points: Sequence[Point]) -> list[list[str]]:
    """The rows of the one table: setting, test AUC, bound on labels, worst question, conjunction."""
    rows = []
    for point in points:
        worst, sent = point.worst, point.setting.labels in ("none", "flips")
        bound = f"{worst.auc:.3f}" + (f", odds {worst.odds:.3g}" if math.isfinite(worst.odds) else "")
        asked = f"{worst.worst:.3f} {worst.asked}" if sent else worst.asked
        rows.append([point.setting.words, spelled(point), bound, asked, f"{point.conjunction:.3f}" if sent else ""])
    return rows
