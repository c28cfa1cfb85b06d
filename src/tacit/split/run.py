"""What both sides of a split training share: one start of it, where it stands, and what must stay the same."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from tacit._version import __version__
from tacit.align.batches import Plan, Task
from tacit.align.tables import tensors_digest
from tacit.arguments import device_named
from tacit.company.aligned import Aligned, aligned, counted_facts, pin
from tacit.company.departures import note_alignments
from tacit.company.facts import SPLIT_RUN
from tacit.company.facts import SplitRun as Fact
from tacit.company.folder import Folder
from tacit.company.overrides import restored
from tacit.company.split_history import label_of
from tacit.company.status import Status, Telling, cause, gone_before
from tacit.config import Contract, Terms
from tacit.disk import write
from tacit.errors import LimitError, StorageError, UsageError
from tacit.labels.tally import Restored, Tally
from tacit.report import seals
from tacit.report.run_files import GATE, OVERRIDES
from tacit.split.checkpoint import Checkpoints
from tacit.split.durable import BEGUN, Durable
from tacit.split.feature_party import FeatureParty
from tacit.split.guard import Guard
from tacit.split.handshake import Hello
from tacit.split.journal import Journal
from tacit.split.label_party import LabelParty
from tacit.split.protect.keyed_noise import KeyedNoise
from tacit.split.session import FeatureSession, LabelSession
from tacit.wire.codec import PROTOCOL

Turned = Callable[[int, int, Mapping[str, float]], None]
"""Called after each turn: turns done, all turns, and the figures of the last evaluation."""


_MOST_ROOM = 1 << 30  # bytes of a journal that are allocated beforehand, at most

PROMISED = "what party.toml promises"
"""The least protection of a party of one's own, beside the contract's."""


def silent(*_: object) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Trained:
    """What a training leaves with one party."""

    model: nn.Module  # this party's half, trained
    history: list[dict[str, float]]  # figures of each epoch; at a feature party those that the contract shares
    folder: Path  # of the run: journal, checkpoints, `model.safetensors`, status and log
    # with its model, its table and what it does to what it sends; a feature party's `embed` is for serving
    party: LabelParty | FeatureParty


def plan_of(contract: Contract, rows: Aligned) -> Plan:
    """What is done in which turn, over these rows."""
    return Plan(
        rows.count, contract.batch_size, contract.epochs, rows.seed, contract.test_share, rows.count - rows.train
    )


def begin(folder: Folder, contract: Terms) -> Path:
    """What every start of a training begins with; returns the run's folder."""
    folder.check_pair(contract)
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    return folder.run_folder(contract)


@contextmanager
def started(
    folder: Folder, telling: Callable[[Status], Telling], progress: Turned, after_restore: tuple[str, str] | None
) -> Iterator[SplitRun]:
    """One start of a training, which no other process may run; a limit that is passed in it is told in its status."""
    contract = folder.contract
    where = begin(folder, contract)
    # a label party goes on with what it began with: a label that was changed since is none of its partner's business
    goes_on = folder.config.role == "label" and (where / BEGUN).exists()
    rows = aligned(folder) if goes_on else pin(folder)
    plan = plan_of(contract, rows)
    status = Status(
        where, run=contract.run, party=folder.config.name, role=folder.config.role, turns=plan.turns, steps=plan.steps,
        **(gone_before(where) if goes_on else {}),
    )  # fmt: skip
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(where / "journal", room=_room(folder)))
        status.update(state="preparing", at_once=True)
        note_alignments(folder, status)
        said = telling(status)
        if folder.config.data is not None and not goes_on:
            said.gone(rows.missing)
        try:
            yield SplitRun(folder, rows, plan, journal, said, progress, after_restore, stack)
        except LimitError as reason:
            status.log("limit", reason=str(reason))
            status.update(state="paused", reason=str(reason), at_once=True)
            raise
        except Exception as error:
            status.update(state="stopped", reason=cause(error), at_once=True)
            raise
    status.update(state="finished", at_once=True)


def _room(folder: Folder) -> int:
    """Bytes that a run says between two checkpoints, as far as it is worth allocating them beforehand."""
    contract, config = folder.contract, folder.config
    mine = contract.feature_parties if config.role == "label" else [config.name]
    width = sum(math.prod(contract.cut.widths[name]) for name in mine)
    return min(config.training.checkpoint_every * 2 * 4 * contract.batch_size * width, _MOST_ROOM)


