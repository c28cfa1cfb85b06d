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

from tacit.align.encoder import Inputs
from tacit.disk import append_line, make_folder, read_lines
from tacit.errors import UsageError
from tacit.lab.one_shot.settings import Family, Search, Setting
from tacit.lab.one_shot.splitting import split_trained
from tacit.lab.one_shot.world import World
from tacit.one_shot import floor
from tacit.one_shot.coins import Coins, counted_keys
from tacit.one_shot.forms import Coding, Form
from tacit.one_shot.grouping import Averages, averages, partitions
from tacit.one_shot.head import fit_head
from tacit.one_shot.hiding import noise_of
from tacit.one_shot.learn import learner
from tacit.one_shot.reading import looked_for
from tacit.one_shot.release import attack_release
from tacit.one_shot.sums import sums
from tacit.one_shot.target import figures

FILE = "one_shot.jsonl"
"""A line for each setting and seed that was tried."""

Progress = Callable[[str, int, int], None]


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
    odds: float  # likewise the odds, 1 and infinite; sums and gradients have no bound on them
    seconds: float  # that it took


def try_all(
    world: World, search: Search, out: Path, *, threads: int = 1, progress: Progress = lambda *_: None
) -> list[Trial]:
    """Try what a search asks for, but for what was tried before with the same data."""
    known = _known(out / FILE, {**search.as_dict(), "data": world.digest})
    pictures = not isinstance(world.rows, Inputs)  # which are compared with true labels and no partner alone
    able = [one for one in search.families() if not pictures or one.labels in ("alone", "true", "flips")]
    jobs = [(family, seed) for seed in range(search.seeds) for family in able]
    total, trials = sum(len(search.forms(family)) for family, _ in jobs), list[Trial]()
    for family, seed in jobs:
        progress(f"seed {seed}: {family.words}", len(trials), total)
        wanted = search.forms(family)
        new = [setting for setting in wanted if (setting, seed) not in known]
        made = {}
        for trial in _tried(world, search, new, seed, threads):
            form = {"width": trial.setting.width, "noise": trial.setting.noise}
            append_line(out / FILE, vars(trial) | {"setting": vars(trial.setting.family) | form})
            made[trial.setting] = trial
            progress(f"seed {seed}: {trial.setting.words}", len(trials) + len(made), total)
        trials += [made.get(setting) or known[setting, seed] for setting in wanted]
    progress("done", total, total)
    return trials


def _tried(world: World, search: Search, settings: list[Setting], seed: int, threads: int) -> Iterator[Trial]:
    """The settings of one family; what they share is made once."""
    if not settings:
        return
    family = settings[0].family
    if family.labels == "split":
        yield _split(world, search, settings[0], seed, threads)
        return
    labels = _labels(world, search, family, seed)
    secret = hashlib.sha256(f"tacit choose {seed}".encode()).digest()
    wide = max(search.widths)
    z, digest = None, ""
    for setting in settings:
        begun = time.perf_counter()
        if family.bottom and (z is None or family.bottom == "waist"):
            of = setting.width if family.bottom == "waist" else wide
            z, digest = _embedded(world, family, of, labels, seed, threads)
        codes, read = None, (1.0, 1.0, 1.0) if family.labels == "raw" else (0.0, 0.0, 0.0)
        if z is not None:
            form = Form(setting.width, 256, setting.noise)
            coding = Coding.fit(z[: world.train], form, width=setting.width, secret=secret, digest=digest)
            codes = coding.codes(z, secret)
            read = _read_of(world, search, codes, seed, threads, labels.groups)
        figure = _figure(world, search, family, codes, seed, threads)
        yield Trial(setting, seed, figure, *read, labels.auc, labels.odds, time.perf_counter() - begun)


def _split(world: World, search: Search, setting: Setting, seed: int, threads: int) -> Trial:
    """Split training, whose labels leak what was measured."""
    begun = time.perf_counter()
    split = split_trained(world, setting.family.bottom, search.label_limit, seed=seed, threads=threads)
    read = _read_of(world, search, split.embedding.numpy(), seed, threads)
    return Trial(setting, seed, split.figure, *read, split.leak, np.inf, time.perf_counter() - begun)


def _read_of(
    world: World, search: Search, z: NDArray[Any], seed: int, threads: int, groups: NDArray[np.int64] | None = None
) -> tuple[float, float, float]:
    """What decoders read of an embedding: of numbers and of codes on average, and at worst of anything."""
    audit = attack_release(
        z, looked_for(world.rows, world.train), world.columns, train=world.train, seed=seed, threads=threads,
        groups=groups, known_rows=search.attack_rows, judged_rows=search.attack_rows, others=search.given,
    )  # fmt: skip
    return audit.numbers, audit.codes, audit.worst


