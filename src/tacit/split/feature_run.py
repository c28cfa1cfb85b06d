"""What a feature party does in a split training, from top to bottom: it asks, and learns from the answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.align.batches import Plan, Task
from tacit.align.cache import prepare
from tacit.company.aligned import Aligned
from tacit.company.check import columns_of
from tacit.company.departures import go_on_predicting
from tacit.company.folder import Folder
from tacit.company.meeting import dial, training_limits
from tacit.config import meets
from tacit.contracts import Link
from tacit.errors import LimitError, UsageError
from tacit.split.exactly_once import AskingChannel
from tacit.split.feature_party import FeatureParty
from tacit.split.gate import Gate
from tacit.split.gates import EmbeddingGate
from tacit.split.guard import Guard, look_at_embeddings
from tacit.split.halves import Half, build, cuts_of, first_seed, optimizer, try_out
from tacit.split.handshake import greet_label_party
from tacit.split.protect.embedding import embedding_protection
from tacit.split.protect.facts import described
from tacit.split.run import PROMISED, SplitRun, Trained, device_of, digest_of, facts_of
from tacit.split.session import FeatureSession
from tacit.wire.line import Dialer, gave_up


def train_features(run: SplitRun, own: FeatureParty | None) -> Trained:
    """Train as a feature party; see `tacit.split.train.train`."""
    folder, contract, plan = run.folder, run.contract, run.plan
    peer, limits = contract.label_party, training_limits(contract, folder.config.name)
    party, facts = build_feature_party(folder, run.rows, plan, own)
    durable = run.durable(facts)
    go_on_predicting(folder, run.where, run.restored)
    guard = FeaturePartyGuard(folder, run.rows, plan, party, partial(run.enter, described(party.shield.protect)))
    session = FeatureSession(
        party, plan, durable, noise=run.noise("embedding"), shared=contract.share.metrics, guard=guard
    )
    (exchange,) = session.exchanges([peer], "features", limits)
    hello = run.hello(", ".join(one.name for one in party.shield.protect) or "none")

    def greet(link: Link) -> None:
        greet_label_party(link, hello, exchange)
        run.telling.status.log("connected", peer=link.peer, turn=exchange.complete)

    line = Dialer(
        peer, lambda: dial(folder, contract, limits), greet, waiting=run.telling.waiting, wait=run.telling.patience
    )
    run.stack.enter_context(line)
    session.connect(
        AskingChannel(
            exchange,
            line,
            turn=session.turn,
            trace=durable.trace,
            judge=session.judge,
            leaving=session.count,
            on_device=party.device.type != "cpu",
        )
    )
    try:
        run.turns(session, guard)
    except LimitError:
        if cause := {"pause": "limit", "stop": "ended"}.get(guard.decision):
            line.part(gave_up(cause))
        raise
    session.leave()
    run.save(party.bottom)
    return Trained(party.bottom, session.history, run.where, party)


class FeaturePartyGuard(Guard):
    """Stands between a feature party and the embeddings that it sends."""

    def __init__(
        self, folder: Folder, rows: Aligned, plan: Plan, party: FeatureParty, entering: Callable[[], None]
    ) -> None:
        self._party = party
        super().__init__(folder, rows, plan, entering, partial(look_at_embeddings, party))

    def _gate(self, **settings: Any) -> Gate:
        return EmbeddingGate(self._party, **settings)

    def before(self, task: Task, embedding: Tensor, *, sent: bool) -> None:
        """Hold the limit: decide whether this embedding is sent."""
        if self.gate is not None:
            self.gate.enter(task, task.rows, embedding, sent=sent)

    def leaving(self, task: Task) -> None:
        """Put on record that something is about to be sent."""
        self.enter()


# --- the party -------------------------------------------------------------------------------------------------------


def build_feature_party(
    folder: Folder, rows: Aligned, plan: Plan, own: FeatureParty | None = None
) -> tuple[FeatureParty, dict[str, str]]:
    """The party that trains, its caller's own or one made of the settings, and what must be the same at every start."""
    party, data = _from_settings(folder, rows, plan) if own is None else (own, _checked(folder, rows, own))
    facts = facts_of(folder, rows, party.bottom, party.optimizer, data, own=own is not None)
    facts["protection"] = ", ".join(map(repr, party.shield.protect)) or "none"
    facts["hidden"] = "the inputs"
    party.to(device_of(folder))
    return party, facts


def _from_settings(folder: Folder, rows: Aligned, plan: Plan) -> tuple[FeatureParty, bytes]:
    config, contract = folder.config, folder.contract
    cache = folder.run_folder(contract) / "inputs"
    prepared = prepare(folder.data, rows.rows, columns_of(folder), cache, train=plan.train_count)
    bottom = build(folder, config, contract, prepared.inputs)
    protect = [embedding_protection(one.name, **one.options()) for one in config.protect.embedding or ()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(first_seed(config))  # for what protections learn with
        party = FeatureParty(
            bottom=bottom, features=prepared.inputs.tensors, optimizer=optimizer(bottom, config), protect=protect
        )
    return party, prepared.digest


def _checked(folder: Folder, rows: Aligned, own: FeatureParty) -> bytes:
    """A digest of a caller's own tensors; the party must do what contract and settings promise, tried on two rows."""
    if not isinstance(own, FeatureParty):
        raise UsageError(f"a {type(own).__name__} does not go with the role 'features' of this folder")
    data = digest_of(own.features, rows.count)
    try_out(own.bottom, Half("features", (), 0, cuts_of(folder.contract, [folder.config.name]), 1), own.features)
    protected = [(one.event.mechanism, one.event.parameters) for one in own.shield.protect]
    meets(folder.contract.minimum.embedding, protected)
    meets(folder.config.protect.embedding or (), protected, whose=PROMISED)
    return data
