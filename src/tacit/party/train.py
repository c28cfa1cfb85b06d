"""`tacit train`: one party's part of a training between companies, from its folder; it goes on where it was."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from tacit._version import __version__
from tacit.audit.metrics.leak_auc import auc
from tacit.config import Contract
from tacit.contracts import Link
from tacit.cut.durable import Durable
from tacit.cut.feature_party import FeatureParty
from tacit.cut.handshake import PROTOCOL, Hello, greet_feature_party, greet_label_party
from tacit.cut.label_party import LabelParty
from tacit.cut.losses import LOSSES
from tacit.cut.plan import Plan, Task
from tacit.cut.session import FeatureSession, LabelSession, Turned
from tacit.disk import replaced
from tacit.errors import LimitError, RefusedError, StorageError, UsageError
from tacit.party import sealed_log
from tacit.party.align import Aligned, aligned
from tacit.party.building import build_party, plan_of
from tacit.party.folder import Folder
from tacit.party.guard import Oversight
from tacit.party.meeting import dial, server, training_limits
from tacit.party.run_files import GATE, OVERRIDES
from tacit.party.run_record import restored
from tacit.party.status import Status
from tacit.protect.keyed_noise import KeyedNoise
from tacit.wire.checkpoint import Checkpoints
from tacit.wire.exactly_once import AnsweringChannel, AskingChannel, Trace
from tacit.wire.exchange import Exchange
from tacit.wire.journal import Journal
from tacit.wire.line import Desk, Dialer, Waiting
from tacit.wire.record import Recorder
from tacit.wire.tally import LEDGER, Tally

__all__ = ["LEAST", "Trained", "train"]

LEAST = 200
"""Test rows of each class, over which figures may be shared."""

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Called after each turn: turns done, all turns, and the figures of the last evaluation."""


@dataclass(frozen=True)
class Trained:
    """What a training leaves with one party.

    Attributes:
        model: this party's half, trained.
        history: figures of each epoch; at a feature party those that the contract shares.
        folder: of the run: journal, checkpoints, `model.safetensors`, status and log.
        party: with its model, its table and what it does to what it sends; a feature party's `embed` is for serving.
        labels: the label party's labels of the training rows.
        transcript: what was recorded for attacks on oneself, over all starts; a feature party, which never sees
            gradients before they were protected, has those that came in their place.
    """

    model: nn.Module
    history: list[dict[str, float]]
    folder: Path
    party: LabelParty | FeatureParty
    labels: Tensor | None = None
    transcript: Recorder | None = None


def train(
    folder: Folder | str | Path,
    party: LabelParty | FeatureParty | None = None,
    *,
    progress: Progress = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    alarm: Callable[[str, str, str], None] = lambda *_: None,
    trace: Trace = lambda _: None,
    after_restore: tuple[str, str] | None = None,
) -> Trained:
    """Train with the other parties of the contract. All run this at the same time, each with its own folder.

    Started again after whatever ended it, the same call goes on where it was.

    Args:
        folder: the party's folder, aligned.
        party: a party of your own, over the rows of `folder.align()`; made of party.toml if not given.
        progress: told after each turn.
        waiting: told while a peer lets us wait.
        alarm: told of everything that was refused: the peer, the field, the reason.
        trace: told of each point that a turn passes.
        after_restore: who lets the run go on from a folder that is an older copy, or whose count of what left is gone,
            and why; what it sends again is then answered again. It stays on record.
    """
    folder = folder if isinstance(folder, Folder) else Folder(folder)
    contract, rows = folder.contract, aligned(folder)
    folder.check_pair(contract)
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    where = folder.run_folder(contract)
    plan = plan_of(contract, rows)
    status = Status(
        where, run=contract.run, party=folder.config.name, role=folder.config.role, turns=plan.turns, steps=plan.steps
    )
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(where / "journal"))
        status.update(state="preparing", at_once=True)
        party, guard = build_party(folder, contract, rows, plan, party)
        if isinstance(party, LabelParty) != (folder.config.role == "label"):
            raise UsageError(
                f"a {type(party).__name__} does not go with the role {folder.config.role!r} of this folder"
            )
        every = folder.config.training.checkpoint_every
        answered = restored(where, status.log, after_restore)
        tally = Tally(folder.tally_path(contract, _id_of(contract, rows)), answered)
        recorded = Tally(folder.ledger_tally_path, answered, LEDGER)
        for one in (tally, recorded):
            stack.callback(one.close)
        checkpoints = Checkpoints(where / "checkpoints")
        durable = Durable(journal, checkpoints, guard, every=every, trace=trace, tally=tally)
        if contract.share.metrics and isinstance(party, LabelParty):
            _check_share(party.labels[plan.tested()])
        _check_records(where, durable)
        run = _Run(folder, contract, rows, plan, durable, recorded, status, progress, waiting, alarm, stack)
        try:
            done = run.label(party) if isinstance(party, LabelParty) else run.features(party)
        except LimitError as reason:
            status.log("limit", reason=str(reason))
            status.update(state="paused", reason=str(reason), at_once=True)
            raise
    status.update(state="finished", at_once=True)
    return done


