"""What a row of the table is worth, what was read, and what crossed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit

from benchmarks.comparison.table import BATCH, EPOCHS, LIMIT, ODDS, RATE, ROWS, UNTRAINED, Exchange, Split
from tacit.exchange.learn.own import own
from tacit.exchange.release import attack_release
from tacit.lab.data import flights
from tacit.lab.data.rows import Data, Table
from tacit.lab.exchanges import Search, Trying, world_of
from tacit.lab.trial import Course, Trained, attack, problem_of, train
from tacit.split.models import wide_deep
from tacit.split.protect.gradient import protection

JUDGED = 8_000  # rows that decoders know, and are judged on
Options = Mapping[str, float]


@cache
def data(rows: int) -> Data:
    """The flights of all rows of the table; which of them are for testing does not depend on any seed."""
    return flights.load(rows=rows, seed=0, by_day=False)


@dataclass(frozen=True)
class Job:
    """One training of a split row."""

    row: str
    options: Options
    rate: float  # of the bottom
    seed: int
    rows: int

    def train(self, follow: int = 4096) -> Trained:
        """Train it, and keep the visits of so many rows."""
        split = ROWS[self.row]
        assert isinstance(split, Split)
        course = Course(EPOCHS, BATCH, RATE, bottom_rate=self.rate, follow=follow, seed=self.seed)
        made = protection(split.protection, **self.options)
        return train(self.row, problem_of(data(self.rows)), course, protect=made, protect_embedding=split.embedding)


def worth(job: Job) -> float:
    """The test AUC."""
    return job.train().test_auc


def attacked(job: Job) -> dict[str, tuple[float, float]]:
    """What each attack reached, and how far that lies above what the attacker had without any gradient."""
    return {one.attack: (one.leak.value, one.excess) for one in attack(job.train()).findings}


def read(job: Job) -> dict[str, Any]:
    """What decoders recover of the airport's columns from what was sent: the last visit's embedding, or, where it has
    noise, the mean of all visits'.
    """
    split, world = ROWS[job.row], world_of(data(job.rows))
    assert isinstance(split, Split)
    view = job.train(follow=2 * JUDGED).record.visits().view  # (visits, rows, width), of the same rows
    sent, ids = view.embedding.mean(0) if split.embedding else view.embedding[-1], view.rows[0]
    audit = attack_release(
        sent.numpy(), world.rows[ids], world.columns, train=len(ids), seed=job.seed, known_rows=JUDGED,
        judged_rows=JUDGED,
    )  # fmt: skip
    worst = next(one for one in audit.findings if one.counted)
    return {"worst": audit.worst, "asked": f"{worst.column}, {worst.question}", "numbers": audit.numbers}


# --- a row -----------------------------------------------------------------------------------------------------------


def measured(name: str, rows: int, seeds: Sequence[int], pool: Executor) -> dict[str, Any]:
    """One row of the table, as plain values."""
    row = ROWS[name]
    found = _split(name, row, rows, seeds, pool) if isinstance(row, Split) else _exchange(name, rows, seeds, pool)
    return {"seeds": list(seeds), **found}


def _split(name: str, row: Split, rows: int, seeds: Sequence[int], pool: Executor) -> dict[str, Any]:
    jobs = [Job(name, one, rate, seed, rows) for one in row.strengths for rate in row.rates for seed in seeds]
    figures = iter(pool.map(worth, jobs))
    every = [[[next(figures) for _ in seeds] for _ in row.rates] for _ in row.strengths]
    curve: list[dict[str, Any]] = []
    for options, by_rate in zip(row.strengths, every, strict=True):
        figure, rate = max(zip(by_rate, row.rates, strict=True), key=lambda pair: _mean(pair[0]))
        curve.append(
            {
                "setting": {"name": row.protection, **options}, "bottom_rate": rate, "test_auc": _spread(figure),
                "rates": {f"{other:g}": _mean(each) for each, other in zip(by_rate, row.rates, strict=True)},
                "norm": None, "cosine": None, "worst": None,
            }
        )  # fmt: skip
    sends, best = row.rates != (UNTRAINED,), [float(one["bottom_rate"]) for one in curve]
    if sends:  # gradients, which can be attacked
        pairs = list(zip(row.strengths, best, strict=True))
        leaks = list(pool.map(attacked, [Job(name, *pair, seed, rows) for pair in pairs for seed in seeds]))
        for place, one in enumerate(curve):
            one |= _leaks(leaks[place * len(seeds) : (place + 1) * len(seeds)])
    chosen = _chosen(curve) if sends else 0
    features = list(pool.map(read, [Job(name, row.strengths[chosen], best[chosen], seed, rows) for seed in seeds]))
    width, visits = 128, EPOCHS * len(data(rows).train)
    there = (visits if sends else len(data(rows).train)) + len(data(rows).test)
    return {
        "learner": "network", "bound": None, **curve[chosen], "curve": curve, "features": _most(features),
        "bytes": {"labels": 4 * width * visits * sends, "features": 4 * width * there},
    }  # fmt: skip


def _chosen(curve: Sequence[Mapping[str, Any]]) -> int:
    """The weakest strength at which the best of all attacks holds the limit; where none does, at which the norm and
    the cosine attack do; else the strongest.
    """
    papers = [max(one["norm"], one["cosine"]) for one in curve]
    for leaks in ([one["worst"]["leak_auc"] for one in curve], papers):
        holding = [place for place, leak in enumerate(leaks) if leak <= LIMIT]
        if holding:
            return holding[0]
    return len(curve) - 1


def _leaks(each: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    """Means over the seeds: the papers' two attacks, and the one that lies farthest above what its attacker had."""
    common = [name for name in each[0] if all(name in one for one in each)]
    above = {name: _mean([one[name][1] for one in each]) for name in common}
    worst = max(common, key=lambda name: above[name])
    return {
        "norm": _mean([one["norm"][0] for one in each]), "cosine": _mean([one["cosine"][0] for one in each]),
        "worst": {"attack": worst, "leak_auc": 0.5 + above[worst], "attacks": len(common)},
    }  # fmt: skip


