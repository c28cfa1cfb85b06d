"""A party's own eye on what it sends: every message is recorded, and some are attacked while training runs.

What is found stays here: in `live.jsonl` of the run's folder, a line for each look. A run that is killed forgets the
lines after its checkpoint and writes them again, bit for bit, when it repeats those steps.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from tacit.align.batches import shuffled
from tacit.audit.live import look_at_embedding, look_at_gradient
from tacit.audit.norms import norms_by_class
from tacit.company.run_files import LIVE
from tacit.config import Contract, Live, Record
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan, Task
from tacit.cut.session import Turned
from tacit.disk import append_line, read_lines, replaced
from tacit.errors import TensorError, UsageError
from tacit.wire.recorded import RecordedRun

__all__ = ["LIVE", "Look", "Watch", "look_at_embeddings", "look_at_gradients", "looks"]

Look = Callable[[Tensor, Mapping[str, Any], int], tuple[dict[str, float], dict[str, Any]]]
"""Attacks one's own message: its rows, the step's figures and its number; what was reached, and what else is told."""

_FOLLOWED_BYTES = 64 * 2**20  # that all visits of followed examples take, however many epochs there are


@dataclass
class Watch:
    """Records what a party sends, and looks at some of it."""

    folder: Path  # of the run
    contract: Contract  # for how wide messages are
    plan: Plan  # of the training
    record: Record  # what to keep
    live: Live  # how often to look
    # says which examples are followed, which batches kept and which looked at: a peer that knew it could behave there
    secret: bytes = field(repr=False)
    look: Look  # attacks a message
    seconds: float = 0.0  # that all looks have taken since the party was started
    recorder: RecordedRun | None = None  # of the run, on disk; None where nothing is kept

    def __post_init__(self) -> None:
        record, rows = self.record, self.plan.train_count
        self._path, self._key = self.folder / LIVE, self.secret.hex()
        self._of_epoch: tuple[int, set[int]] = -1, set()  # an epoch, and its steps that are kept
        width = sum(math.prod(shape) for shape in self.contract.cut.widths.values())
        most = _FOLLOWED_BYTES // (3 * 4 * width * self.contract.epochs)  # embedding, sent and clean gradient
        follow = min(record.follow, most, rows)
        self.followed = shuffled(rows, 0, follow, key=f"{self._key} followed").sort().values
        if record.last + follow:
            where = self.folder / "transcript"
            self.recorder = RecordedRun(where, last=record.last, follow=follow, chosen=self.followed)

    def resume(self, turn: int, step: int) -> None:
        """Go on from the checkpoint of a turn, before which so many steps were trained."""
        if self.recorder is not None:
            self.recorder.resume(turn, step)
        if self._path.exists():
            text = "".join(json.dumps(one) + "\n" for one in looks(self._path) if one["turn"] < turn)
            replaced(self._path, lambda file: file.write(text.encode()), durable=False)

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
                clean=seen.get("clean", gradient), layers={}, own_embedding=seen.get("own_embedding"),
                keep=self._keeps(step),
            )  # fmt: skip
        if self.live.every and step % self.live.every == self._looked_at(step // self.live.every):
            started = time.perf_counter()
            found, beside = self.look(task.rows, seen, step)
            self.seconds += time.perf_counter() - started
            self.note(task, found, beside)

    def _step(self, task: Task) -> int:
        """The number of the training step of a task; after an epoch's last one, of that."""
        return task.epoch * self.plan.steps + min(task.turn % self.plan.epoch_turns, self.plan.steps - 1)

    def _keeps(self, step: int) -> bool:
        """Whether a batch is one of those that are kept whole: of every epoch so many, wherever in it."""
        epoch, place = divmod(step, self.plan.steps)
        if self._of_epoch[0] != epoch:
            kept = shuffled(self.plan.steps, 0, min(self.record.last, self.plan.steps), key=f"{self._key} kept {epoch}")
            self._of_epoch = epoch, set(kept.tolist())
        return place in self._of_epoch[1]

    def _looked_at(self, stretch: int) -> int:
        """Which step of a stretch is looked at."""
        return int(shuffled(self.live.every, 0, 1, key=f"{self._key} looked {stretch}")[0])

    def note(self, task: Task, found: dict[str, float], beside: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write down what attacks reached after a step, and what else there was to see."""
        if not found and not beside:
            return
        line = {"step": self._step(task), "turn": task.turn, "epoch": task.epoch, "found": found, **beside}
        append_line(self._path, line)


def look_at_gradients(
    party: LabelParty, rows: Tensor, seen: Mapping[str, Any], step: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """A label party's look: attacks on its labels, its loss, and the norms of its gradients by class."""
    beside: dict[str, Any] = {"figures": {"loss": float(seen["loss"])}}
    if party.classes > 2:
        return {}, beside
    labels = party.labels[rows]
    norms = {which: norms_by_class(seen[which], labels) for which in ("sent", "clean")}
    beside["norms"] = {which: counted for which, counted in norms.items() if counted is not None}
    return look_at_gradient(seen["sent"], seen["clean"], labels, seen["embedding"], seed=step), beside


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