def _id_of(contract: Contract, rows: Aligned) -> bytes:
    """Of one run alone: of this contract over this alignment."""
    return hashlib.sha256(f"{contract.digest} {rows.id}".encode()).digest()


def _check_share(labels: Tensor) -> None:
    """Refuse to tell figures over so few test rows of a class that a single one of them stands out."""
    counts = torch.bincount(labels.flatten().long(), minlength=2).tolist()
    if len(counts) > 2 or min(counts) < LEAST:
        raise UsageError(
            f"the contract shares test_auc, which takes {LEAST} test rows of each of two classes, or a single label "
            f"could be read in it, and there are {counts}: agree on a larger test_share, or on metrics = []"
        )


def _check_records(where: Path, durable: Durable) -> None:
    """Begin the records of a new run; refuse to go on with one whose records are gone: they say what was decided."""
    for name in (GATE, OVERRIDES):
        if durable.begun and not sealed_log.begun(where / name):
            raise StorageError(
                f"{where / name}: it is gone with its seal, and the run has begun: bring both back, or start a new run "
                "under another name"
            )
        sealed_log.begin(where / name)


@dataclass(frozen=True)
class _Run:
    """Everything that one start of `tacit train` brings together."""

    folder: Folder
    contract: Contract
    rows: Aligned
    plan: Plan
    durable: Durable
    recorded: Tally
    status: Status
    progress: Progress
    waiting: Waiting
    alarm: Callable[[str, str, str], None]
    stack: ExitStack

    def features(self, party: FeatureParty) -> Trained:
        """The feature party's side."""
        own, peer = self.folder.config.name, self.contract.label_party
        oversight = self._oversight(party)
        limits = training_limits(self.contract, own)
        noise = KeyedNoise(self._secret(), "embedding")
        session = FeatureSession(party, self.plan, self.durable, noise=noise, shared=self.contract.share.metrics)
        (exchange,) = session.exchanges([peer], "features", limits)
        hello = self._hello(", ".join(one.name for one in party.shield.protect) or "none")
        line = Dialer(
            peer,
            lambda: dial(self.folder, self.contract, limits),
            lambda link: self._greeted(greet_label_party, link, hello, exchange),
            waiting=self._wait,
        )
        self.stack.callback(line.close)
        session.connect(AskingChannel(exchange, line, turn=session.turn, trace=self.durable.trace))
        try:
            oversight.check()
            self._turns(session, oversight)
        except LimitError:
            if oversight.stopped:
                line.part(RefusedError("run", f"{own} has ended this run"))
            raise
        session.leave()
        self._save(session.model)
        return Trained(session.model, session.history, self._where, party, transcript=oversight.watch.recorder)

    def label(self, party: LabelParty) -> Trained:
        """The label party's side."""
        names = self.contract.feature_parties
        oversight = self._oversight(party)
        limits = {name: training_limits(self.contract, name) for name in names}
        noise = KeyedNoise(self._secret(), "gradient")
        session = LabelSession(
            party, self.plan, self.durable, noise=noise, measure=self._measure, shared=self.contract.share.metrics
        )
        session.telling = oversight.books.tell
        exchanges = {name: session.exchanges([name], "label", limits[name])[0] for name in names}
        door = self.stack.enter_context(server(self.folder, self.contract, limits[names[0]]))
        hello = self._hello(self.durable.guard["protection"])

        def greet(link: Link) -> None:
            link.limits = limits[link.peer]  # type: ignore[attr-defined]
            self._greeted(greet_feature_party, link, hello, exchanges[link.peer])

        desk = Desk(door.accept, greet, names, waiting=self._wait, alarm=self._refused)
        self.stack.callback(desk.close)
        session.connect(
            [
                AnsweringChannel(exchange, desk.line(name), turn=session.turn, trace=self.durable.trace)
                for name, exchange in exchanges.items()
            ]
        )
        try:
            oversight.check()
            self._turns(session, oversight)
        except LimitError:
            if oversight.stopped:
                desk.turn_away(RefusedError("run", "its label party has ended this run"))
            raise
        if not session.leave():
            self.status.log("unconfirmed", reason="not every feature party said that it has the last answer")
        self._save(session.model)
        labels = party.labels[: self.plan.train_count]
        return Trained(session.model, session.history, self._where, party, labels, oversight.watch.recorder)

    def _oversight(self, party: LabelParty | FeatureParty) -> Oversight:
        oversight = Oversight(self.folder, self.contract, self.rows, self.plan, party, self.recorded)
        self.stack.callback(oversight.close)
        return oversight

    def _turns(self, session: LabelSession | FeatureSession, oversight: Oversight) -> None:
        """All turns that are left."""
        oversight.attach(session, self.durable)
        here = next(iter(self.plan.tasks(min(session.turn, self.plan.turns - 1))))  # a run that is over has none left
        self._tell(session.turn, here, session.history, "preparing")
        started = time.perf_counter()
        for turned in session.run():
            oversight.turned(turned)
            self._note(turned, session.history)
        looked, taken = oversight.watch.seconds, time.perf_counter() - started
        if looked:
            self.status.log("looked", seconds=round(looked, 2), share=f"{looked / taken:.2%} of this training's time")

    def _secret(self) -> bytes:
        """Of this run alone: of this contract over this alignment."""
        return self.folder.run_secret(_id_of(self.contract, self.rows))

    def _hello(self, protection: str) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            run=self.contract.run,
            role=self.folder.config.role,
            party=self.folder.config.name,
            contract=self.contract.digest,
            alignment=self.rows.id,
            rows=self.rows.digest,
            protection=protection,
            asked=0,
            complete=0,
            transcript="",
            before="",
        )

    def _greeted(
        self, greet: Callable[[Link, Hello, Exchange], None], link: Link, hello: Hello, exchange: Exchange
    ) -> None:
        greet(link, hello, exchange)
        self.status.log("connected", peer=link.peer, turn=exchange.complete)

    def _wait(self, peer: str, seconds: float, why: str) -> None:
        self.status.update(state="waiting", peer=peer, waiting_seconds=round(seconds), why=why, at_once=True)
        self.waiting(peer, seconds, why)

    def _refused(self, peer: str, field: str, reason: str) -> None:
        self.status.log("refused", peer=peer, field=field, reason=reason)
        self.alarm(peer, field, reason)

    def _measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        figures = {"test_loss": float(LOSSES[self.contract.loss](logits, labels))}
        if self.contract.loss == "binary" or (logits.ndim == 2 and logits.shape[1] == 2):
            score = logits.flatten() if self.contract.loss == "binary" else logits[:, 1] - logits[:, 0]
            figures["test_auc"] = float(auc(score, labels)) if 0 < float(labels.float().mean()) < 1 else 0.5
        return figures

    def _note(self, turned: Turned, history: list[dict[str, float]]) -> None:
        done = turned.task.turn + 1
        state = "catching up" if turned.replayed else "training"
        self._tell(done, turned.task, history, state)
        self.progress(done, self.plan.turns, history[-1] if history else {})

    def _tell(self, done: int, task: Task, history: list[dict[str, float]], state: str) -> None:
        """Where the run stands, also before its first turn: one that goes on is not at its beginning."""
        self.status.update(
            state=state, turn=done, epoch=task.epoch, epochs=self.plan.epochs, history=history,
            journal_bytes=self.durable.journal.size,
        )  # fmt: skip

    @property
    def _where(self) -> Path:
        return self.folder.run_folder(self.contract)

    def _save(self, model: nn.Module) -> None:
        weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}  # tied ones apart
        content = save({name: value.contiguous() for name, value in weights.items()})
        replaced(self._where / "model.safetensors", lambda file: file.write(content))
