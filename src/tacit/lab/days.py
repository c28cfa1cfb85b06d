"""Training by day: a stream of days, each tested before it is trained on, with its utility and its leaks."""

from __future__ import annotations

import time
from collections.abc import Sequence

import polars as pl
import torch
from torch import Tensor

from tacit.errors import DataError, UsageError
from tacit.lab.data.rows import Data
from tacit.lab.stack.measuring import EVERY_BATCH
from tacit.lab.stack.network import Network, network_for
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.judging import utility
from tacit.lab.sweeping.results import as_table
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.wave import Row, part_rows
from tacit.progress import Count


def by_day(  # a public entry point: each setting by name
    data: Data,
    settings: Sequence[Setting],
    *,
    network: Network | None = None,
    batch_size: int = 1024,
    learning_rate: float = 1e-3,
    period: int = 1,
    attacks: Sequence[str] = EVERY_BATCH,
    layers: Sequence[str] = ("cut", "layer1"),
    device: str = "cpu",
    progress: Count = lambda done, total: None,
) -> pl.DataFrame:
    """Train every setting on the stream of days, once over, as a production system would.

    The training rows are the stream. A day's model is the one that all days before it made: it is tested on the whole
    day, and then trained on the day in batches of shuffled rows; rows that do not fill a batch are tested on and left
    out of training. The first day has no model yet, so its utility is null. Several seeds of a setting are several
    rows of the result: bands are made of them.

    One thing a production system could not do: codes of categories and scales of numbers were fitted on the training
    rows of all days when the data set was loaded. Labels of later days play no part in them.

    Args:
        data: a data set with days.
        settings: one for each replica; its seed gives first weights, the order within a day, and noise.
        network: what every replica is; the papers' for these inputs if not given.
        batch_size: rows in a batch.
        learning_rate: of Adam.
        period: how many days count as one, where single days have too few rows.
        attacks: what is measured on every batch.
        layers: where that is measured.
        device: "cpu" or "cuda".
        progress: called after each day with the days done and all days.

    Returns:
        Rows of `tacit.lab.sweeping.results`: a stretch for each replica and day, `day` filled, and no rows of a whole.
    """
    if period < 1:
        raise UsageError(f"period = {period}: a day of the stream is one day or more")
    days = _days(data, period, batch_size)
    stack = Stack(
        data.train, network or network_for(data.inputs), settings, batch_size=batch_size,
        learning_rate=learning_rate, device=device, attacks=attacks, layers=layers,
    )  # fmt: skip
    fewest = min(data.share, 1 - data.share) * batch_size
    found: list[Row] = []
    done = 0
    for place, (day, rows) in enumerate(days):
        start, tested = time.perf_counter(), None
        if place:
            today = data.train[rows]
            tested = utility(stack.logits(today), today.labels)
        plan = _plan(stack, rows, day)
        steps = stack.advance(plan)
        done += plan.shape[1]
        seconds = time.perf_counter() - start
        common = {"part": "stretch", "day": day, "step": done, "epoch": (place + 1) / len(days), "seconds": seconds}
        found += part_rows(dict(enumerate(stack.settings)), steps, common, tested, fewest)
        progress(place + 1, len(days))
    return as_table(sorted(found, key=lambda row: (row["replica"], row["day"])))


def _days(data: Data, period: int, batch_size: int) -> list[tuple[int, slice]]:
    """The first day of each period and its rows; a refusal where there are no days, or too short ones."""
    days = data.train.days
    if days is None:
        raise DataError(f"{data.name} has no days: train by day on flights, avazu, or a table of your own with a day")
    periods, counts = torch.unique_consecutive(days.cpu() // period, return_counts=True)
    ends = counts.cumsum(0)
    short = [int(day) * period for day, count in zip(periods, counts, strict=True) if int(count) < batch_size]
    if short:
        raise UsageError(
            f"{len(short)} of {len(periods)} days have fewer than {batch_size} rows, day {short[0]} first: take "
            f"smaller batches, or more days together than {period}"
        )
    return [
        (int(day) * period, slice(int(end - count), int(end)))
        for day, count, end in zip(periods, counts, ends, strict=True)
    ]


def _plan(stack: Stack, rows: slice, day: int) -> Tensor:
    """The batches of one day, shuffled for each seed.  (seeds, steps, batch)"""
    count = (rows.stop - rows.start) // stack.batch_size * stack.batch_size
    orders = []
    for seed in stack.seeds:
        draw = torch.Generator().manual_seed((seed * 1_000_003 + day) % 2**63)
        order = torch.randperm(rows.stop - rows.start, generator=draw)[:count] + rows.start
        orders.append(order.reshape(-1, stack.batch_size))
    return torch.stack(orders)
