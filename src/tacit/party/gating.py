"""The gate of a run: before an epoch begins, its owner's limit is held against what attacks say, and a strength is set.

Strengths change in public steps (`tacit.protect.ladder`) and at the beginning of epochs alone, because a peer can see
them change. What was decided is written down and on the disk (`gate.jsonl`) before anything is sent under it: a run
that is killed takes the same decisions from there, and its owner finds the reasons.

Before the first message leaves there is nothing to look back on; there the first batch is tried out at home.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.audit import foresight
from tacit.audit.foresight import Sent
from tacit.audit.gate import Figure, OnLimit, Verdict, decide, grown
from tacit.audit.inputs import attack_inputs, mean_visits
from tacit.contracts import EmbeddingProtection, View, noise_source
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan, Task
from tacit.errors import LimitError, UsageError
from tacit.party import chained
from tacit.party._files import GATE
from tacit.party.bookkeeping import Bookkeeping
from tacit.party.reporting import now
from tacit.protect import ladder
from tacit.wire.recorded import RecordedRun

__all__ = ["GATE", "EmbeddingGate", "Gate", "GradientGate", "decisions"]

_BATCHES = 12  # recorded batches that are tried at another strength
_APART = 64  # steps that lie at least between two decisions, where epochs are short
_QUIET = 2  # epochs after a raise before less is tried


def decisions(folder: Path) -> list[dict[str, Any]]:
    """What the gate of a run has decided, in the order of time."""
    return chained.read(folder / GATE)


@dataclass
class Gate(ABC):
    """What both sides share: the record, and what follows from a decision.

    Attributes:
        folder: of the run.
        limit: that the owner set; None where there is only a budget.
        on_limit: what to do where it would be passed.
        held: whether there is a limit or a budget; where it was taken away, the strength stays as it was decided.
        plan: of the training.
        recorder: of what was sent.
        level: of the strength now.
    """

    folder: Path
    limit: float | None
    on_limit: OnLimit
    held: bool
    plan: Plan
    recorder: RecordedRun
    level: int = 0
    _epoch: int = -1
    _seen: tuple[int, list[Figure]] = (-1, [])  # the epoch and what was seen before it

    @property
    def stopped(self) -> bool:
        """Whether the run has ended for good."""
        told = decisions(self.folder)
        return bool(told) and told[-1]["decision"] == "stop"

    def check(self) -> None:
        """A `LimitError` where the run has ended for good."""
        if self.stopped:
            reason = decisions(self.folder)[-1]["reason"]
            raise LimitError(f"this run was stopped by its limit: {reason}. A new run needs another name")

    def resume(self, turn: int) -> None:
        """Go on from the checkpoint of a turn, as the one before it was done."""
        before = [one for one in decisions(self.folder) if one["turn"] < turn]
        self.level = int(before[-1]["level"]) if before else 0
        self.restore(self.level)

    def enter(self, task: Task, *batch: Tensor, sent: bool = False) -> None:
        """Before anything is sent in a training step: at the first one of an epoch, decide, or do as was decided.

        A step that was sent before a kill is sent again as it was, whatever limit was set since then: one that is set
        or changed in the middle of a run is held from the next epoch on.

        Args:
            task: the step.
            batch: what this side needs of it to try the first one out.
            sent: whether it is on record that this step was sent already.

        Raises:
            LimitError: nothing more is to be sent.
        """
        if task.epoch == self._epoch:
            return
        before = [one for one in decisions(self.folder) if one["turn"] <= task.turn]
        self.level = int(before[-1]["level"]) if before else 0
        begins = task.turn % self.plan.epoch_turns == 0
        if begins and not sent and (not before or self._due(task, before[-1])):
            self._decide(task, batch, before)
        self._epoch = task.epoch
        self.apply(self.level)

    def _due(self, task: Task, last: dict[str, Any]) -> bool:
        """Whether the owner wants something else, or so much was sent that it is time to look again; early on, always.

        Args:
            task: the step that is about to be sent.
            last: what was decided last.
        """
        if last["decision"] == "pause" or last["limit"] != self.limit:
            return True
        since = last["epoch"] - 1
        return self.held and task.epoch > since and (since < 2 or (task.epoch - since) * self.plan.steps >= _APART)

    def _decide(self, task: Task, batch: Sequence[Tensor], before: Sequence[dict[str, Any]]) -> None:
        paused = bool(before) and before[-1]["decision"] == "pause"
        verdict = self._verdict(task, batch, before) if self.held else Verdict("keep", self.level, "there is no limit")
        action = "resume" if paused and verdict.action in ("keep", "raise", "lower") else verdict.action
        self._write(task, replace(verdict, action=action))
        if verdict.action in ("pause", "stop"):
            raise LimitError(
                f"training {'pauses' if verdict.action == 'pause' else 'is stopped'} before epoch {task.epoch + 1}: "
                f"{verdict.reason}. {_NEXT[verdict.action]}"
            )
        self.level = verdict.level

    def _verdict(self, task: Task, batch: Sequence[Tensor], before: Sequence[dict[str, Any]]) -> Verdict:
        first = not self.recorder.recorded
        raised = [one["epoch"] for one in before if one["decision"] == "raise"]
        return decide(
            [] if first else self.measured(task.epoch),
            lambda level: self.tried_out(level, *batch) if first else self.foreseen(level, task.epoch),
            limit=1.0 if self.limit is None else self.limit,
            on_limit=self.on_limit,
            level=self.level,
            highest=ladder.HIGHEST if self.can_raise() else 0,
            may_lower=not first and all(task.epoch + 1 - epoch > _QUIET for epoch in raised),
        )

    def _write(self, task: Task, verdict: Verdict) -> None:
        judged = self.limit is not None and self._seen[0] == task.epoch  # what else was seen is not there after a kill
        measured = self._seen[1] if judged else []
        said = {
            "time": now(), "epoch": task.epoch + 1, "turn": task.turn, "decision": verdict.action,
            "level": verdict.level, "strength": self.spelled(verdict.level), "limit": self.limit,
            "reason": verdict.reason, "broken": verdict.broken,
            "measured": [asdict(one) for one in measured],
            "worst": verdict.worst and asdict(verdict.worst), "foreseen": verdict.foreseen and asdict(verdict.foreseen),
        }  # fmt: skip
        chained.append(self.folder / GATE, said)

    @abstractmethod
    def can_raise(self) -> bool:
        """Whether the protection has a strength that can be raised."""

    @abstractmethod
    def apply(self, level: int) -> None:
        """Let the party send under this level from now on."""

    @abstractmethod
    def restore(self, level: int) -> None:
        """The party has sent under this level already, and its state is of it."""

    @abstractmethod
    def spelled(self, level: int) -> str:
        """The protection at a level, in one line."""

    def measured(self, epoch: int) -> list[Figure]:
        """What attacks reach on what was sent; nothing where no limit is to be held."""
        return [] if self.limit is None else self.seen(epoch)

    def seen(self, epoch: int) -> list[Figure]:
        """What attacks reach on what was sent before an epoch; they run once."""
        if self._seen[0] != epoch:
            self._seen = epoch, self.look(epoch)
        return self._seen[1]

    @abstractmethod
    def look(self, epoch: int) -> list[Figure]:
        """Attack what was sent before an epoch."""

    @abstractmethod
    def foreseen(self, level: int, epoch: int) -> list[Figure]:
        """What they would reach at a level, on messages like the last ones and over all visits that are planned."""

    @abstractmethod
    def tried_out(self, level: int, *batch: Tensor) -> list[Figure]:
        """The same from the very first batch alone: single values, too few rows for intervals."""


_NEXT = {
    "pause": "The peers only see that they wait. Raise in party.toml what can't be held (or set on_limit to raise "
    "noise, if the protection has a strength) and give the same command again, or agree on a new run with a stronger "
    "protection",
    "stop": "The peers are told that the run has ended, not why",
}


class GradientGate(Gate):
    """The label party's: leak AUC of its labels, in the gradients that it sends, and the budget of its ledger."""

    def __init__(self, party: LabelParty, books: Bookkeeping, **common: Any) -> None:
        super().__init__(**common)
        self.books = books
        if party.classes > 2:
            raise UsageError("a limit on leak AUC needs labels of two classes: remove limit from party.toml")
        self.party = party
        self.base = party.protect
        self.labels = party.labels[: self.plan.train_count]
        followed = self.labels[: self.recorder.follow]
        if self.limit is not None and len(followed.unique()) < 2:
            raise UsageError(
                f"limit is set, but the {len(followed)} examples that are followed are all of one class, and nobody "
                "could see what all visits tell: set a larger follow in [record]"
            )

    def can_raise(self) -> bool:
        """Whether the protection has a strength."""
        return ladder.stronger(self.base, 1) is not None

    def apply(self, level: int) -> None:
        """Protect at this level, with plans made for it."""
        protect = self._at(level)
        if repr(protect) != repr(self.party.protect):
            self.party.protect = protect
            self.party.state = ladder.replanned(self.party.state)

    def restore(self, level: int) -> None:
        """Protect at this level, with the plans that there are."""
        self.party.protect = self._at(level)

    def spelled(self, level: int) -> str:
        """The protection as it is at a level."""
        protect = self._at(level)
        event = getattr(protect, "event", None)  # somebody's own protection may not say
        return repr(protect) if event is None else ladder.spelled(event)

    def look(self, epoch: int) -> list[Figure]:
        """The quick attacks on the last batches, and on all visits so far."""
        found = foresight.on_batches(self._last(None), self.labels, seed=epoch)
        return found + foresight.on_visits(self._visits(), self.labels, seed=epoch)

    def foreseen(self, level: int, epoch: int) -> list[Figure]:
        """The same under another strength, with the visits to come; and the ledger's worst case at the end.

        Visits to come are foreseen in two ways, and the higher figure counts: tried out on the last clean gradients, as
        if these did not change any more; and by what the visits so far have told, as if each one to come told as much.
        """
        spent = self._budgeted(self.books.foreseen(epoch, 2.0 ** (level - self.level)), level)
        if self.limit is None:
            return spent
        protect, state = self._at(level), ladder.replanned(self.party.state)
        noise = torch.Generator().manual_seed(1000 * epoch + level)
        some = self._last(_BATCHES).under(protect, state, self.labels, noise)
        found = foresight.on_batches(some, self.labels, seed=epoch)
        visits = self._visits()
        so_far, planned = len(visits.view.rows), self.plan.epochs
        more = visits.again(protect, state, self.labels, noise, times=planned - so_far, batch=self.plan.batch_size)
        found += foresight.on_visits(more, self.labels, seed=epoch)
        if not found:  # a budget that holds says nothing about attacks that could not be tried
            return []
        louder = 2.0 ** (level - self.level)
        return found + grown(self.seen(epoch), so_far, planned, louder) + spent

    def _budgeted(self, measured: float | None, level: int) -> list[Figure]:
        """The ledger's worst case against the budget: as measured, else as the protection plans it, else everything."""
        if self.books.budget is None:
            return []
        value = self.books.planned(self._at(level), self.books.former) if measured is None else measured
        value = 1.0 if value is None else value
        return [Figure("the ledger's worst case", "visits", value, value, value, self.books.budget)]

    def tried_out(self, level: int, *batch: Tensor) -> list[Figure]:
        """As many visits of the first batch as are planned, from a fresh state."""
        spent = self._budgeted(None, level)
        if self.limit is None:
            return spent
        clean, z, labels = batch[0].flatten(1), batch[1].flatten(1), batch[2]
        protect = self._at(level)
        state = getattr(protect, "fresh", protect.init)()
        noise = torch.Generator().manual_seed(level)
        rows = torch.arange(len(labels))[None]
        first = protect.update(clean, labels, state, noise, z).value
        once = Sent(View.of(first[None], rows=rows), clean[None], z[None])
        visits = once.again(protect, state, labels, noise, times=self.plan.epochs - 1, batch=len(labels))
        found = foresight.on_batches(visits, labels, seed=0) + foresight.on_visits(visits, labels, seed=0)
        return [replace(one, low=one.value, upper=one.value) for one in found] + self._promised(level) + spent

    def _promised(self, level: int) -> list[Figure]:
        """What the protection itself lets through over all visits, and how far a measurement of it may lie above."""
        value = self.books.planned(self._at(level), former=0.0)
        if value is None:
            return []
        followed = self.labels[: self.recorder.follow]
        half = 1.96 * (sum(1 / (12 * max(1, int((followed == kind).sum()))) for kind in (0, 1))) ** 0.5
        return [Figure("the protection's own plan", "visits", value, 0.5, min(1.0, value + half))]

    def _at(self, level: int) -> Any:
        protect = ladder.stronger(self.base, level)
        assert protect is not None  # `can_raise` was asked
        return protect

    def _last(self, count: int | None) -> Sent:
        transcript = self.recorder.batches()
        first = 0 if count is None else max(0, len(transcript.view.rows) - count)
        view = View.of(transcript.view.gradient[first:], rows=transcript.view.rows[first:])
        return Sent(view, transcript.clean[first:], transcript.view.embedding[first:])

    def _visits(self) -> Sent:
        transcript = self.recorder.visits()
        return Sent(transcript.view, transcript.clean, transcript.view.embedding)


