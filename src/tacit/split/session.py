"""A whole training of one party, turn by turn, that resumes whenever it is started again.

Everything that must survive is in the checkpoint and the journal; `run` is the same code for the first start and for
every later one. See `tacit.split.exactly_once` for why.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tacit.align.batches import Plan, Task
from tacit.contracts import Message, NoiseSource, Protected, StepNoise
from tacit.errors import StorageError
from tacit.split.checkpoint import Checkpoint
from tacit.split.correspondence import Correspondence
from tacit.split.durable import Durable
from tacit.split.exactly_once import AnsweringChannel, AskingChannel
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import ALIKE, LabelParty, alike
from tacit.split.tensors import weights

DIGITS = 2
"""Of shared figures: among 200 rows of a class, one row moves an AUC by half of the last digit at most."""

_UNDEFINED = 0.5  # what is told of a figure that is none

Measure = Callable[[Tensor, Tensor], Mapping[str, float]]
"""Figures of an evaluation, from the logits and the labels of the rows for testing."""


@dataclass(frozen=True)
class Turned:
    """A turn is over."""

    task: Task  # what was done
    replayed: bool  # whether it was done before, and only brought back from the journal
    figures: Mapping[str, Any]  # of this party alone; what a step returns, or what an evaluation found
    # whether a checkpoint follows: what belongs to it must be on the disk before the next turn is asked for
    kept: bool = False


class LabelGuard(Protocol):
    """Stands between a label party and what it sends. Where it raises, nothing leaves and nothing has changed."""

    def before(self, task: Task, clean: Tensor, embedding: Tensor, /, *, sent: bool) -> None:
        """A gradient is about to be protected; `sent` where it was written down before, and so may have left."""

    def leaving(self, task: Task, sent: Protected | None, /) -> None:
        """A protected gradient is about to leave or, where it is None, figures of an epoch."""


class FeatureGuard(Protocol):
    """The same for a feature party."""

    def before(self, task: Task, embedding: Tensor, /, *, sent: bool) -> None:
        """An embedding is about to be protected; `sent` where it was written down before, and so may have left."""

    def leaving(self, task: Task, /) -> None:
        """Embeddings are about to leave."""


class _Unguarded:
    """Nobody looks at what is sent, as in trials."""

    def before(self, *_: object, **__: object) -> None:
        pass

    leaving = before


@dataclass(frozen=True)
class _Bound:
    """A step's noise, bound to what it must never be used twice with."""

    keyed: StepNoise
    context: Callable[[], Sequence[bytes]]

    def at(self, step: int, *context: bytes) -> NoiseSource:
        return self.keyed.at(step, *self.context(), *context)


_P = TypeVar("_P", bound=LabelParty | FeatureParty)
_C = TypeVar("_C", AskingChannel, AnsweringChannel)