@dataclass(frozen=True)
class SplitRun:
    """One start of a training, whatever the role."""

    folder: Folder  # of the party
    rows: Aligned  # that are aligned
    plan: Plan  # what is done in which turn
    journal: Journal  # what was said
    telling: Telling  # where the run stands
    progress: Turned  # told after each turn
    after_restore: tuple[str, str] | None  # who answers for going on from an older copy of the folder, and why
    stack: ExitStack  # closes what the run opens

    @property
    def contract(self) -> Contract:
        """What was agreed on."""
        return self.folder.contract

    @property
    def where(self) -> Path:
        """The run's folder."""
        return self.folder.run_folder(self.contract)

    @cached_property
    def _id(self) -> bytes:
        return hashlib.sha256(f"{self.contract.digest} {self.rows.id}".encode()).digest()

    def noise(self, of: str) -> KeyedNoise:
        """This run's noise on what the party sends."""
        return KeyedNoise(self.folder.run_secret(self._id), of)

    def durable(self, facts: Mapping[str, str]) -> Durable:
        """Where this run's state is kept, and which facts must be the same at every start."""
        with counted_facts(self.folder, SPLIT_RUN, self.restored):
            pass  # an older copy is refused before anybody is spoken to
        tally = Tally(self.folder.tally_path(self.contract, self._id), self.restored)
        durable = Durable(
            self.journal, Checkpoints(self.where / "checkpoints"), facts,
            every=self.folder.config.training.checkpoint_every, trace=self.telling.trace,
            tally=self.stack.enter_context(closing(tally)),
        )  # fmt: skip
        for path in (self.where / GATE, self.where / OVERRIDES):  # they say what was decided
            if durable.begun and not seals.begun(path):
                raise StorageError(
                    f"{path}: it is gone with its seal, and the run has begun: bring both back, or start a new run "
                    "under another name"
                )
            seals.begin(path)
        return durable

    def enter(self, protection: str) -> None:
        """Put on record that the aligned rows go out in this run, under this protection."""
        contract = self.contract
        fact = Fact(contract.digest, contract.run, self.rows.id, label_of(self.folder), protection, contract.epochs)
        with counted_facts(self.folder, SPLIT_RUN, self.restored) as facts:
            facts.enter(fact)

    @property
    def restored(self) -> Restored | None:
        """Told what an older copy of the folder lacks, where somebody answers for going on from it."""
        return restored(self.where, self.telling.status.log, self.after_restore)

    def hello(self, protection: str) -> Hello:
        """What a peer is told first, which it must agree to."""
        config = self.folder.config
        return Hello(
            protocol=PROTOCOL, version=__version__, run=self.contract.run, role=config.role, party=config.name,
            contract=self.contract.digest, alignment=self.rows.id, rows=self.rows.digest, protection=protection,
            asked=0, complete=0, transcript="",
        )  # fmt: skip

    def turns(self, session: LabelSession | FeatureSession, guard: Guard) -> None:
        """All turns that are left."""
        guard.check()
        guard.resume(session.resumed, session.party.steps)
        here = next(iter(self.plan.tasks(min(session.turn, self.plan.turns - 1))))  # a run that is over has none left
        self._tell(session.turn, here, session.history, "preparing")
        started = time.perf_counter()
        for turned in session.run():
            guard.turned(turned)
            done = turned.task.turn + 1
            self._tell(done, turned.task, session.history, "catching up" if turned.replayed else "training")
            self.progress(done, self.plan.turns, session.history[-1] if session.history else {})
        if looked := guard.watch.seconds:
            share = f"{looked / (time.perf_counter() - started):.2%} of this training's time"
            self.telling.status.log("looked", seconds=round(looked, 2), share=share)

    def _tell(self, done: int, task: Task, history: list[dict[str, float]], state: str) -> None:
        """Where the run stands, also before its first turn: one that goes on is not at its beginning."""
        self.telling.status.update(
            state=state, turn=done, epoch=task.epoch, epochs=self.plan.epochs, history=history,
            journal_bytes=self.journal.size,
        )  # fmt: skip

    def save(self, model: nn.Module) -> None:
        """Write the trained half down."""
        weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}  # tied ones apart
        write(self.where / "model.safetensors", save({name: value.contiguous() for name, value in weights.items()}))


# --- what must be the same whenever a run goes on --------------------------------------------------------------------


def facts_of(
    folder: Folder, rows: Aligned, model: nn.Module, optimizer: torch.optim.Optimizer, data: bytes, *, own: bool
) -> dict[str, str]:
    """What must be the same whenever a run goes on, each thing under its own name; each side adds what it does."""
    settings = ", ".join(f"{name} {value}" for name, value in folder.config.model if value is not None)
    return {
        "version": __version__,
        "contract": folder.contract.digest,
        "alignment": rows.id,
        "data": data.hex(),
        "device": device_of(folder).type,
        "model": type(model).__name__ if own else settings,
        "network": _hashed(repr(model)),
        **_optimizer(optimizer),
    }


def device_of(folder: Folder) -> torch.device:
    """Where this party's half is to compute."""
    try:
        return torch.device(device_named(folder.config.training.device))
    except UsageError as error:
        raise UsageError(f"{folder.path / 'party.toml'}: [training] device: {error}") from None


def digest_of(tensors: Sequence[Tensor], count: int | None = None) -> bytes:
    """A digest of tensors; those that a caller brought must have as many rows as are aligned."""
    for tensor in tensors:
        if count is not None and len(tensor) != count:
            raise UsageError(f"the party has {len(tensor)} rows, {count} are aligned: take the rows of folder.align()")
    return tensors_digest(tensors)


def _hashed(description: str) -> str:
    """A digest of an object's description; where the object lies in memory is another place at every start."""
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", description).encode()).hexdigest()


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Everything that decides how weights follow from gradients, each under its own name.

    Two starts that differ in any of it send different gradients, which the same noise must never hide.
    """
    groups = optimizer.param_groups
    names = sorted({name for group in groups for name in group} - {"params"})
    options = {name: ", ".join(str(group.get(name)) for group in groups) for name in names}
    rate = options.pop("lr", "none")
    shapes = [[tuple(param.shape) for param in group["params"]] for group in groups]
    return {
        **{f"optimizer {name}": value for name, value in options.items()},
        "learning_rate": rate,
        "optimizer": type(optimizer).__name__,
        "parameters": _hashed(repr(shapes)),
    }
