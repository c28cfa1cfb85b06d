"""Where the state of a run is kept: the checkpoint, the journal, and what must not change between two starts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import RefusedError, StorageError
from tacit.labels.tally import Tally
from tacit.progress import Trace
from tacit.split.checkpoint import Checkpoint, Checkpoints
from tacit.split.correspondence import Correspondence
from tacit.split.journal import Journal

BEGUN = "begun"
"""The file in a run's folder that says that the run has begun."""


@dataclass
class Durable:
    """Where a run's state is kept."""

    journal: Journal  # what was said
    checkpoints: Checkpoints  # what was learned
    # what must be the same at every start, by name: versions, contract, data, settings, as digests or words
    guard: Mapping[str, str]
    every: int = 200  # turns between two checkpoints
    trace: Trace = field(default=lambda point: None)  # told of each point that a turn passes
    # of what was sent, apart from all this; None where nothing that leaves is worth it, as in trials
    tally: Tally | None = None

    @property
    def digest(self) -> bytes:
        """Of the guard: settings that differ have unrelated noise."""
        return hashlib.sha256(repr(sorted(self.guard.items())).encode()).digest()

    @property
    def _mark(self) -> Path:
        """Beside the checkpoints: that the run has begun, even when all else is gone."""
        return self.checkpoints.folder.parent / BEGUN

    @property
    def begun(self) -> bool:
        """Whether the run was ever opened."""
        return self._mark.exists()

    def open(self, fresh: Callable[[], Mapping[str, Any]]) -> Checkpoint:
        """The newest good checkpoint; the first one is made of `fresh` where there never was one."""
        if self.tally is not None:
            self.tally.begin(begun=self.begun)
        newest = self.checkpoints.newest()
        if newest is None:
            if self.checkpoints.damaged or self.begun or any(True for _ in self.journal.records()):
                raise StorageError(
                    f"{self.checkpoints.folder}: no good checkpoint is left, but the run has begun, and what was "
                    "answered may not be answered again: bring the folder back, or start a new run under another name"
                )
            self.checkpoints.write(0, fresh(), {"guard": dict(self.guard)})
            newest = self.checkpoints.newest()
            assert newest is not None
        self._mark.touch()
        self._check(newest.meta["guard"])
        turn = newest.turn or 0  # the journal has the turn before it or, where an older checkpoint serves, its own
        if turn and not any(record.turn <= turn for _, record in self.journal.records(turn - 1)):
            raise StorageError(
                f"{self.journal.folder}: the journal does not know what was said around turn {turn}, where the "
                "checkpoint stands: it is lost or an older copy, and what was answered may not be answered again. "
                "Bring it back, or start a new run under another name"
            )
        return newest

    def keep(self, turn: int, state: Mapping[str, Any], exchanges: Sequence[Correspondence]) -> None:
        """Write a checkpoint, and let go of what only an older one than the one before needs."""
        before = max((old for old in self.checkpoints.turns() if old < turn), default=0)
        self.journal.sync()
        self.checkpoints.write(turn, state, {"guard": dict(self.guard)})
        if self.tally is not None:
            self.tally.sync()
        self.trace("checkpoint written")
        self.journal.rotate(turn)
        self.journal.drop_before(before)
        for exchange in exchanges:
            exchange.forget_before(before)
        self.trace("journal rotated")

    def _check(self, then: Mapping[str, str]) -> None:
        for name in sorted(set(then) | set(self.guard)):
            was, now = then.get(name, "nothing"), self.guard.get(name, "nothing")
            if was != now:
                raise RefusedError(
                    name,
                    f"{name} has changed since this run began ({was[:60]} then, {now[:60]} now): put it back to go on, "
                    "or start a new run under another name",
                )
