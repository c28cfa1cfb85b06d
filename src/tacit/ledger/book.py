"""Everything that the records of a ledger say, in little memory: eight bytes for each answered step."""

from __future__ import annotations

import math

from tacit.contracts import Event
from tacit.errors import StorageError
from tacit.ledger import log
from tacit.ledger.log import Frame, Reader, Writer
from tacit.ledger.mechanisms import event_of
from tacit.ledger.run import Declared, Run
from tacit.ledger.summary import Spent, spent_in

__all__ = ["Book"]

UNTOUCHED = "untouched_rows"
"""The figure that counts rows which were sent as they were."""

ROW_KL = "row_kl"
"""The figure that bounds what a step tells about the label of any row in it."""


class Book:
    """The records of a ledger as they were read; `take` gives it the next one.

    Args:
        file: of the records; what is new in it is read when it is asked for.
    """

    def __init__(self, file: Reader) -> None:
        self.file = file
        self.runs: list[Declared] = []
        self.events: list[Event] = []
        self.forms: list[tuple[str, ...]] = []
        self.count = 0

    def refresh(self) -> None:
        """Read what another process has added meanwhile."""
        if not isinstance(self.file, Writer) and self.file.exists():
            self.read()

    def read(self) -> None:
        """Read what was not read yet."""
        for frame in self.file.new():
            self.take(frame)

    def spent(self, declared: Declared) -> Spent:
        """What one run leaves in the worst case."""
        return spent_in(declared, self.events)

    def take(self, frame: Frame) -> None:
        """Add what a record says; one that can't follow those before it is a `StorageError`."""
        self.count += 1
        if frame.kind in log.ANSWERS:
            self._answer(frame)
            return
        fact = log.read_fact(frame.body)
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
        answer = log.read_answer(frame.body)
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
        return log.damaged(self.file.path, frame.start, f"the {frame.kind} record can't stand there: {why}")