def _exchange(name: str, rows: int, seeds: Sequence[int], pool: Executor) -> dict[str, Any]:
    row, made = ROWS[name], data(rows)
    assert isinstance(row, Exchange)
    each = list(pool.map(exchanged, [name] * len(seeds), [rows] * len(seeds), seeds))
    setting, total = row.setting, len(made.train) + len(made.test)
    labels = -(-len(made.train) // 8) if setting.labels == "flips" else 0
    sent = setting.labels in ("flips", "none")
    bound = {"flips": each[0]["bound"], "none": {"leak_auc": 0.5, "epsilon": 0.0}}.get(setting.labels)
    return {
        "learner": row.learner, "bound": bound, "norm": None, "cosine": None, "worst": None,
        "test_auc": _spread([one["test_auc"] for one in each]),
        "features": _most([one["features"] for one in each]) if sent else None,
        "bytes": {"labels": labels, "features": -(-setting.bits * setting.numbers * total // 8)},
    }  # fmt: skip


def exchanged(name: str, rows: int, seed: int) -> dict[str, Any]:
    """One seed of a row without split training."""
    row, made = ROWS[name], data(rows)
    assert isinstance(row, Exchange)
    learner = own(_bottom(made.inputs, seed)) if row.learner == "network" else row.learner
    search = Search(odds=ODDS, learner=learner, head=row.learner, attack_rows=JUDGED)
    found = Trying(world_of(made), search, seed, threads=1).tried(row.setting)
    return {
        "test_auc": found.figure, "bound": {"leak_auc": found.auc, "epsilon": math.log(found.odds)},
        "features": {"worst": found.worst, "asked": found.asked, "numbers": found.numbers},
    }  # fmt: skip


def _bottom(inputs: Any, seed: int) -> Any:
    """The papers' network up to its cut."""
    assert isinstance(inputs, Table)
    generator = torch.Generator().manual_seed(seed)
    return wide_deep(inputs.cardinalities, inputs.numeric, generator=generator)[0]


def demonstrated() -> dict[str, Any]:
    """What `tacit demo` prints, act by act, and the seconds that it took: of the clock, and of all processors."""
    before, begun = os.times(), time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "tacit", "demo", "--out", str(Path(scratch) / "demo")]
        environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "TACIT_STATE": str(Path(scratch) / "state")}
        done = subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    took, after = time.perf_counter() - begun, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    acts: list[list[str]] = []
    for line in done.stdout.splitlines():
        if re.match(r" *Act \d\.", line):
            acts.append([])
        if line.startswith("Report of act 2"):
            break
        if acts and (line.strip() or len(acts[-1]) > 1):  # no empty line behind the title
            acts[-1].append(line.rstrip())
    return {
        "acts": ["\n".join(lines).strip("\n") for lines in acts], "seconds": round(took, 1),
        "processor_seconds": round(used, 1),
    }  # fmt: skip


# --- over the seeds --------------------------------------------------------------------------------------------------


def _mean(figures: Iterable[float]) -> float:
    return float(np.mean(list(figures)))


def _spread(figures: Sequence[float]) -> dict[str, Any]:
    """The mean, half of its 95% interval by Student's t, and each seed's."""
    count = len(figures)
    half = float(stdtrit(count - 1, 0.975) * np.std(figures, ddof=1) / math.sqrt(count)) if count > 1 else None
    return {"mean": _mean(figures), "half": half, "each": list(figures)}


def _most(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The most that any seed's decoders may have recovered of anything, and the mean share of the numbers' variance."""
    most = max(each, key=lambda one: float(one["worst"]))
    return {"worst": most["worst"], "asked": most["asked"], "numbers": _mean([one["numbers"] for one in each])}
