"""Plan of a training, batches and turns: a matter of the contract and of a joint seed.

So no party chooses, all agree without asking, and no memory grows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import UsageError

APART = 64
"""Steps that lie at least between two looks back at what was sent."""

_BLOCK = 1 << 16  # places that are worked out at a time
_ROUNDS = 8
_SMALL = 10
_PARTS = 4  # looks back in an epoch, at most
_EARLY = (0, 2, 8, 32)  # steps of the first epoch before which there is one more: who behaves at first is seen soon
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # what splitmix64 adds before it mixes


def batches(count: int, size: int, *, epoch: int, seed: int, first: int = 0) -> Iterator[Tensor]:
    """The batches of one epoch, all of one size; what is left over sits this epoch out and is shuffled in again.

    `first` is the batch to begin with, for a run that goes on in the middle of an epoch.

    >>> len(list(batches(5, 2, epoch=0, seed=1)))
    2
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= count:
        raise UsageError(
            f"batch_size = {size!r} does not fit {count} rows: choose a whole number between 1 and {count}"
        )
    return _batches(count, size, f"{seed}:{epoch}", first)


def _batches(count: int, size: int, key: str, first: int) -> Iterator[Tensor]:
    end = count - count % size
    block = max(1, _BLOCK // size) * size
    for start in range(first * size, end, block):
        yield from shuffled(count, start, min(start + block, end), key=key).split(size)


def shuffled(count: int, start: int, stop: int, *, key: str) -> Tensor:
    """The rows at some places of a random order of `range(count)`, without the order itself ever being held.

    A Feistel network is a bijection of numbers of n bits whatever its round function is; where it leaves `range(count)`
    it is applied again until it is back inside. The order is the same on every machine and with every version of every
    library, since it is made of whole numbers alone.

    >>> sorted(shuffled(10, 0, 10, key="any").tolist()) == list(range(10))
    True
    """
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest(), dtype="<u8")
    bits = (count - 1).bit_length()
    if bits < _SMALL:  # so few bits have too few networks for every order to be likely: sort by numbers of more bits
        numbers = _feistel(np.arange(count, dtype=np.uint64), 2 * _SMALL, keys)
        return torch.from_numpy(np.argsort(numbers)[start:stop])
    rows = _feistel(np.arange(start, stop, dtype=np.uint64), bits, keys)
    outside = np.flatnonzero(rows >= count)
    while len(outside):
        rows[outside] = _feistel(rows[outside], bits, keys)
        outside = outside[rows[outside] >= count]
    return torch.from_numpy(rows.astype(np.int64))


def _feistel(numbers: NDArray[np.uint64], bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Pass of the network; the halves differ by one bit where `bits` is odd, and change places at each round."""
    low_bits, high_bits = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    high, low = numbers >> low_bits, numbers & _ones(low_bits)
    for key in keys:
        high, low = low, high ^ (_mixed(low + key) & _ones(high_bits))
        low_bits, high_bits = high_bits, low_bits
    return (high << low_bits) | low


def _ones(bits: np.uint64) -> np.uint64:
    return np.uint64((1 << int(bits)) - 1)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of a word spread over all of its bits, as the finish of splitmix64 does it."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def scramble(ids: NDArray[np.integer[Any]], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each id that depends on nothing but the id and the seed.

    It is the same on every machine and with every version of every library, so what it chooses stays chosen.

    >>> scramble(np.array([7, 8, 7]), seed=0).round(4).tolist()
    [0.3935, 0.8927, 0.3935]
    """
    key = _mixed(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
    return (_mixed((ids.astype(np.uint64) ^ key) + _GOLDEN) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def digest(rows: Tensor) -> bytes:
    """A digest of the row ids of a batch and their order; it does not depend on the width of the integers."""
    return hashlib.blake2b(rows.to("cpu", torch.int64).numpy().tobytes(), digest_size=16).digest()


# --- what is done in which turn --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Work of one turn."""

    turn: int  # its number
    what: str  # "train", "evaluate" or "done"
    epoch: int  # counted from 0
    rows: Tensor  # the batch; empty for "done"
    last: bool = False  # whether an evaluation ends with it

    @cached_property
    def digest(self) -> bytes:
        """Digest of the batch: what a message of this turn says that it is about."""
        return digest(self.rows) if len(self.rows) else b""


@dataclass(frozen=True)
class Plan:
    """The turns of a run: in each epoch the batches, then the rows for testing; at the very end one word of farewell.

    The aligned rows are in an order that no party chose, so the last of them serve for testing as well as any.
    """

    count: int  # aligned rows
    batch_size: int  # rows in a batch
    epochs: int  # how often every training row is visited
    seed: int  # what all parties' nonces give
    test_share: float = 0.0  # of the rows
    tested_rows: int | None = None  # the last rows, in place of a share
    test_rows: int = 51_200  # how many of these are looked at in an evaluation, at most

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.epochs < 1:
            raise UsageError(f"batch_size = {self.batch_size}, epochs = {self.epochs}: each must be at least 1")
        if self.batch_size > self.train_count:
            raise UsageError(
                f"batch_size = {self.batch_size} does not fit the {self.train_count} training rows of {self.count} "
                "aligned ones: agree on a smaller batch_size or test_share in contract.toml"
            )

    @property
    def train_count(self) -> int:
        """Rows that are trained on: the first ones."""
        return self.count - (int(self.count * self.test_share) if self.tested_rows is None else self.tested_rows)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return self.train_count // self.batch_size

    @property
    def test_count(self) -> int:
        """Rows that an evaluation looks at."""
        return min(self.count - self.train_count, self.test_rows)

    @property
    def tests(self) -> int:
        """Batches in an evaluation."""
        return -(-self.test_count // self.batch_size)

    @property
    def epoch_turns(self) -> int:
        """Turns in an epoch."""
        return self.steps + self.tests

    @property
    def turns(self) -> int:
        """Number of turns."""
        return self.epochs * self.epoch_turns + 1

    def tested(self) -> Tensor:
        """The rows that an evaluation looks at, in their order."""
        return torch.arange(self.train_count, self.train_count + self.test_count)

    def tasks(self, first: int = 0) -> Iterator[Task]:
        """Turns from this one on."""
        for epoch in range(first // self.epoch_turns, self.epochs):
            start = epoch * self.epoch_turns
            skip = max(0, first - start)
            if skip < self.steps:
                plan = batches(self.train_count, self.batch_size, epoch=epoch, seed=self.seed, first=skip)
                for place, rows in enumerate(plan, start=skip):
                    yield Task(start + place, "train", epoch, rows)
            chunks = self.tested().split(self.batch_size) if self.test_count else ()
            for place, rows in enumerate(chunks, start=self.steps):
                if place >= skip:
                    yield Task(start + place, "evaluate", epoch, rows, last=place + 1 == self.epoch_turns)
        if first < self.turns:
            yield Task(self.turns - 1, "done", self.epochs, torch.empty(0, dtype=torch.int64))

    def looked_back(self, task: Task) -> int:
        """The last turn up to a task's at which something may be decided from what was sent before it."""
        place = task.turn % self.epoch_turns
        point = place - place % max(APART, -(-self.steps // _PARTS))
        if task.epoch == 0:
            point = max(point, *(early for early in _EARLY if early <= place))
        return task.turn - place + point
