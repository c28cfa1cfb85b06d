"""What the label party does in a split training, from top to bottom: it answers embeddings with protected gradients."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.align.batches import Plan, Task
from tacit.align.cache import prepare
from tacit.audit.live import LABELS
from tacit.audit.metrics.leak_auc import auc
from tacit.company.aligned import Aligned
from tacit.company.check import columns_of, spelling_of
from tacit.company.folder import Folder
from tacit.company.meeting import server, training_limits
from tacit.config import Contract, meets
from tacit.contracts import Link, Protected, Protection
from tacit.errors import LimitError, RefusedError, UsageError
from tacit.labels.records import keyed
from tacit.split.durable import BEGUN
from tacit.split.exactly_once import AnsweringChannel
from tacit.split.gate import Gate
from tacit.split.gates import GradientGate
from tacit.split.guard import Guard, look_at_gradients
from tacit.split.halves import Half, build, cuts_of, optimizer, try_out
from tacit.split.handshake import greet_feature_party
from tacit.split.label_party import LOSSES, LabelParty
from tacit.split.protect import gradient as protections
from tacit.split.protect.facts import described, options_of
from tacit.split.protect.gradient import Chain, protection
from tacit.split.run import PROMISED, SplitRun, Trained, device_of, digest_of, facts_of
from tacit.split.session import LabelSession
from tacit.wire.line import Desk

LEAST = 200
"""Test rows of each class, over which figures may be shared."""


def train_label(run: SplitRun, own: LabelParty | None) -> Trained:
    """Train as the label party; see `tacit.split.train.train`."""
    folder, contract, plan = run.folder, run.contract, run.plan
    names = contract.feature_parties
    limits = {name: training_limits(contract, name) for name in names}
    party, facts = build_label_party(folder, run.rows, plan, own)
    tested = plan.tested()
    told = party.labels[tested][party.known[tested]]
    durable = run.durable(facts)
    guard = LabelPartyGuard(folder, run.rows, plan, party, partial(run.enter, described(party.protect)))
    session = LabelSession(
        party, plan, durable, noise=run.noise("gradient"), measure=partial(_measure, contract),
        shared=contract.share.metrics, undefined=not _enough(told), guard=guard,
    )  # fmt: skip
    exchanges = {name: session.exchanges([name], "label", limits[name])[0] for name in names}
    door = run.stack.enter_context(server(folder, contract, limits[names[0]]))
    hello = run.hello(facts["protection"])

    def greet(link: Link) -> None:
        link.limits = limits[link.peer]  # type: ignore[attr-defined]
        greet_feature_party(link, hello, exchanges[link.peer])
        run.telling.status.log("connected", peer=link.peer, turn=exchanges[link.peer].complete)

    desk = Desk(
        door.accept,
        greet,
        names,
        waiting=run.telling.waiting,
        wait=run.telling.patience,
        alarm=run.telling.refused,
        missing=lambda: door.missing,
    )
    run.stack.enter_context(desk)
    session.connect(
        *(
            AnsweringChannel(
                exchange, desk.line(name), turn=session.turn, trace=durable.trace,
                judge=session.judge, leaving=session.count, on_device=party.device.type != "cpu",
            )
            for name, exchange in exchanges.items()
        )
    )  # fmt: skip
    try:
        run.turns(session, guard)
    except LimitError:
        if guard.decision == "stop":
            desk.turn_away(RefusedError("run", "its label party has ended this run"))
        raise
    if not session.leave():
        run.telling.status.log("unconfirmed", reason="not every feature party said that it has the last answer")
    run.save(party.top)
    return Trained(party.top, session.history, run.where, party)


def _enough(labels: Tensor) -> bool:
    """Whether a figure may be shared: over few test rows of a class a single one of them would stand out."""
    counts = torch.bincount(labels.flatten().long(), minlength=2).tolist()
    return len(counts) == 2 and min(counts) >= LEAST


def _measure(contract: Contract, logits: Tensor, labels: Tensor) -> dict[str, float]:
    figures = {"test_loss": float(LOSSES[contract.loss](logits, labels))}
    if contract.loss == "binary" or (logits.ndim == 2 and logits.shape[1] == 2):
        score = logits.flatten() if contract.loss == "binary" else logits[:, 1] - logits[:, 0]
        value = float(auc(score, labels))  # of one class as well, of which it is undefined: that takes as long
        if 0 < float(labels.float().mean()) < 1:
            figures["test_auc"] = value
    return figures


class LabelPartyGuard(Guard):
    """Stands between the label party and the gradients that it sends."""

    def __init__(
        self, folder: Folder, rows: Aligned, plan: Plan, party: LabelParty, entering: Callable[[], None]
    ) -> None:
        self._party = party
        attacks = folder.config.live.attacks
        unknown = sorted(set(attacks) - set(LABELS))
        if unknown:
            raise UsageError(
                f"{folder.path / 'party.toml'}: [live] attacks: {unknown[0]!r} is none of those that cost little: "
                f"{', '.join(LABELS)}"
            )
        super().__init__(folder, rows, plan, entering, partial(look_at_gradients, party, attacks))

    def _gate(self, **settings: Any) -> Gate | None:
        if self._party.classes > 2 and settings["limit"] is None:
            return None
        return GradientGate(self._party, self.watch.followed, **settings)

    def before(self, task: Task, clean: Tensor, embedding: Tensor, *, sent: bool) -> None:
        """Hold the limit: decide whether this gradient is sent."""
        if self.gate is not None:
            self.gate.enter(task, clean, embedding, self._party.labels[task.rows].to(clean.device), sent=sent)

    def leaving(self, task: Task, sent: Protected | None) -> None:
        """Put on record that something is about to be sent: a gradient, or figures of an epoch."""
        self.enter()


# --- the party -------------------------------------------------------------------------------------------------------


def build_label_party(
    folder: Folder, rows: Aligned, plan: Plan, own: LabelParty | None = None
) -> tuple[LabelParty, dict[str, str]]:
    """The party that trains, its caller's own or one made of the settings, and what must be the same at every start."""
    party, data = _from_settings(folder, rows, plan) if own is None else (own, _checked(folder, rows, own))
    facts = facts_of(folder, rows, party.top, party.optimizer, data, own=own is not None)
    facts["loss"] = next(name for name, function in LOSSES.items() if function is party.loss)
    facts["protection"] = repr(party.protect)
    facts["targets"] = "the labels" if party.targets is party.labels else digest_of([party.targets]).hex()
    party.to(device_of(folder))
    return party, facts


