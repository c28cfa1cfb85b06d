"""Everything that a party keeps an eye on while it trains: what it sends, its limit, its ledger."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor

from tacit.config import Contract, Party
from tacit.cut.durable import Durable
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan, Task
from tacit.cut.session import FeatureSession, LabelSession, Turned
from tacit.errors import LimitError, TensorError, UsageError
from tacit.party.alignment import Aligned
from tacit.party.embedding_gate import EmbeddingGate
from tacit.party.folder import Folder
from tacit.party.gate import Gate, decisions
from tacit.party.gradient_gate import GradientGate
from tacit.party.live import Watch
from tacit.party.run_ledger import Bookkeeping
from tacit.wire.tally import Tally

__all__ = ["Oversight"]


class Oversight:
    """What stands between a party's training and its messages.

    Args:
        folder: of the party.
        contract: what was agreed on.
        rows: that are aligned.
        plan: of the training.
        party: that trains.
        tally: of the party's ledger.
    """

    def __init__(
        self,
        folder: Folder,
        contract: Contract,
        rows: Aligned,
        plan: Plan,
        party: LabelParty | FeatureParty,
        tally: Tally,
    ) -> None:
        self.party = party
        config, where = folder.config, folder.run_folder(contract)
        live, secret = config.live.within(plan.steps * plan.epochs), self._secret(folder, contract, rows)
        self.watch = Watch(where, party, contract, plan, config.record, live, secret)
        self.books = Bookkeeping(folder, contract, rows, plan, party, tally)
        self._plan = plan
        try:
            self._observer = self._gate(where, config, plan)
        except BaseException:
            self.books.close()
            raise
        held = config.limit is not None or self.books.budget is not None
        self.gate = self._observer if held or decisions(where) else None

    @staticmethod
    def _secret(folder: Folder, contract: Contract, rows: Aligned) -> bytes:
        """Of what is watched in this run, apart from that of its noise."""
        return folder.run_secret(hashlib.sha256(f"watched {contract.digest} {rows.id}".encode()).digest())

    def _gate(self, where: Path, config: Party, plan: Plan) -> Gate | None:
        """What measures and decides; None where there is nothing to measure, and no limit that would ask for it."""
        recorder = self.watch.recorder
        if recorder is None or not recorder.follow or not config.record.last:
            if config.limit is not None:
                raise UsageError(
                    "limit is set, but what it is measured on is not kept: set [record] last = 24 and follow = 8192"
                )
            if self.books.budget is None and not decisions(where):
                return None
        if isinstance(self.party, LabelParty) and self.party.classes > 2 and config.limit is None:
            return None
        common = {
            "folder": where, "limit": config.limit, "on_limit": config.on_limit, "plan": plan, "recorder": recorder,
            "held": config.limit is not None or self.books.budget is not None,
        }  # fmt: skip
        if isinstance(self.party, LabelParty):
            return GradientGate(self.party, self.books, self.watch.followed, **common)
        return EmbeddingGate(self.party, **common)

    @property
    def stopped(self) -> bool:
        """Whether the limit has ended the run for good."""
        return self.gate is not None and self.gate.stopped

    def check(self) -> None:
        """A `LimitError` where the limit has ended the run for good."""
        if self.gate is not None:
            self.gate.check()

    def attach(self, session: LabelSession | FeatureSession, durable: Durable) -> None:
        """From now on nothing is sent, and no checkpoint written, without it."""
        self.watch.resume(session.resumed, self.party.steps)
        self._check_recorded()
        self.books.resume(session.resumed)
        durable.keeping = self._keep
        if self.gate is not None:
            self.gate.resume(session.resumed)
        if isinstance(self.party, LabelParty):
            self._attach_label(self.party, session)
        else:
            self._attach_features(self.party, session)

    def _check_recorded(self) -> None:
        """Where a limit is to be held, refuse to go on without what was sent before: visits add up over all of it."""
        recorder = self.watch.recorder
        if self.gate is None or self.gate.limit is None or recorder is None:
            return
        if recorder.unrecorded:
            raise LimitError(
                f"{recorder.folder}: {recorder.unrecorded} of {recorder.steps} steps that were sent are not recorded, "
                "or damaged, and what all visits of an example add up to can't be told without them: bring the folder "
                "back, or remove limit from party.toml to go on without it"
            )

    def _attach_label(self, party: LabelParty, session: LabelSession | FeatureSession) -> None:
        def before(clean: Tensor, embedding: Tensor) -> None:
            if self.gate is not None:
                labels = party.labels[session.now.rows]
                self.gate.enter(session.now, clean, embedding, labels, sent=self.books.entered())

        party.before = before
        party.leaving = lambda sent: self.books.answer(session.now, sent)

    def _attach_features(self, party: FeatureParty, session: LabelSession | FeatureSession) -> None:
        def before(rows: Tensor, z: Tensor) -> None:
            if self.gate is not None:
                self.gate.enter(session.now, rows, z, sent=self.books.entered())

        party.before = before
        party.leaving = lambda kind, rows: self.books.send(session.now, kind)

    def _keep(self, turn: int) -> None:
        self.watch.keep(turn)
        self.books.keep()

    def turned(self, turned: Turned) -> None:
        """A turn is over."""
        self.watch.step(turned)
        task = turned.task
        if (task.turn + 1) % self._plan.epoch_turns == 0 and self._due(task.epoch):
            self._look_closely(task)

    def _due(self, epoch: int) -> bool:
        """Whether it is time for the attacks that take longer; a matter of the steps that lie behind alone."""
        steps, apart = self._plan.steps, self.watch.live.fitted
        return bool(self.watch.live.every) and (epoch + 1) * steps // apart > epoch * steps // apart

    def _look_closely(self, task: Task) -> None:
        if self._observer is None or self.watch.recorder is None or not self.watch.recorder.follow:
            return
        try:
            found = self._observer.seen(task.turn + 1)
        except (TensorError, UsageError):  # as where inputs are codes, of which no variance can be read
            return
        self.watch.note(task, {one.attack: one.value for one in found})

    def close(self) -> None:
        """Let go of what only one process may have."""
        self.books.close()
