"""Everything that a party keeps an eye on while it trains: what it sends, its limit, its ledger."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from tacit.config import Contract, Party
from tacit.cut.durable import Durable
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan
from tacit.cut.session import FeatureSession, LabelSession, Turned
from tacit.errors import UsageError
from tacit.party.gating import EmbeddingGate, Gate, GradientGate
from tacit.party.watching import Watch

__all__ = ["Oversight"]


class Oversight:
    """What stands between a party's training and its messages.

    Args:
        where: the run's folder.
        config: the party's settings.
        contract: what was agreed on.
        plan: of the training.
        party: that trains.
    """

    def __init__(
        self, where: Path, config: Party, contract: Contract, plan: Plan, party: LabelParty | FeatureParty
    ) -> None:
        self.party = party
        self.watch = Watch(where, party, contract, config.record, config.live)
        self.gate = self._gate(where, config, plan)

    def _gate(self, where: Path, config: Party, plan: Plan) -> Gate | None:
        if config.limit is None:
            return None
        recorder = self.watch.recorder
        if recorder is None or not recorder.follow:
            raise UsageError("limit is set, but no example can be followed over its visits: set [record] follow = 4096")
        common = {
            "folder": where, "limit": config.limit, "on_limit": config.on_limit, "plan": plan, "recorder": recorder,
        }  # fmt: skip
        if isinstance(self.party, LabelParty):
            return GradientGate(self.party, **common)
        return EmbeddingGate(self.party, **common)

    def attach(self, session: LabelSession | FeatureSession, durable: Durable) -> None:
        """From now on nothing is sent, and no checkpoint written, without it."""
        self.watch.resume(session.resumed, self.party.steps)
        durable.keeping = self.watch.keep
        if self.gate is not None:
            self.gate.resume(session.resumed)
        if isinstance(self.party, LabelParty):
            self._attach_label(self.party, session)
        else:
            self._attach_features(self.party, session)

    def _attach_label(self, party: LabelParty, session: LabelSession | FeatureSession) -> None:
        def before(clean: Tensor, embedding: Tensor) -> None:
            assert session.task is not None
            if self.gate is not None:
                self.gate.enter(session.task, clean, embedding, party.labels[session.task.rows])

        party.before = before

    def _attach_features(self, party: FeatureParty, session: LabelSession | FeatureSession) -> None:
        def before(rows: Tensor, z: Tensor) -> None:
            assert session.task is not None
            if self.gate is not None:
                self.gate.enter(session.task, rows, z)

        party.before = before

    def turned(self, turned: Turned) -> None:
        """A turn is over."""
        self.watch.step(turned)

    @property
    def stopped(self) -> bool:
        """Whether the limit has ended the run for good."""
        return self.gate is not None and self.gate.stopped
