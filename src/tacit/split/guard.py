"""What stands between a party's training and its messages: what it sends is recorded, and its limit held.

Each side has its own `Guard`, in `label_run` and `feature_run`, with the two methods that a session calls: `before`
anything is done to a message, and when it is `leaving`.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from tacit.align.batches import Plan, Task, shuffled
from tacit.audit.live import look_at_embedding, look_at_gradient
from tacit.company.aligned import Aligned
from tacit.company.folder import Folder
from tacit.config import Contract, Live, Record
from tacit.disk import append_line, read_lines, write
from tacit.errors import LimitError, TensorError, UsageError
from tacit.report.run_files import LIVE
from tacit.split.evenly import alternating, evenly
from tacit.split.feature_party import FeatureParty
from tacit.split.gate import Gate, decisions
from tacit.split.label_party import LabelParty
from tacit.split.record import RecordedRun
from tacit.split.session import Turned

Look = Callable[[Tensor, Mapping[str, Any], int], tuple[dict[str, float], dict[str, Any]]]
"""Attacks one's own message: its rows, the step's figures and its number; what was reached, and what else is told."""

_TRANSCRIPT = "transcript"
_FOLLOWED_BYTES = 64 * 2**20


class Guard(ABC):
    """What both sides share."""

    def __init__(self, folder: Folder, rows: Aligned, plan: Plan, entering: Callable[[], None], look: Look) -> None:
        config, contract = folder.config, folder.contract
        where = folder.run_folder(contract)
        live = config.live.within(plan.steps * plan.epochs)
        secret = folder.run_secret(hashlib.sha256(f"watched {contract.digest} {rows.id}".encode()).digest())
        self._plan = plan
        self._entering: Callable[[], None] | None = entering  # puts on record that something of this run leaves
        # records what is sent, and looks at some of it
        self.watch = Watch(where, contract, plan, config.record, live, secret, look)
        self._observer = self._measuring(folder)
        # holds the limit; None where there is none, and never was
        self.gate = self._observer if config.limit is not None or decisions(where) else None

    def _measuring(self, folder: Folder) -> Gate | None:
        """What measures and decides; None where there is nothing to measure, and no limit that would ask for it."""
        config, where, recorder = folder.config, folder.run_folder(folder.contract), self.watch.recorder
        if recorder is None or not recorder.follow or not config.record.last:
            if config.limit is not None:
                raise UsageError(
                    "limit is set, but what it is measured on is not kept: set [record] last = 24 and follow = 8192"
                )
            if not decisions(where):
                return None
        return self._gate(
            folder=where, limit=config.limit, on_limit=config.on_limit, plan=self._plan, recorder=recorder
        )

    @abstractmethod
    def _gate(self, **settings: Any) -> Gate | None:
        """The gate of this side, if it has something to measure."""

    @property
    def decision(self) -> str:
        """The gate's last one; "" where there is none."""
        return "" if self.gate is None else self.gate.decision

    def check(self) -> None:
        """A `LimitError` where the limit has ended the run for good."""
        if self.gate is not None:
            self.gate.check()

    def resume(self, turn: int, step: int) -> None:
        """Go on from the checkpoint of a turn, before which so many steps were trained."""
        self.watch.resume(turn, step)
        recorder, held = self.watch.recorder, self.gate is not None and self.gate.limit is not None
        if held and recorder is not None and recorder.unrecorded:  # visits add up over all that was sent before
            raise LimitError(
                f"{recorder.folder}: {recorder.unrecorded} of {recorder.steps} steps that were sent are not recorded, "
                "or damaged, and what all visits of an example add up to can't be told without them: bring the folder "
                "back, or remove limit from party.toml to go on without it"
            )

    def enter(self) -> None:
        """Something is about to leave: from now on the party never forgets that these rows went out in this run."""
        if self._entering is not None:
            self._entering()
            self._entering = None

    def turned(self, turned: Turned) -> None:
        """A turn is over: record it, look at it, and bring to the disk what belongs to a checkpoint."""
        self.watch.step(turned)
        task = turned.task
        if (task.turn + 1) % self._plan.epoch_turns == 0:
            self._look_closely(task)
        if turned.kept:
            self.watch.keep(task.turn + 1)

    def _look_closely(self, task: Task) -> None:
        """Where it is time, a matter of the steps that lie behind alone, try the attacks that take longer."""
        steps, apart = self._plan.steps, self.watch.live.fitted
        due = self.watch.live.every and (task.epoch + 1) * steps // apart > task.epoch * steps // apart
        if not due or self._observer is None or self.watch.recorder is None or not self.watch.recorder.follow:
            return
        try:
            found = self._observer.looked(task.turn + 1)
        except (TensorError, UsageError):  # as where inputs are codes, of which no variance can be read
            return
        self.watch.note(task, {one.attack: one.value for one in found})


# --- what is sent, recorded and looked at ----------------------------------------------------------------------------


