"""What one exchange costs in processor time, beside plain LightGBM on the joined columns of the same rows.

Both from encoded columns, binning included, in one process with one thread: LightGBM's 200 rounds of 31 leaves; and an
exchange from learning to the fitted head and fallback, without its audit and with it. TACIT_BENCH_ROWS sets how many
flights there are at most, and how many rows are made up; by default all flights, and a million.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import lightgbm
import numpy as np
import torch

from benchmarks._measure import Result
from tacit.exchange._rows import matrix, received_target
from tacit.exchange.cells import Cells
from tacit.exchange.head import fit_head
from tacit.exchange.learn import learner
from tacit.exchange.release import attack_release
from tacit.lab.data import flights, load
from tacit.lab.data.rows import Data
from tacit.lab.exchanges import Search, Trying, World, world_of

ROWS = 1_000_000
_PLAIN = {"objective": "binary", "num_leaves": 31, "num_threads": 1, "verbosity": -1, "force_row_wise": True}
_ROUNDS = 200


def run() -> Iterator[Result]:
    """Of all flights, then of rows that are made up."""
    torch.set_num_threads(1)
    asked = os.environ.get("TACIT_BENCH_ROWS")
    yield from _measured(flights.load(rows=None if asked is None else int(asked), by_day=False))
    yield from _measured(load("generated:flights", rows=int(asked or ROWS)))


def _measured(data: Data) -> Iterator[Result]:
    world = world_of(data)
    case, train = f"{len(world.target):,} rows of {world.name}", world.train
    plain = _processor(lambda: _plain(world))
    yield Result("cost", f"{case}: plain LightGBM, all columns joined", plain, "s")
    trying = Trying(world, Search(odds=3.0), 0, 1)
    coin = trying.coin(0.6)
    sent, labels = trying.sent(coin), world.target.values
    start = time.process_time()
    z = learner("trees").fit(world.rows[:train], sent, coin, 1, threads=1).embed(world.rows, threads=1)
    codes = Cells.fit(z[:train], bits=3, smallest=0.02, received=received_target(sent, coin)).code(z)
    learnt = time.process_time() - start
    yield Result("cost", f"{case}: learning, embedding and cells", learnt, "s")
    heads = _processor(
        lambda: [fit_head("trees", each, world.own, labels, train=train, threads=1) for each in (codes, None)]
    )
    yield Result("cost", f"{case}: head and fallback", heads, "s")
    audit = _processor(lambda: attack_release(codes, world.rows, world.columns, train=train, threads=1))
    yield Result("cost", f"{case}: the audit", audit, "s")
    yield Result("cost", f"{case}: an exchange over plain LightGBM", (learnt + heads) / plain, "x", goal=3)
    yield Result("cost", f"{case}: the same with its audit", (learnt + heads + audit) / plain, "x", goal=4)


def _plain(world: World) -> None:
    rows = slice(0, world.train)
    table = np.concatenate([matrix(world.own[rows]), matrix(world.rows[rows])], axis=1)
    data = lightgbm.Dataset(table, np.asarray(world.target.values)[rows], params=_PLAIN)
    lightgbm.train(_PLAIN, data, num_boost_round=_ROUNDS)


def _processor(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start