@dataclass(frozen=True)
class _Labels:
    auc: float  # the certified leak AUC
    odds: float  # likewise the odds
    sent: NDArray[Any]  # what a learner learns from
    mechanism: Any  # how it was made of labels
    groups: NDArray[np.int64] | None = None  # of all rows that the label party sees, for sums. (rows, partitions)


def _labels(world: World, search: Search, family: Family, seed: int) -> _Labels:
    """What is certified of labels, and what is sent of them."""
    truth = np.asarray(world.target.values[: world.train], np.int64)
    secret = hashlib.sha256(f"coins of tacit choose {seed}".encode()).digest()
    if family.labels == "flips":
        coin = search.coin(family.odds, world.share)
        coins = Coins(secret, column="label", definition=world.target.definition, epoch=0)
        return _Labels(coin.auc, coin.odds, coins.draw(coin, counted_keys(np.arange(world.train)), truth), coin)
    if family.labels == "sums":
        return _sums(world, search, truth, secret, seed)
    if family.labels == "hidden_sums":
        return _hidden_sums(world, search, family, truth, secret, seed)
    auc, odds = (0.5, 1.0) if family.keeps_labels else (1.0, np.inf)
    return _Labels(auc, odds, truth.astype(np.uint8), SimpleNamespace(classes=2, a=1.0, b=0.0))


def _sums(world: World, search: Search, truth: NDArray[np.int64], secret: bytes, seed: int) -> _Labels:
    """Noisy sums over groups of rows that are alike; the label party sees the groups, test rows in one of their own."""
    assert isinstance(world.rows, Inputs)
    mechanism = sums(search.label_limit)
    groups = partitions(world.rows[: world.train], mechanism.groups, mechanism.partitions, seed=seed)
    answers = [
        mechanism.answer(secret, partition, truth, number=number, run="choose")
        for number, partition in enumerate(groups.T)
    ]
    rest = np.tile(groups.max(axis=0) + 1, (len(world.target) - world.train, 1))
    return _Labels(mechanism.auc, np.inf, averages(groups, answers), Averages(), np.concatenate([groups, rest]))


def _hidden_sums(
    world: World, search: Search, family: Family, truth: NDArray[np.int64], secret: bytes, seed: int
) -> _Labels:
    """The same over groups of one size that nobody sees: sums and noise as they come out of the encrypted exchange."""
    assert isinstance(world.rows, Inputs)
    size, count = family.grouping
    mechanism = sums(search.label_limit, groups=size, partitions=count, hidden=True)
    everybody = np.ones((world.train, count), np.bool_)
    groups = partitions(world.rows[: world.train], size, count, seed=seed, taking_part=everybody)
    noise = noise_of(mechanism, secret, "choose")
    answers = []
    for number, partition in enumerate(groups.T):
        inside = partition >= 0
        total = np.bincount(partition[inside], weights=truth[inside]).astype(np.int64)
        answers.append(total + noise(number, hashlib.sha256(partition.tobytes()).digest(), len(total)))
    return _Labels(mechanism.auc, np.inf, averages(groups, answers), Averages())


def _embedded(
    world: World, family: Family, width: int, labels: _Labels, seed: int, threads: int
) -> tuple[NDArray[np.float32], str]:
    """The embedding of all rows; of fewer numbers it is its first ones."""
    if family.labels == "none":
        assert isinstance(world.rows, Inputs)
        made = getattr(floor, family.bottom)(world.rows[: world.train], width, seed=seed)
        return made.embed(world.rows, threads=threads), made.digest
    bottom = learner(family.bottom).fit(
        world.rows[: world.train], labels.sent, labels.mechanism, width, seed=seed, threads=threads
    )
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
        make_folder(path.parent)
        append_line(path, recipe)
        return {}
    try:
        before, *lines = read_lines(path)
        trials = [_read(line) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} can't be read ({error!r}): delete it, or choose another folder with --out") from None
    if before != recipe:
        changed = ", ".join(key for key in recipe if before.get(key) != recipe[key])
        raise UsageError(f"{path} holds trials with another {changed}: choose another folder with --out, or delete it")
    return {(trial.setting, trial.seed): trial for trial in trials}


def _read(line: dict[str, Any]) -> Trial:
    setting = line.pop("setting")
    grouping = tuple(setting.get("grouping", (0, 0)))
    family = Family(setting["labels"], setting["bottom"], setting["odds"], (grouping[0], grouping[1]))
    return Trial(setting=Setting(family, setting["width"], setting["noise"]), **line)
