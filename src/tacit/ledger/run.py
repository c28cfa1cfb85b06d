"""A training as the ledger knows it: enough to tell, of every step that was answered, which rows it was about."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.batches import batches, shuffled
from tacit.errors import UsageError
from tacit.ledger.log import ANSWERS

__all__ = ["Declared", "Run"]

_BLOCK = 1 << 22  # rows that are counted at a time


@dataclass(frozen=True)
class Run:
    """One training of this party: of one contract over one alignment.

    The plan is that of `tacit.cut.plan.Plan`: what is trained on and tested in which turn follows from it, so a step
    needs no list of its rows.

    Attributes:
        name: the contract's run.
        contract: digest of the contract.
        alignment: name of the alignment.
        role: "label" or "features": of this party.
        count: aligned rows.
        batch_size: rows in a batch.
        epochs: planned visits of each training row.
        seed: draws the batches.
        test_share: of the rows.
        test_rows: how many of these are looked at in an evaluation, at most.
    """

    name: str
    contract: str
    alignment: str
    role: str
    count: int
    batch_size: int
    epochs: int
    seed: int
    test_share: float = 0.0
    test_rows: int = 51_200

    def __post_init__(self) -> None:
        if self.role not in ("label", "features"):
            raise UsageError(f"a run of role {self.role!r}: the roles are 'label' and 'features'")
        if not 1 <= self.batch_size <= self.train_count or self.epochs < 1:
            raise UsageError(
                f"a run with {self.train_count} training rows, batch_size = {self.batch_size} and epochs = "
                f"{self.epochs}: there must be at least one batch and one epoch"
            )

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes it this run and no other."""
        return self.name, self.contract, self.alignment, self.role

    def facts(self) -> dict[str, Any]:
        """Everything about it, as plain values."""
        return asdict(self)

    # --- the plan ---

    @property
    def train_count(self) -> int:
        """Rows that are trained on: the first ones."""
        return self.count - int(self.count * self.test_share)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return self.train_count // self.batch_size

    @property
    def tested(self) -> int:
        """Rows that an evaluation looks at."""
        return min(self.count - self.train_count, self.test_rows)

    @property
    def tests(self) -> int:
        """Batches in an evaluation."""
        return -(-self.tested // self.batch_size)

    def planned(self, kind: str) -> int:
        """How many steps of this kind the whole run has."""
        return self.epochs * (self.steps if kind == "train" else self.tests)

    def due(self, kind: str, turn: int) -> int:
        """How many steps of this kind lie before a turn."""
        epoch, place = divmod(turn, self.steps + self.tests)
        if epoch >= self.epochs:
            return self.planned(kind)
        if kind == "train":
            return epoch * self.steps + min(place, self.steps)
        return epoch * self.tests + max(0, place - self.steps)

    def turn(self, kind: str, step: int) -> int:
        """The turn of a step."""
        epoch, place = divmod(step, self.steps if kind == "train" else self.tests)
        return epoch * (self.steps + self.tests) + place + (0 if kind == "train" else self.steps)

    def rows(self, kind: str, step: int) -> Tensor:
        """The rows of a step, in the order of the batch."""
        epoch, place = divmod(step, self.steps if kind == "train" else self.tests)
        if kind == "train":
            return next(batches(self.train_count, self.batch_size, epoch=epoch, seed=self.seed, first=place))
        start = self.train_count + place * self.batch_size
        return torch.arange(start, min(start + self.batch_size, self.train_count + self.tested))

    # --- counting ---

    def visits(self, trained: int, evaluated: int) -> NDArray[np.uint32]:
        """How often each row was sent something about, or was in something sent, after so many steps of each kind.

        An evaluation counts for a feature party alone: it sends embeddings of the rows. Where a label party answers it
        with figures over all of them, that is written down apart.
        """
        found = np.zeros(self.count, np.uint32)
        whole, rest = divmod(trained, self.steps)
        found[: self.train_count] += np.uint32(whole)
        for epoch in range(whole):
            for rows in self._places(epoch, self.steps * self.batch_size, self.train_count):
                found[rows] -= np.uint32(1)  # what is left over sits this epoch out
        for rows in self._places(whole, 0, rest * self.batch_size):
            found[rows] += np.uint32(1)
        if self.role == "features" and self.tests:
            whole, rest = divmod(evaluated, self.tests)
            found[self.train_count : self.train_count + self.tested] += np.uint32(whole)
            found[self.train_count : self.train_count + min(rest * self.batch_size, self.tested)] += np.uint32(1)
        return found

    def _places(self, epoch: int, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
        """The rows at some places of an epoch's order, which is that of `tacit.align.batches.batches`."""
        for first in range(start, stop, _BLOCK):
            yield shuffled(self.train_count, first, min(first + _BLOCK, stop), key=f"{self.seed}:{epoch}").numpy()


@dataclass
class Declared:
    """A run, and what was answered in it.

    Attributes:
        run: as it was declared.
        keys: digest of its keys; empty where it has none.
        places: where the record of each step lies, by kind.
        events: numbers of the mechanisms that acted on rows.
        untouched: rows that were sent as they were.
        row_kl: for each epoch the largest sumKL that a step of it left of a row; infinite where one did not say.
        budget: that was set for all runs when this one was last started.
        told: over how many labels figures were told, by epoch.
    """

    run: Run
    keys: str
    places: dict[str, array[int]] = field(default_factory=lambda: {kind: array("Q") for kind in ANSWERS})
    events: set[int] = field(default_factory=set)
    untouched: float = 0.0
    row_kl: dict[int, float] = field(default_factory=dict)
    budget: float | None = None
    told: dict[int, int] = field(default_factory=dict)

    def visits(self) -> NDArray[np.uint32]:
        """How often each row was visited."""
        return self.run.visits(*(len(self.places[kind]) for kind in ANSWERS))

    @property
    def most(self) -> int:
        """How often the most visited row was visited, whatever sat an epoch out."""
        trained = -(-len(self.places["train"]) // self.run.steps)
        tests = self.run.tests if self.run.role == "features" else 0
        return max(trained, -(-len(self.places["evaluate"]) // tests) if tests else 0)