class Watch:
    """Records what a party sends, and attacks some of it: a line of `live.jsonl` for each look, which stays here.

    The secret says which examples are followed, which batches kept and which looked at: a peer that knew it could
    behave just there. A run that is killed writes the lines after its checkpoint again, bit for bit.
    """

    def __init__(
        self, folder: Path, contract: Contract, plan: Plan, record: Record, live: Live, secret: bytes, look: Look
    ) -> None:
        self.live = live
        self._look = look
        self.seconds = 0.0  # that all looks have taken since the party was started
        self._path = folder / LIVE
        self._plan, self._last, self._key = plan, record.last, secret.hex()
        self._of_epoch: tuple[int, set[int]] = -1, set()  # an epoch, and its steps that are kept
        width = sum(math.prod(shape) for shape in contract.cut.widths.values())
        most = _FOLLOWED_BYTES // (3 * 4 * width * contract.epochs)  # of embedding, sent and clean gradient
        follow = min(record.follow, most, plan.train_count)
        self.followed = shuffled(plan.train_count, 0, follow, key=f"{self._key} followed").sort().values
        self.recorder: RecordedRun | None = None  # of the run, on disk; None where nothing is kept
        if record.last + follow:
            self.recorder = RecordedRun(folder / _TRANSCRIPT, last=record.last, follow=follow, chosen=self.followed)

    def resume(self, turn: int, step: int) -> None:
        """Go on from the checkpoint of a turn, before which so many steps were trained."""
        if self.recorder is not None:
            self.recorder.resume(turn, step)
        if self._path.exists():
            text = "".join(json.dumps(one) + "\n" for one in looks(self._path) if one["turn"] < turn)
            write(self._path, text.encode(), durable=False)

    def keep(self, turn: int) -> None:
        """Bring to the disk what belongs to a checkpoint."""
        if self.recorder is not None:
            self.recorder.keep(turn)

    def step(self, turned: Turned) -> None:
        """A turn is over: record it and, now and then, attack it."""
        task, seen = turned.task, turned.figures
        if task.what != "train":
            return
        step = self._step(task)
        if self.recorder is not None:
            gradient = seen["sent"] if "sent" in seen else seen["gradient"]  # as it went out, or as it came
            self.recorder.write(
                step=step, rows=task.rows, embedding=seen["embedding"], gradient=gradient,
                clean=seen.get("clean", gradient), own_embedding=seen.get("own_embedding"),
                keep=self._keeps(step),
            )  # fmt: skip
        if self.live.every and step % self.live.every == self._looked_at(step // self.live.every):
            started = time.perf_counter()
            found, beside = self._look(task.rows, seen, step)
            self.seconds += time.perf_counter() - started
            self.note(task, found, beside)

    def _step(self, task: Task) -> int:
        """The number of the training step of a task; after an epoch's last one, of that."""
        return task.epoch * self._plan.steps + min(task.turn % self._plan.epoch_turns, self._plan.steps - 1)

    def _keeps(self, step: int) -> bool:
        """Whether a batch is one of those that are kept whole: of every epoch so many, wherever in it."""
        epoch, place = divmod(step, self._plan.steps)
        if self._of_epoch[0] != epoch:
            kept = shuffled(self._plan.steps, 0, min(self._last, self._plan.steps), key=f"{self._key} kept {epoch}")
            self._of_epoch = epoch, set(kept.tolist())
        return place in self._of_epoch[1]

    def _looked_at(self, stretch: int) -> int:
        return int(shuffled(self.live.every, 0, 1, key=f"{self._key} looked {stretch}")[0])

    def note(self, task: Task, found: dict[str, float], beside: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write down what attacks reached after a step, and what else there was to see."""
        if not found and not beside:
            return
        line = {"step": self._step(task), "turn": task.turn, "epoch": task.epoch, "found": found, **beside}
        append_line(self._path, line)


def look_at_gradients(
    party: LabelParty, attacks: Sequence[str], rows: Tensor, seen: Mapping[str, Any], step: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """A label party's look: attacks on its labels, and its loss."""
    beside = {"figures": {"loss": float(seen["loss"])}}
    if party.classes > 2:
        return {}, beside
    labels = party.labels[rows].to(seen["sent"].device)

    def looked_at(labels: Tensor) -> dict[str, float]:
        return look_at_gradient(seen["sent"], seen["clean"], labels, seen["embedding"], seed=step, attacks=attacks)

    return evenly(lambda: looked_at(alternating(labels)), lambda: looked_at(labels)), beside


def look_at_embeddings(
    party: FeatureParty, rows: Tensor, seen: Mapping[str, Any], step: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """A feature party's look: attacks on its columns."""
    try:
        return look_at_embedding(seen["embedding"], party.hidden(rows), seed=step), {}
    except (TensorError, UsageError):  # as where inputs are codes, of which no variance can be read
        return {}, {}


def looks(path: Path) -> list[dict[str, Any]]:
    """All looks of a run, in their order; a line that a crash cut short is left out."""
    return [said for said in read_lines(path) if {"step", "turn", "epoch", "found"} <= set(said)]
