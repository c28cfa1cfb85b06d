"""Everything that the records of a ledger say, in little memory, and where a run adds what it answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.align.batches import digest
from tacit.contracts import Event
from tacit.errors import StorageError, UsageError
from tacit.ledger import log
from tacit.ledger.log import ANSWERS, Answer, Frame, Reader, Writer, read_answer
from tacit.ledger.run import Declared, Run
from tacit.ledger.summary import Spent, spent_in

UNTOUCHED = "untouched_rows"  # the figure that counts rows which were sent as they were
ROW_KL = "row_kl"  # the figure that bounds what a step tells about the label of any row in it


class Book:
    """The records of a ledger as they were read, eight bytes for each answered step; `take` gives it the next one."""

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

    def take(self, frame: Frame) -> None:
        """Add what a record says; one that can't follow those before it is a `StorageError`."""
        self.count += 1
        if frame.kind in ANSWERS:
            self._answer(frame)
            return
        fact = log.read_fact(frame.body)
        if frame.kind == "run":
            keys = fact.pop("keys")
            self.runs.append(Declared(Run(**fact), keys))
        elif frame.kind == "event":
            self.events.append(_event_of(fact))
        elif frame.kind == "figures":
            self.forms.append(tuple(fact))
        elif frame.kind == "told":
            self._of(frame, fact["run"]).told[fact["epoch"]] = fact["labels"]
        elif frame.kind == "budget":
            self._of(frame, fact["run"]).budget = fact["budget"]

    def _answer(self, frame: Frame) -> None:
        answer = read_answer(frame.body)
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


class RunLedger:
    """Where one run writes down what it answers. Made by `Ledger.begin`; one thread uses it at a time.

    Every answer is written down before it leaves: an answer that was counted and not sent is right, one that was
    sent and not counted is not. What was synced survives everything; what a crash or a power cut takes off the
    end is answered again by the replay of the journal, and so written down again. Sync before a checkpoint is made.
    """

    def __init__(self, book: Book, writer: Writer, number: int) -> None:
        self._book = book
        self._writer = writer
        self._number = number
        self._events = {_name(event): place for place, event in enumerate(book.events)}
        self._forms = {form: place for place, form in enumerate(book.forms)}

    @property
    def _declared(self) -> Declared:
        return self._book.runs[self._number]

    def answered(self, kind: str) -> int:
        """How many steps of this kind are written down: those before it, without a gap."""
        return len(self._declared.places[kind])

    def answer(
        self, kind: str, step: int, turn: int, rows: bytes, event: Event, figures: Mapping[str, float] | None = None
    ) -> None:
        """Write down that a step is answered, with the digest of its rows and what was done to them. Before it leaves.

        The same step again, from a replay, is ignored if turn, rows and mechanism are the same, and a `StorageError` if
        not: it would be a second answer. Figures are not compared: the first ones stay. The plan must agree with turn
        and, at the first step of an epoch, rows; the worst case looks at the figures `untouched_rows` and `row_kl`.
        """
        declared, run = self._declared, self._declared.run
        if kind not in ANSWERS:
            raise UsageError(f"an answer of kind {kind!r}: the kinds are {', '.join(ANSWERS)}")
        if not 0 <= step < run.planned(kind) or turn != run.turn(kind, step):
            raise self._wrong(f"{kind} step {step} in turn {turn} is not in the plan of the run {run.name!r}")
        done = declared.places[kind]
        if step > len(done):
            raise self._wrong(
                f"{kind} step {step} is to be answered, but only {len(done)} steps are written down: the ledger is an "
                "older copy, and what was answered meanwhile is not counted"
            )
        if step < len(done):
            self._compare(read_answer(self._writer.at(done[step]).body), turn, rows, event)
            return
        if step % (run.steps if kind == "train" else run.tests) == 0 and digest(run.rows(kind, step)) != rows:
            raise self._wrong(f"{kind} step {step} is about other rows than the plan of the run {run.name!r} says")
        names = tuple(sorted(figures or {}))
        values = tuple(float((figures or {})[name]) for name in names)
        mechanism = self._numbered(self._events, _name(event), "event", _facts_of(event))
        form = self._numbered(self._forms, names, "figures", names)
        answer = Answer(kind, self._number, step, turn, rows, mechanism, form, values)
        self._book.take(self._writer.answer(answer))

    def _compare(self, then: Answer, turn: int, rows: bytes, event: Event) -> None:
        """Refuse a second answer to a step; what comes from a replay is the same."""
        now = self._events.get(_name(event))
        for field, old, new in (("turn", then.turn, turn), ("rows", then.rows, rows), ("event", then.event, now)):
            if old != new:
                raise self._wrong(
                    f"{then.kind} step {then.step} is answered already, with another {field}: it has one answer alone"
                )

    def _numbered(self, known: dict[Any, int], name: Any, kind: str, fact: Mapping[str, Any] | Sequence[Any]) -> int:
        """The number of a mechanism or of the names of figures, which are written down when they first occur."""
        if name not in known:
            self._book.take(self._writer.fact(kind, fact))
            known[name] = len(known)
        return known[name]

    def tell(self, epoch: int, labels: int) -> None:
        """Write down that figures of an epoch are told, over so many labels. Before they leave."""
        if epoch not in self._declared.told:
            self._book.take(self._writer.fact("told", {"run": self._number, "epoch": epoch, "labels": labels}))

    def resume(self, turn: int) -> None:
        """Before going on from a checkpoint at this turn: every step before it must be written down."""
        for kind in ANSWERS if self._declared.run.role == "features" else ("train",):
            done, due = len(self._declared.places[kind]), self._declared.run.due(kind, turn)
            if done < due:
                raise self._wrong(
                    f"the checkpoint stands at turn {turn}, after {due} answered {kind} steps, and only {done} "
                    "are written down: the ledger is an older copy, or the run began before there was one"
                )

    def sync(self) -> None:
        """Return once the disk holds everything; call it before a checkpoint is written."""
        self._writer.sync()

    def row_kl(self) -> dict[int, float]:
        """For each epoch what a step of it left, at most, of a row."""
        return dict(self._declared.row_kl)

    def worst_case(self) -> Spent:
        """What this run leaves so far."""
        return spent_in(self._declared, self._book.events)

    def _wrong(self, what: str) -> StorageError:
        return StorageError(
            f"{self._writer.folder}: {what}. Bring the ledger and the run's folder back from one moment, or start a "
            "new run under another name"
        )


def _name(event: Event) -> str:
    """What tells one mechanism from another; the order of its options does not."""
    return json.dumps(_facts_of(event), sort_keys=True)


def _facts_of(event: Event) -> dict[str, Any]:
    return {
        "mechanism": event.mechanism,
        "parameters": dict(event.parameters),
        "parts": [_facts_of(part) for part in event.parts],
    }


def _event_of(facts: Mapping[str, Any]) -> Event:
    return Event(facts["mechanism"], facts["parameters"], tuple(_event_of(part) for part in facts["parts"]))
