"""A training as the ledger knows it: enough to tell, of every step that was answered, which rows it was about."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.align.batches import Plan, shuffled

ANSWERS = ("train", "evaluate")
"""The kinds of steps that are answered, and of records about them."""

_BLOCK = 1 << 22  # rows that are counted at a time


@dataclass(frozen=True, kw_only=True)
class Run(Plan):
    """One training of this party, of one contract over one alignment: its plan tells the rows of every step."""

    name: str  # the contract's run
    contract: str  # digest of the contract
    alignment: str  # name of the alignment
    role: str  # "label" or "features": of this party

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes it this run and no other."""
        return self.name, self.contract, self.alignment, self.role

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
            found[self.train_count : self.train_count + self.test_count] += np.uint32(whole)
            found[self.train_count : self.train_count + min(rest * self.batch_size, self.test_count)] += np.uint32(1)
        return found

    def _places(self, epoch: int, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
        """The rows at some places of an epoch's order, which is that of `tacit.align.batches.batches`."""
        for first in range(start, stop, _BLOCK):
            yield shuffled(self.train_count, first, min(first + _BLOCK, stop), key=f"{self.seed}:{epoch}").numpy()


@dataclass
class Declared:
    """A run, and what was answered in it."""

    run: Run  # as it was declared
    keys: str  # digest of its keys; empty where it has none
    # where the record of each step lies, by kind
    places: dict[str, array[int]] = field(default_factory=lambda: {kind: array("Q") for kind in ANSWERS})
    events: set[int] = field(default_factory=set)  # numbers of the mechanisms that acted on rows
    untouched: float = 0.0  # rows that were sent as they were
    # for each epoch the largest sumKL that a step of it left of a row; infinite where one did not say
    row_kl: dict[int, float] = field(default_factory=dict)
    budget: float | None = None  # that was set for all runs when this one was last started
    told: dict[int, int] = field(default_factory=dict)  # over how many labels figures were told, by epoch

    def visits(self) -> NDArray[np.uint32]:
        """How often each row was visited."""
        return self.run.visits(*(len(self.places[kind]) for kind in ANSWERS))

    @property
    def most(self) -> int:
        """How often the most visited row was visited, whatever sat an epoch out."""
        trained = -(-len(self.places["train"]) // self.run.steps)
        tests = self.run.tests if self.run.role == "features" else 0
        return max(trained, -(-len(self.places["evaluate"]) // tests) if tests else 0)