def _from_settings(folder: Folder, rows: Aligned, plan: Plan) -> tuple[LabelParty, bytes]:
    config, contract = folder.config, folder.contract
    where = folder.run_folder(contract)
    prepared = prepare(
        folder.data, None if (where / BEGUN).exists() else rows.rows, columns_of(folder), where / "inputs",
        train=plan.train_count, label=folder.table.label, loss=contract.loss, spelling=spelling_of(folder),
    )  # fmt: skip
    gradient = config.protect.gradient
    assert prepared.labels is not None
    assert gradient is not None
    labels, known = _filled(folder, rows, prepared.labels)
    protect: Protection = protection(gradient.name, **gradient.options(contract.epochs))
    top = build(folder, config, contract, prepared.inputs, classes=int(labels.max()) + 1)
    party = LabelParty(
        top=top, labels=labels, features=prepared.inputs.tensors, optimizer=optimizer(top, config),
        protect=protect, loss=contract.loss, known=known,
    )  # fmt: skip
    return party, prepared.digest


def _filled(folder: Folder, rows: Aligned, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels where rows without one have one that was drawn, once and for good; and where they are the rows' own.

    A training without those rows, or none at all, would tell which they are: the partner has picked the rows.
    """
    known = ~labels.isnan() if labels.is_floating_point() else labels >= 0
    missing = (~known).numpy()
    if not missing.any():
        return labels, known
    classes = 2 if labels.is_floating_point() else max(2, int(labels.max()) + 1)
    secret = hmac.digest(folder.secret, b"tacit rows without a label 1", "sha256")
    words = keyed(secret, rows.keys[missing], "no label").view(np.uint64)[:, 0]
    filled = labels.clone()
    filled[~known] = torch.from_numpy((words % classes).astype(np.int64)).to(labels.dtype)
    return filled, known


def _checked(folder: Folder, rows: Aligned, own: LabelParty) -> bytes:
    """A digest of a caller's own tensors; the party must do what contract and settings promise, tried on two rows."""
    if not isinstance(own, LabelParty):
        raise UsageError(f"a {type(own).__name__} does not go with the role 'label' of this folder")
    contract, promised = folder.contract, folder.config.protect.gradient
    data = digest_of([*own.features, own.labels], rows.count)
    logits = 1 if contract.loss == "binary" else own.classes
    half = Half("label", (), 0, cuts_of(contract, contract.feature_parties), logits)
    try_out(own.top, half, own.features, own.labels.device)
    links = own.protect.links if isinstance(own.protect, Chain) else [own.protect]  # of a chain, one must reach it
    ours = [link for link in links if type(link).__module__.startswith(f"{protections.__name__}.")]
    events = [link.event for link in ours if hasattr(link, "event")]  # others' classes may say what they like
    protected = [(event.mechanism, options_of(event)) for event in events]
    meets([contract.minimum.gradient], protected, epochs=contract.epochs)
    if promised is not None:
        meets([promised], protected, epochs=contract.epochs, whose=PROMISED)
    if own.loss is not LOSSES[contract.loss]:
        raise UsageError(f"the party's loss is not the contract's: pass loss={contract.loss!r} to LabelParty")
    return data
