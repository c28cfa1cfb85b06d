"""What a run writes down of what it answers, in the ledger's one file; and all that the file says, in little memory.

The file is only added to, by one process at a time; `tacit.ledger.log` reads and checks it when one starts, and when
somebody looks. Its records are small, and each is bound by a digest to all that stand before it:

::

    file      magic 8 | version 4 | 0 4 | check of the secret 16 | digest of all this 16
    answer    length 4 | kind 1 | form 1 | event 2 | run 4 | step 4 | turn 4 | rows 16 | figures 8 each | chain 16
    fact      length 4 | kind 1 | 0 3 | JSON | chain 16

`length` is that of the whole record. `chain` is BLAKE2b of the chain before and of all of the record before it, so a
record that was changed, left out, added or moved breaks the chain at its place. The mechanism behind an answer and the
names of its figures are long and few: each is a record of its own when it first occurs, and answers give its number.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.align.batches import digest
from tacit.contracts import Event
from tacit.disk import storing, sync_file, write, write_at
from tacit.errors import StorageError
from tacit.ledger.run import ANSWERS, Declared, Run

KINDS = (*ANSWERS, "run", "event", "figures", "epoch", "budget", "told")  # "epoch": of older ledgers
LOG, SYNCED, LOCK = "log", "synced", "lock"
CHAIN = 16  # bytes
FACT = struct.Struct("<IB3x")
MARK = struct.Struct("<Q16s")
_ANSWER = struct.Struct("<IBBHIII16s")

UNTOUCHED = "untouched_rows"  # the figure that counts rows which were sent as they were
ROW_KL = "row_kl"  # the figure that bounds what a step tells about the label of any row in it


@dataclass(frozen=True)
class Answer:
    """One answered step, as it lies in the file."""

    kind: str  # "train" or "evaluate"
    run: int  # number of the run, in the order in which runs were declared
    step: int  # of this kind in this run
    turn: int  # in which it was answered
    rows: bytes  # digest of the batch
    event: int  # number of what was done to the rows
    form: int  # number of the names of the figures
    figures: tuple[float, ...]  # their values

    def encoded(self) -> bytes:
        """Its bytes, but for the chain."""
        length, kind = _ANSWER.size + 8 * len(self.figures) + CHAIN, KINDS.index(self.kind)
        fixed = _ANSWER.pack(length, kind, self.form, self.event, self.run, self.step, self.turn, self.rows)
        return fixed + struct.pack(f"<{len(self.figures)}d", *self.figures)

    @classmethod
    def decoded(cls, body: bytes) -> Answer:
        """What `encoded` gave, an answer again."""
        _, kind, form, event, run, step, turn, rows = _ANSWER.unpack_from(body)
        figures = struct.unpack_from(f"<{(len(body) - _ANSWER.size) // 8}d", body, _ANSWER.size)
        return cls(KINDS[kind], run, step, turn, rows, event, form, figures)


def encode_fact(kind: str, fact: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """A record of another kind, but for its chain."""
    text = json.dumps(fact, separators=(",", ":"), sort_keys=True).encode()
    return FACT.pack(FACT.size + len(text) + CHAIN, KINDS.index(kind)) + text


def read_fact(body: bytes) -> Any:
    """What `encode_fact` was given."""
    return json.loads(body[FACT.size :])


def chained(chain: bytes, body: bytes) -> bytes:
    """The chain after a record."""
    return hashlib.blake2b(chain + body, digest_size=CHAIN, person=b"tacit ledger").digest()


@dataclass(frozen=True)
class Frame:
    """A record that is what was written: where it begins and ends, its kind, its bytes, and the chain after it."""

    start: int
    end: int
    kind: str
    body: bytes
    chain: bytes


def damaged(path: Path, offset: int, what: str) -> StorageError:
    """The error for bytes that can't be what was written: a count that may be too low is no count."""
    return StorageError(
        f"{path}: damaged at byte {offset}: {what}. What was answered before can't be counted any more: restore the "
        "folder from a copy of the same moment"
    )


