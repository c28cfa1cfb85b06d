"""What is done in which turn: a matter of the contract and the joint seed, so that all parties agree without asking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tacit.align.batches import batches, digest
from tacit.errors import UsageError

__all__ = ["Plan", "Task"]


@dataclass(frozen=True)
class Task:
    """One turn's work.

    Attributes:
        turn: its number.
        what: "train", "evaluate" or "done".
        epoch: counted from 0.
        rows: the batch; empty for "done".
        last: whether an evaluation ends with it.
    """

    turn: int
    what: str
    epoch: int
    rows: Tensor
    last: bool = False

    @cached_property
    def digest(self) -> bytes:
        """Of the batch: what a message of this turn says that it is about."""
        return digest(self.rows) if len(self.rows) else b""


@dataclass(frozen=True)
class Plan:
    """The turns of a run: in each epoch the batches, then the rows for testing; at the very end one word of farewell.

    The aligned rows are in an order that no party chose, so the last of them serve for testing as well as any.

    Attributes:
        count: aligned rows.
        batch_size: rows in a batch.
        epochs: how often every training row is visited.
        seed: what all parties' nonces give.
        test_share: of the rows.
        test_rows: how many of these are looked at in an evaluation, at most.
    """

    count: int
    batch_size: int
    epochs: int
    seed: int
    test_share: float = 0.0
    test_rows: int = 51_200

    def __post_init__(self) -> None:
        if self.batch_size > self.train_count:
            raise UsageError(
                f"batch_size = {self.batch_size} does not fit the {self.train_count} training rows of {self.count} "
                "aligned ones: agree on a smaller batch_size or test_share in contract.toml"
            )

    @property
    def train_count(self) -> int:
        """Rows that are trained on: the first ones."""
        return self.count - int(self.count * self.test_share)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return self.train_count // self.batch_size

    @property
    def _tested(self) -> int:
        return min(self.count - self.train_count, self.test_rows)

    @property
    def epoch_turns(self) -> int:
        """Turns in an epoch."""
        return self.steps + -(-self._tested // self.batch_size)

    @property
    def turns(self) -> int:
        """All turns."""
        return self.epochs * self.epoch_turns + 1

    def tested(self) -> Tensor:
        """The rows that an evaluation looks at, in their order."""
        return torch.arange(self.train_count, self.train_count + self._tested)

    def tasks(self, first: int = 0) -> Iterator[Task]:
        """All turns from this one on."""
        for epoch in range(first // self.epoch_turns, self.epochs):
            start = epoch * self.epoch_turns
            skip = max(0, first - start)
            if skip < self.steps:
                plan = batches(self.train_count, self.batch_size, epoch=epoch, seed=self.seed, first=skip)
                for place, rows in enumerate(plan, start=skip):
                    yield Task(start + place, "train", epoch, rows)
            chunks = self.tested().split(self.batch_size) if self._tested else ()
            for place, rows in enumerate(chunks, start=self.steps):
                if place >= skip:
                    yield Task(start + place, "evaluate", epoch, rows, last=place + 1 == self.epoch_turns)
        if first < self.turns:
            yield Task(self.turns - 1, "done", self.epochs, torch.empty(0, dtype=torch.int64))