class _Session(ABC, Generic[_P, _C]):
    """What both sides share: the state of a party, its turns, its checkpoints."""

    now: Task  # the task whose answer is due, once `run` has begun

    def __init__(self, model: nn.Module, party: _P, plan: Plan, durable: Durable) -> None:
        self.model, self.party, self.plan, self.durable = model, party, plan, durable
        self.channels: Sequence[_C] = ()
        self.history: list[dict[str, float]] = []
        self.turn = self.resumed = 0
        checkpoint = durable.open(self._fresh)
        self._said: Mapping[str, Mapping[int, bytes]] = checkpoint.state["transcripts"]
        self._restore(checkpoint)

    def run(self) -> Iterator[Turned]:
        """Do all turns that are left, one for each `next`."""
        for task, following in pairwise(chain(self.plan.tasks(self.turn), [None])):
            assert task is not None
            self.now = task
            replayed = all(channel.exchange.complete > task.turn for channel in self.channels)
            self._begin(task)
            if following is not None and following.what == "train":
                self._prepare(following)
            figures = self._do(task)
            self.durable.trace("applied")
            self.turn = task.turn + 1
            due = self.turn == self.plan.turns or (not replayed and self.turn % self.durable.every == 0)
            kept = due and self.turn not in self.durable.checkpoints.turns()
            yield Turned(task, replayed, figures, kept)  # whoever records it has done so when the checkpoint is written
            if kept:
                self.durable.keep(self.turn, self._state(), [channel.exchange for channel in self.channels])

    def _begin(self, task: Task) -> None:
        """What comes before the wait for an answer."""

    def _prepare(self, task: Task) -> None:
        """What can be done of the next step during that wait."""

    @abstractmethod
    def _do(self, task: Task) -> Mapping[str, Any]:
        """A turn's work, or what is left of it; its figures, for this party alone."""

    def judge(self, message: Message) -> str | None:
        """What is wrong with what a peer says in this turn; a channel asks before it writes anything down."""
        count = self._length(self.now)
        if message.rows != self.now.digest:
            return "it is about other rows: compare data, alignment and contract"
        if count is not None and len(message.payload) != count:
            return f"{len(message.payload)} rows or figures came, {count} are due"
        if message.kind == "embedding" and alike(message.payload) > ALIKE:
            return f"over {ALIKE:.0%} of its rows are alike: the bottom has died, or asks one thing of many rows"
        return None

    def count(self) -> None:
        """Count what is about to leave; a channel calls it when a message is durable, before it is sent."""
        if self.durable.tally is not None:
            self.durable.tally.reach(self._left())

    @abstractmethod
    def _length(self, task: Task) -> int | None:
        """How long what the peer says must be; None where the contract's shape says it."""

    def exchanges(self, peers: Sequence[str], role: str, limits: Mapping[str, Any]) -> list[Correspondence]:
        """What was said with each peer, as checkpoint and journal have it."""
        common: dict[str, Any] = {"role": role, "limits": limits, "turn": self.resumed}
        return [
            Correspondence(self.durable.journal, peer, transcripts=self._said.get(peer), **common) for peer in peers
        ]

    def connect(self, *channels: _C) -> None:
        """Say over which channels the peers are spoken with, in the order that the top takes them.

        They are made with this session's `judge` and `count`. A `StorageError` where something that ever left is
        unknown here, in an older copy of the folder: a peer may claim to be at any turn.
        """
        self.channels = channels
        if self.durable.tally is not None:
            # what has an answer to come follows from what is known, bit for bit: on other devices it does not
            asked = sum(channel.exchange.asked for channel in self.channels)
            self.durable.tally.check(asked if self.party.device.type == "cpu" else self._left(), self._left())

    @abstractmethod
    def _left(self) -> int:
        """How many messages are written down that may have left."""

    def _fresh(self) -> Mapping[str, Any]:
        self.origin = weights(self.model)
        return self._state()

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.party.optimizer.state_dict(),
            "steps": self.party.steps,
            "evaluations": self.party.evaluations,
            "history": self.history,
            "origin": self.origin,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "transcripts": {channel.exchange.peer: channel.exchange.recent() for channel in self.channels},
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        self.turn = self.resumed = checkpoint.turn or 0
        self.model.load_state_dict(state["model"])
        self.party.optimizer.load_state_dict(state["optimizer"])
        self.party.steps, self.party.evaluations = state["steps"], state["evaluations"]
        self.history, self.origin = state["history"], state["origin"]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random_cuda"])


class FeatureSession(_Session[FeatureParty, AskingChannel]):
    """The feature party's training."""

    def __init__(
        self,
        party: FeatureParty,
        plan: Plan,
        durable: Durable,
        *,
        noise: StepNoise,  # keyed with this run's secret
        shared: Sequence[str] = (),  # names of the figures that the label party shares, in their order
        guard: FeatureGuard | None = None,
    ) -> None:
        self.guard = guard or _Unguarded()
        super().__init__(party.bottom, party, plan, durable)
        self.shared = tuple(shared)
        settings = durable.digest
        party.noise = _Bound(noise, lambda: (settings, repr(party.shield.protect).encode(), self.origin))

    def leave(self, patience: float = 10.0) -> bool:
        """After the last turn: let the label party know that everything has arrived; whether it has heard that."""
        (channel,) = self.channels
        return channel.confirm(patience)

    def _left(self) -> int:
        return sum(channel.exchange.asked for channel in self.channels)

    def _length(self, task: Task) -> int | None:
        if task.what == "evaluate":
            return len(self.shared) if task.last else 0
        return 0 if task.what == "done" else None

    def _begin(self, task: Task) -> None:
        if task.what == "train":
            (channel,) = self.channels
            sent = channel.exchange.asked > task.turn
            before, leaving = partial(self.guard.before, task, sent=sent), partial(self.guard.leaving, task)
            self.party.send(task.rows, channel, before=before, leaving=leaving)

    def _prepare(self, task: Task) -> None:
        self.party.prepare(task.rows)

    def _do(self, task: Task) -> Mapping[str, Any]:
        (channel,) = self.channels
        if task.what == "train":
            return self.party.finish(channel)
        if task.what == "evaluate":
            values = self.party.evaluate(task.rows, channel, leaving=partial(self.guard.leaving, task))
            if not task.last:
                return {}
            figures = dict(zip(self.shared, values.tolist(), strict=True))
            self.history.append({"epoch": task.epoch, **figures})
            return figures
        channel.send(_farewell())
        channel.recv("done", 0)
        return {}

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "protections": self.party.shield.state()}

    def _restore(self, checkpoint: Checkpoint) -> None:
        super()._restore(checkpoint)
        self.party.shield.restore(checkpoint.state["protections"])