class Book:
    """What the records of a ledger say, eight bytes for each answered step; `take` gives it the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path  # of the file, for errors
        self.runs: list[Declared] = []
        self.events: list[Event] = []
        self.forms: list[tuple[str, ...]] = []
        self.count = 0

    def take(self, frame: Frame) -> None:
        """Add what a record says; one that can't follow those before it is a `StorageError`."""
        self.count += 1
        if frame.kind in ANSWERS:
            self._answer(frame)
            return
        fact = read_fact(frame.body)
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
        answer = Answer.decoded(frame.body)
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
        return damaged(self._path, frame.start, f"the {frame.kind} record can't stand there: {why}")


class Writer:
    """Adds to the file, behind the last good record; what a crash cut short behind that is taken off first.

    What is added is with the operating system at once, so it survives the end of the process; after `sync` it also
    survives the end of the machine's power. The lock is one that this process has on the folder.
    """

    def __init__(self, folder: Path, end: int, chain: bytes, lock: int) -> None:
        self.folder, self.end, self.chain, self._lock = folder, end, chain, lock
        self._path, self._synced = folder / LOG, 0
        self._dead: StorageError | None = None
        with storing(self._path, "opened"):
            self._fd = os.open(self._path, os.O_RDWR)
            os.ftruncate(self._fd, end)
        self.sync()

    def add(self, kind: str, body: bytes) -> Frame:
        """Add a record."""
        if self._fd < 0 or self._dead is not None:
            raise StorageError(
                f"{self._path}: nothing can be added after {self._dead or 'it was closed'}: open it anew"
            )
        chain = chained(self.chain, body)
        try:
            written = write_at(self._fd, self._path, [body, chain], self.end)
        except StorageError as error:
            self._dead = error
            raise
        frame = Frame(self.end, self.end + written, kind, body, chain)
        self.end, self.chain = frame.end, chain
        return frame

    def at(self, offset: int) -> bytes:
        """The record that begins at a place where one was found before, but for its chain."""
        length = int.from_bytes(os.pread(self._fd, 4, offset), "little")
        return os.pread(self._fd, length - CHAIN, offset)

    def sync(self) -> None:
        """Return once the disk holds everything, and knows that it does."""
        if self._synced < self.end:
            sync_file(self._fd, self._path)
            write(self.folder / SYNCED, MARK.pack(self.end, self.chain))
            self._synced = self.end

    def close(self) -> None:
        """Sync, and let another process add."""
        try:
            if self._dead is None:
                self.sync()
        finally:
            os.close(self._fd)
            os.close(self._lock)
            self._fd = -1


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
        if not 0 <= step < run.planned(kind) or turn != run.turn(kind, step):
            raise self._wrong(f"{kind} step {step} in turn {turn} is not in the plan of the run {run.name!r}")
        done = declared.places[kind]
        if step > len(done):
            raise self._wrong(
                f"{kind} step {step} is to be answered, but only {len(done)} steps are written down: the ledger is an "
                "older copy, and what was answered meanwhile is not counted"
            )
        if step < len(done):
            self._compare(Answer.decoded(self._writer.at(done[step])), turn, rows, event)
            return
        if step % (run.steps if kind == "train" else run.tests) == 0 and digest(run.rows(kind, step)) != rows:
            raise self._wrong(f"{kind} step {step} is about other rows than the plan of the run {run.name!r} says")
        names = tuple(sorted(figures or {}))
        values = tuple(float((figures or {})[name]) for name in names)
        mechanism = self._numbered(self._events, _name(event), "event", _facts_of(event))
        form = self._numbered(self._forms, names, "figures", names)
        answer = Answer(kind, self._number, step, turn, rows, mechanism, form, values)
        self._book.take(self._writer.add(kind, answer.encoded()))

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
            self._book.take(self._writer.add(kind, encode_fact(kind, fact)))
            known[name] = len(known)
        return known[name]

    def tell(self, epoch: int, labels: int) -> None:
        """Write down that figures of an epoch are told, over so many labels. Before they leave."""
        if epoch not in self._declared.told:
            told = {"run": self._number, "epoch": epoch, "labels": labels}
            self._book.take(self._writer.add("told", encode_fact("told", told)))

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
