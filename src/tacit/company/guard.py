"""What stands between a party's training and its messages: what it sends is recorded, its limit held, its ledger kept.

Each side has its own, in `label_run` and `feature_run`, with the two methods that a session calls: `before` anything is
done to a message, and when it is `leaving`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any

from tacit.company.alignment import Aligned
from tacit.company.folder import Folder
from tacit.company.gate import Gate, decisions
from tacit.company.live import Look, Watch
from tacit.company.run_ledger import RunLedger
from tacit.cut.plan import Plan, Task
from tacit.cut.session import Turned
from tacit.errors import LimitError, TensorError, UsageError
from tacit.wire.tally import Tally

__all__ = ["Guard"]


class Guard(ABC):
    """What both sides share."""

    def __init__(self, folder: Folder, rows: Aligned, plan: Plan, tally: Tally, look: Look) -> None:
        config, contract = folder.config, folder.contract
        where = folder.run_folder(contract)
        live = config.live.within(plan.steps * plan.epochs)
        secret = folder.run_secret(hashlib.sha256(f"watched {contract.digest} {rows.id}".encode()).digest())
        self._plan = plan
        # records what is sent, and looks at some of it
        self.watch = Watch(where, contract, plan, config.record, live, secret, look)
        self.books = RunLedger(folder, contract, rows, plan, tally)  # the ledger, in this run
        held = config.limit is not None or self.books.budget is not None
        try:
            self._observer = self._measuring(folder, held)
        except BaseException:
            self.books.close()
            raise
        # holds the limit; None where there is neither a limit nor a budget, and never was
        self.gate = self._observer if held or decisions(where) else None

    def _measuring(self, folder: Folder, held: bool) -> Gate | None:
        """What measures and decides; None where there is nothing to measure, and no limit that would ask for it."""
        config, where, recorder = folder.config, folder.run_folder(folder.contract), self.watch.recorder
        if recorder is None or not recorder.follow or not config.record.last:
            if config.limit is not None:
                raise UsageError(
                    "limit is set, but what it is measured on is not kept: set [record] last = 24 and follow = 8192"
                )
            if self.books.budget is None and not decisions(where):
                return None
        return self._gate(
            folder=where, limit=config.limit, on_limit=config.on_limit, plan=self._plan, recorder=recorder, held=held
        )

    @abstractmethod
    def _gate(self, **settings: Any) -> Gate | None:
        """The gate of this side, if it has something to measure."""

    @property
    def stopped(self) -> bool:
        """Whether the limit has ended the run for good."""
        return self.gate is not None and self.gate.stopped

    def check(self) -> None:
        """A `LimitError` where the limit has ended the run for good."""
        if self.gate is not None:
            self.gate.check()

    def resume(self, turn: int, step: int) -> None:
        """Go on from the checkpoint of a turn, before which so many steps were trained."""
        self.watch.resume(turn, step)
        self._check_recorded()
        self.books.resume(turn)
        if self.gate is not None:
            self.gate.resume(turn)

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

    def turned(self, turned: Turned) -> None:
        """A turn is over: record it, look at it, and bring to the disk what belongs to a checkpoint."""
        self.watch.step(turned)
        task = turned.task
        if (task.turn + 1) % self._plan.epoch_turns == 0:
            self._look_closely(task)
        if turned.kept:
            self.watch.keep(task.turn + 1)
            self.books.keep()

    def _look_closely(self, task: Task) -> None:
        """Where it is time, a matter of the steps that lie behind alone, try the attacks that take longer."""
        steps, apart = self._plan.steps, self.watch.live.fitted
        due = self.watch.live.every and (task.epoch + 1) * steps // apart > task.epoch * steps // apart
        if not due or self._observer is None or self.watch.recorder is None or not self.watch.recorder.follow:
            return
        try:
            found = self._observer.seen(task.turn + 1)
        except (TensorError, UsageError):  # as where inputs are codes, of which no variance can be read
            return
        self.watch.note(task, {one.attack: one.value for one in found})

    def close(self) -> None:
        """Let another process use the ledger."""
        self.books.close()