class LabelSession(_Session[LabelParty, AnsweringChannel]):
    """The label party's training."""

    def __init__(
        self,
        party: LabelParty,
        plan: Plan,
        durable: Durable,
        *,
        noise: StepNoise,  # keyed with this run's secret
        measure: Measure,
        shared: Sequence[str] = (),  # names of the figures that the feature parties are told, in their order
        undefined: bool = False,  # whether a single label could be read in them: they are then told as if undefined
        guard: LabelGuard | None = None,
    ) -> None:
        self.guard = guard or _Unguarded()
        self._logits: list[Tensor] = []
        self._loss = torch.zeros(2, dtype=torch.float64, device=party.device)  # sum and number of this epoch's losses
        super().__init__(party.top, party, plan, durable)
        self.measure = measure
        self.shared = tuple(shared)
        self.undefined = undefined
        settings = durable.digest  # and the protection: another strength has unrelated noise
        party.noise = _Bound(noise, lambda: (settings, repr(party.protect).encode(), self.origin, *self._versions()))

    def leave(self, patience: float = 60.0) -> bool:
        """After the last turn: stay until all feature parties have everything, or so long; whether they have."""
        end = time.monotonic() + patience
        while True:
            confirmed = [channel.linger() for channel in self.channels]  # each of them: nobody waits for another one
            if all(confirmed) or time.monotonic() >= end:
                return all(confirmed)

    def _left(self) -> int:
        return sum(channel.exchange.complete for channel in self.channels)

    def _length(self, task: Task) -> int | None:
        return len(task.rows)

    def _versions(self) -> list[bytes]:
        """The weights are a matter of where they began and of all that was said since."""
        all_said = [channel.exchange.transcript(self.turn) for channel in self.channels]
        known = [said for said in all_said if said is not None]
        if len(known) < len(all_said):
            raise StorageError(f"turn {self.turn}: what was said before it is not remembered; no noise is drawn")
        return known

    def _begin(self, task: Task) -> None:
        self._sent = any(channel.exchange.complete > task.turn for channel in self.channels)

    def _do(self, task: Task) -> Mapping[str, Any]:
        if task.what == "train":
            before, leaving = partial(self.guard.before, task, sent=self._sent), partial(self.guard.leaving, task)
            figures = self.party.step(task.rows, self.channels, before=before, leaving=leaving)
            self._loss = self._loss + torch.stack([figures["loss"].double(), self._loss.new_ones(())])
            return figures
        if task.what == "evaluate":
            return self._evaluate(task)
        for channel in self.channels:
            channel.recv("done", 0)
        for channel in self.channels:
            channel.send(_farewell())
        return {}

    def _evaluate(self, task: Task) -> Mapping[str, Any]:
        step = self.party.evaluations
        self._logits.append(self.party.evaluate(task.rows, self.channels))
        figures: dict[str, float] = {}
        values: list[float] = []
        if task.last:
            tested = self.plan.tested()
            known = self.party.known[tested]
            some = known if known.any() else ~known  # labels that were drawn are measured too, which takes as long
            measured = self.measure(torch.cat(self._logits)[some], self.party.labels[tested][some])
            figures = dict(measured) if known.any() else {}
            figures["train_loss"] = float(self._loss[0] / self._loss[1])
            self.history.append({"epoch": task.epoch, **figures})
            self._logits, self._loss = [], torch.zeros_like(self._loss)
            told = {} if self.undefined else figures
            values = [round(told.get(name, _UNDEFINED), DIGITS) for name in self.shared]
        if values:
            self.guard.leaving(task, None)
        for channel in self.channels:
            channel.send(Message(step, "figures", torch.tensor(values, dtype=torch.float64), task.digest))
        return figures

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "protection": self.party.state, "logits": self._logits, "loss": self._loss}

    def _restore(self, checkpoint: Checkpoint) -> None:
        super()._restore(checkpoint)
        self.party.state = checkpoint.state["protection"]
        device = self.party.device
        self._logits = [logits.to(device) for logits in checkpoint.state["logits"]]
        self._loss = checkpoint.state["loss"].to(device)


def _farewell() -> Message:
    return Message(0, "done", torch.empty(0, dtype=torch.uint8), b"")
