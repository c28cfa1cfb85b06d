"""Everything that the records of a ledger say, in little memory: eight bytes for each answered step."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.contracts import Event
from tacit.errors import StorageError
from tacit.ledger import _frames as frames
from tacit.ledger._frames import Frame
from tacit.ledger.mechanisms import event_of
from tacit.ledger.run import Run

__all__ = ["Declared", "State"]

UNTOUCHED = "untouched_rows"
"""The figure that counts rows which were sent as they were."""

ROW_KL = "row_kl"
"""The figure that bounds what a step tells about the label of any row in it."""


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
    places: dict[str, array[int]] = field(default_factory=lambda: {kind: array("Q") for kind in frames.ANSWERS})
    events: set[int] = field(default_factory=set)
    untouched: float = 0.0
    row_kl: dict[int, float] = field(default_factory=dict)
    budget: float | None = None
    told: dict[int, int] = field(default_factory=dict)

    def visits(self) -> NDArray[np.uint32]:
        """How often each row was visited."""
        return self.run.visits(*(len(self.places[kind]) for kind in frames.ANSWERS))

    @property
    def most(self) -> int:
        """How often the most visited row was visited, whatever sat an epoch out."""
        trained = -(-len(self.places["train"]) // self.run.steps)
        tests = self.run.tests if self.run.role == "features" else 0
        return max(trained, -(-len(self.places["evaluate"]) // tests) if tests else 0)


@dataclass
class State:
    """What was read so far. `take` gives it the next record."""

    path: Path
    runs: list[Declared] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    forms: list[tuple[str, ...]] = field(default_factory=list)
    count: int = 0

    def take(self, frame: Frame) -> None:
        """Add what a record says; one that can't follow those before it is a `StorageError`."""
        self.count += 1
        if frame.kind in frames.ANSWERS:
            self._answer(frame)
            return
        fact = frames.read_fact(frame.body)
        if frame.kind == "run":
            keys = fact.pop("keys")
            self.runs.append(Declared(Run(**fact), keys))
        elif frame.kind == "event":
            self.events.append(event_of(fact))
        elif frame.kind == "figures":
            self.forms.append(tuple(fact))
        elif frame.kind == "told":
            self._of(frame, fact["run"]).told[fact["epoch"]] = fact["labels"]
        elif frame.kind == "budget":
            self._of(frame, fact["run"]).budget = fact["budget"]

    def _answer(self, frame: Frame) -> None:
        answer = frames.read_answer(frame.body)
        declared = self._of(frame, answer.run)
        places = declared.places[answer.kind]
        if answer.step != len(places) or answer.event >= len(self.events) or answer.form >= len(self.forms):
            raise self._strange(frame, f"step {answer.step} follows {len(places)} answered {answer.kind} steps")
        places.append(frame.start)
        if answer.kind == "train" or declared.run.role == "features":
            declared.events.add(answer.event)
            figures = dict(zip(self.forms[answer.form], answer.figures, strict=True))
            declared.untouched += figures.get(UNTOUCHED, 0.0)
            epoch = answer.step // declared.run.steps
            declared.row_kl[epoch] = max(declared.row_kl.get(epoch, 0.0), figures.get(ROW_KL, math.inf))

    def _of(self, frame: Frame, number: int) -> Declared:
        if number >= len(self.runs):
            raise self._strange(frame, f"it belongs to run {number} of {len(self.runs)}")
        return self.runs[number]

    def _strange(self, frame: Frame, why: str) -> StorageError:
        return frames.damaged(self.path, frame.start, f"the {frame.kind} record can't stand there: {why}")
