"""The party's ledger in a run: every message is entered before it leaves."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tacit.align.batches import digest
from tacit.company.alignment import Aligned
from tacit.company.folder import Folder
from tacit.config import Contract
from tacit.contracts import Event, Protection
from tacit.cut.plan import Plan, Task
from tacit.ledger.budget import remaining
from tacit.ledger.keys import Keys, keys_of, load_keys
from tacit.ledger.ledger import Ledger
from tacit.ledger.run import Run
from tacit.ledger.worst_case import auc_of
from tacit.wire.tally import Tally

__all__ = ["RunLedger"]


class RunLedger:
    """A party's ledger, open for one run.

    Attributes:
        former: the sumKL that former runs have left, at most, of the most exposed row of this one; infinite where one
            of them has no bound for a row.

    Args:
        folder: of the party.
        contract: what was agreed on.
        rows: that are aligned.
        plan: of the training.
        tally: counts the ledger's records apart from the folder, with which an older ledger would come back.
    """

    def __init__(self, folder: Folder, contract: Contract, rows: Aligned, plan: Plan, tally: Tally) -> None:
        self.budget = folder.config.spendable
        self.plan = plan
        self._ledger, self._tally = Ledger(folder.path / "ledger"), tally
        tally.begin(begun=self._ledger.records > 0)
        tally.check(self._ledger.records, 0)  # what is not yet on the disk for sure is counted with a checkpoint
        self._run = Run(
            contract.run, contract.digest, rows.id, folder.config.role, plan.count, plan.batch_size, plan.epochs,
            plan.seed, plan.test_share, plan.test_rows,
        )  # fmt: skip
        keys = self._keys(folder, rows)
        if self.budget is not None:
            remaining(self._ledger, self._run, keys, self.budget)
        self.former = float(self._ledger.spent_by(keys, but=self._run).max(initial=0.0))
        self._entries = self._ledger.begin(self._run, keys, budget=self.budget)

    def _keys(self, folder: Folder, rows: Aligned) -> Keys | None:
        """Keys of the aligned rows: those that the run was declared with, or made of the party's ids."""
        for declared in self._ledger.runs():
            if declared.run == self._run and declared.keys:
                return load_keys(self._ledger.folder, declared.keys)
        if folder.config.data is None:
            return None
        ids = folder.config.data.ids
        return keys_of(rows.table(folder.data, ids).select(pl.col(*ids)), self._ledger.secret)

    def resume(self, turn: int) -> None:
        """Go on from the checkpoint of a turn; every message before it must be in the ledger."""
        self._entries.resume(turn)

    def keep(self) -> None:
        """Bring to the disk what belongs to a checkpoint, and count what is there."""
        self._entries.sync()
        self._tally.reach(self._ledger.records)
        self._tally.sync()

    def entered(self, step: int) -> bool:
        """Whether a training step that is about to be sent is in the ledger already, from before a kill."""
        return step < self._entries.answered("train")

    def enter(self, task: Task, step: int, event: Event, figures: Mapping[str, float] | None = None) -> None:
        """A message about the rows of a task is about to leave.

        Args:
            task: that it belongs to.
            step: its number among the training steps, or among the evaluations.
            event: what was done to it.
            figures: of its protection.
        """
        self._entries.answer(task.what, step, task.turn, digest(task.rows), event, figures)

    def tell(self, epoch: int) -> None:
        """Figures of an epoch are about to be told, over the labels of all rows for testing."""
        self._entries.tell(epoch, len(self.plan.tested()))

    def foreseen(self, epoch: int, protect: Protection) -> float | None:
        """The worst case of the most exposed row at the end of the run, as a leak AUC: former runs, this one, the rest.

        Args:
            epoch: whose steps are yet to be sent, all or some of them.
            protect: what will be done to them, and to those of all later epochs.

        Returns:
            None where the protection has no bound for a row.
        """
        row_kl = getattr(protect, "row_kl", None)
        if row_kl is None:
            return None
        sent = self._entries.row_kl()
        to_come = [max(sent.get(one, 0.0), float(row_kl)) for one in range(epoch, self.plan.epochs)]
        return auc_of(self.former + sum(sent.get(one, 0.0) for one in range(epoch)) + sum(to_come))

    def close(self) -> None:
        """Let another process add to the ledger."""
        self._ledger.close()
