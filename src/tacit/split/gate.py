"""The gate of a run: every so many steps its owner's limit is held against what attacks say, or nothing more is sent.

What was decided is on the disk before anything is sent under it: a run that is killed takes the same decisions from
there. Until a batch was kept whole, the one that is due is tried out at home.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.align.batches import APART, Plan, Task
from tacit.audit.gate import Figure, OnLimit, Verdict, decide
from tacit.company.verdict import now
from tacit.errors import LimitError, StorageError
from tacit.report import seals
from tacit.report.run_files import GATE
from tacit.split.record import RecordedRun

_FIELDS = {
    "time", "epoch", "turn", "decision", "strength", "limit", "reason", "broken", "measured", "worst", "foreseen",
}  # fmt: skip


def decisions(folder: Path) -> list[dict[str, Any]]:
    """What the gate of a run has decided, in the order of time."""
    decided = seals.read(folder / GATE)
    if any(not past.keys() <= _FIELDS for past in decided):  # another version may have sent under another protection
        raise StorageError(f"{folder / GATE}: its decisions are of another version: agree on a new run")
    return decided


@dataclass
class Gate(ABC):
    """What both sides share: the record, and what follows from a decision."""

    folder: Path  # of the run
    limit: float | None  # that the owner set; None where a run that went on under one goes on without
    on_limit: OnLimit  # what to do where it would be passed
    plan: Plan  # of the training
    recorder: RecordedRun | None  # of what was sent; None where nothing is kept, and there is no limit
    _decided: int = -1  # the turn of the last decision, or of the point at which none was due
    _seen: tuple[int, list[Figure]] = (-1, [])  # the turn and what was seen before it

    @property
    def kept(self) -> RecordedRun:
        """What was sent, as far as it was recorded; there is no limit without."""
        assert self.recorder is not None
        return self.recorder

    @property
    def decision(self) -> str:
        """The last one: keep, pause, resume, or stop, which ends the run for good; "" before the first."""
        return "".join(past["decision"] for past in decisions(self.folder)[-1:])

    def check(self) -> None:
        """A `LimitError` where the run has ended for good."""
        if self.decision == "stop":
            reason = decisions(self.folder)[-1]["reason"]
            raise LimitError(f"this run was stopped by its limit: {reason}. A new run needs another name")

    def enter(self, task: Task, *batch: Tensor, sent: bool = False) -> None:
        """Before anything is sent in a training step: at certain ones decide whether it may be.

        A step that was sent before a kill is sent again as it was, whatever limit was set since then: one that is set
        or changed in the middle of a run is held from the next of these steps on.

        Raises:
            LimitError: nothing more is to be sent.
        """
        point = self.point(task)
        if self._decided >= point:
            return
        before = [past for past in decisions(self.folder) if past["turn"] <= task.turn]
        if point == task.turn and not sent and (not before or self._due(task, before[-1])):
            self._decide(task, batch, before)
        self._decided = point

    def point(self, task: Task) -> int:
        """The last turn up to a task's at which something may be decided."""
        return self.plan.looked_back(task)

    def _begins(self, task: Task) -> bool:
        return task.turn % self.plan.epoch_turns == 0

    def _taken(self, task: Task, *, first: bool) -> Callable[[list[Figure]], list[Figure]]:
        """With which end figures count: where an epoch begins the upper one, which all followed examples are behind.

        At the very first batch there are too few rows for intervals, and the value itself counts. In the middle of an
        epoch, where few examples were visited again, the lower end does: decisions there are for what breaks the limit
        beyond doubt. So it is everywhere if the protection has a bound of its own, which needs no rows to be shown.
        """
        if self.bounded() or not self._begins(task):
            return lambda figures: [replace(each, upper=max(each.low, each.bound)) for each in figures]
        return (lambda figures: [replace(each, upper=each.value) for each in figures]) if first else list

    def _due(self, task: Task, last: dict[str, Any]) -> bool:
        """Whether the owner wants something else, or so much was sent that it is time to look again; at first it is."""
        if last["decision"] == "pause" or last["limit"] != self.limit:
            return True
        return (
            self.limit is not None
            and task.turn > last["turn"]
            and (task.epoch < 3 or task.turn - last["turn"] >= APART)
        )

    def _decide(self, task: Task, batch: Sequence[Tensor], before: Sequence[dict[str, Any]]) -> None:
        paused = bool(before) and before[-1]["decision"] == "pause"
        limit = self.limit
        verdict = Verdict("keep", "there is no limit") if limit is None else self._verdict(task, batch, limit)
        self._write(task, replace(verdict, action="resume") if paused and verdict.action == "keep" else verdict)
        if verdict.action in ("pause", "stop"):
            place = task.turn % self.plan.epoch_turns
            when = f"at step {place + 1} of epoch {task.epoch + 1}" if place else f"before epoch {task.epoch + 1}"
            raise LimitError(
                f"training {'pauses' if verdict.action == 'pause' else 'is stopped'} {when}: "
                f"{verdict.reason}. {_NEXT[verdict.action]}"
            )

    def _verdict(self, task: Task, batch: Sequence[Tensor], limit: float) -> Verdict:
        kept = self.kept.recorded
        first = not kept and not self.kept.visited
        taken = self._taken(task, first=first)
        return decide(
            [] if first else taken(self.seen(task.turn)),
            taken(([] if kept else self.tried_out(*batch)) + ([] if first else self.foreseen(task))),
            limit=limit,
            on_limit=self.on_limit,
        )

    def _write(self, task: Task, verdict: Verdict) -> None:
        judged = self.limit is not None and self._seen[0] == task.turn  # what else was seen is not there after a kill
        measured = self._seen[1] if judged else []
        said = {
            "time": now(), "epoch": task.epoch + 1, "turn": task.turn, "decision": verdict.action,
            "strength": self.strength(), "limit": self.limit, "reason": verdict.reason, "broken": verdict.broken,
            "measured": [asdict(figure) for figure in measured],
            "worst": verdict.worst and asdict(verdict.worst), "foreseen": verdict.foreseen and asdict(verdict.foreseen),
        }  # fmt: skip
        seals.append(self.folder / GATE, said)

    def bounded(self) -> bool:
        """Whether the protection has a bound that no attack on a message can pass."""
        return False

    @abstractmethod
    def strength(self) -> str:
        """What is done to messages, in one line."""

    def seen(self, turn: int) -> list[Figure]:
        """What attacks reach on what was sent before a turn; they run once."""
        if self._seen[0] != turn:
            self._seen = turn, self.look(turn)
        return self._seen[1]

    def looked(self, turn: int) -> list[Figure]:
        """What was seen before a turn, for a look at an epoch's end."""
        return self.seen(turn)

    @abstractmethod
    def look(self, seed: int) -> list[Figure]:
        """Attack what was sent so far."""

    @abstractmethod
    def foreseen(self, task: Task) -> list[Figure]:
        """What they would reach on messages like the last ones and over all visits that are planned."""

    @abstractmethod
    def tried_out(self, *batch: Tensor) -> list[Figure]:
        """The same from one batch alone, as long as none was kept whole."""


_NEXT = {
    "pause": "The peers only see that they wait. Raise in party.toml what can't be held and give the same command "
    "again, or agree on a new run with a stronger protection",
    "stop": "The peers are told that the run has ended, not why",
}