class EmbeddingGate(Gate):
    """A feature party's: the share of its columns' variance that can be read in the embeddings that it sends."""

    def __init__(self, party: FeatureParty, **common: Any) -> None:
        super().__init__(**common)
        self.party = party
        self.base = party.shield.protect

    def can_raise(self) -> bool:
        """Whether one of the protections adds noise."""
        return ladder.stronger_embedding(self.base, 1) is not None

    def apply(self, level: int) -> None:
        """Protect at this level."""
        self.party.shield.steer(self._at(level))

    restore = apply

    def spelled(self, level: int) -> str:
        """The protections as they are at a level."""
        return " + ".join(ladder.spelled(one.event) for one in self._at(level)) or "none"

    def look(self, epoch: int) -> list[Figure]:
        """A decoder that knows half of the rows, on the last batches and on the mean of all visits."""
        batches = self.recorder.batches().view
        found = self._read(batches, "batches", epoch)
        return found + self._read(mean_visits(self.recorder.visits().view), "visits", epoch)

    def foreseen(self, level: int, epoch: int) -> list[Figure]:
        """The same under another strength, with the visits to come."""
        noise = torch.Generator().manual_seed(1000 * epoch + level)
        batches, visits = self.recorder.batches().view, self.recorder.visits().view
        sent = torch.stack([self._passed(z, level, noise) for z in batches.own_embedding[-_BATCHES:]])
        found = self._read(View.of_embeddings(sent, rows=batches.rows[-_BATCHES:]), "batches", epoch)
        last = visits.own_embedding[-1]
        more = [self._passed(last, level, noise) for _ in range(self.plan.epochs - len(visits.rows))]
        every = torch.cat([visits.embedding, torch.stack(more)]) if more else visits.embedding
        together = View.of_embeddings(every, rows=visits.rows[-1].expand(len(every), -1))
        return found + self._read(mean_visits(together), "visits", epoch)

    def tried_out(self, level: int, *batch: Tensor) -> list[Figure]:
        """The mean of as many visits of the first batch as are planned."""
        rows, z = batch
        noise = torch.Generator().manual_seed(level)
        visits = torch.stack([self._passed(z.flatten(1), level, noise) for _ in range(self.plan.epochs)])
        together = View.of_embeddings(visits, rows=rows.expand(len(visits), -1))
        found = self._read(mean_visits(together), "visits", 0)
        return [replace(one, low=one.value, upper=one.value) for one in found]

    def _at(self, level: int) -> Sequence[EmbeddingProtection]:
        if level == 0:
            return self.base
        raised = ladder.stronger_embedding(self.base, level)
        assert raised is not None  # `can_raise` was asked
        return raised

    def _passed(self, z: Tensor, level: int, noise: torch.Generator) -> Tensor:
        source = noise_source(noise)
        for one in self._at(level):
            z = one.transform(z, source)
        return z

    def _read(self, view: View, on: Any, seed: int) -> list[Figure]:
        rows, places = view.rows.unique(return_inverse=True)
        hidden = torch.cat([self.party.hidden(some) for some in rows.split(8192)])
        seen = View.of_embeddings(view.embedding, rows=places)
        found = attack_inputs(seen, hidden, ["linear_decoder"], noise=torch.Generator().manual_seed(seed))
        read = [(one.attack, one.relative) for one in found if one.relative is not None]
        return [Figure(name, on, 1 - error.value, 1 - error.high, 1 - error.low) for name, error in read]
