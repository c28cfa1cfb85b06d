"""The party's ledger in a run: every message is entered before it leaves."""

from __future__ import annotations

import polars as pl

from tacit.align.batches import digest
from tacit.config import Contract
from tacit.contracts import Event, Protected, Protection
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan, Task
from tacit.errors import UsageError
from tacit.ledger.budget import remaining
from tacit.ledger.keys import Keys, keys_of, load_keys
from tacit.ledger.ledger import Ledger
from tacit.ledger.run import Run
from tacit.ledger.worst_case import auc_of
from tacit.party.alignment import Aligned
from tacit.party.folder import Folder
from tacit.wire.tally import Tally

__all__ = ["Bookkeeping"]

_FIGURES = ("power", "row_kl", "untouched_rows")  # of a protection's report, that the ledger keeps


class Bookkeeping:
    """A party's ledger, open for one run.

    Attributes:
        former: the sumKL that former runs have left, at most, of the most exposed row of this one; infinite where one
            of them has no bound for a row.

    Args:
        folder: of the party.
        contract: what was agreed on.
        rows: that are aligned.
        plan: of the training.
        party: that sends.
        tally: counts the ledger's records apart from the folder, with which an older ledger would come back.
    """

    def __init__(
        self,
        folder: Folder,
        contract: Contract,
        rows: Aligned,
        plan: Plan,
        party: LabelParty | FeatureParty,
        tally: Tally,
    ) -> None:
        self.party = party
        self.budget = folder.config.spendable
        if self.budget is not None and isinstance(party, LabelParty):
            _check_countable(party.protect, self.budget)
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

    def entered(self) -> bool:
        """Whether the training step that is about to be sent is in the ledger already, from before a kill."""
        return self.party.steps < self._entries.answered("train")

    def answer(self, task: Task, sent: Protected) -> None:
        """A label party is about to send a gradient."""
        figures = {name: float(sent.report[name].sum()) for name in _FIGURES if name in sent.report}
        self._entries.answer("train", self.party.steps, task.turn, digest(task.rows), sent.event, figures)

    def send(self, task: Task, kind: str) -> None:
        """A feature party is about to send embeddings."""
        assert isinstance(self.party, FeatureParty)
        events = tuple(one.event for one in self.party.shield.protect)
        event = Event("chain", parts=events) if len(events) > 1 else events[0] if events else Event("none")
        step = self.party.steps if kind == "train" else self.party.evaluations
        self._entries.answer(kind, step, task.turn, digest(task.rows), event)

    def tell(self, epoch: int, labels: int) -> None:
        """A label party is about to tell figures of an epoch, over so many labels."""
        self._entries.tell(epoch, labels)

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


def _check_countable(protect: Protection, budget: float) -> None:
    """Refuse a budget where nothing bounds what a row costs."""
    if getattr(protect, "row_kl", None) is None:
        name = getattr(protect, "name", type(protect).__name__)
        raise UsageError(
            f"a budget of {budget:g} is to be kept, but {name} has no bound for a row that could be counted: protect "
            "with matched, or write budget = 1 in party.toml to train without a budget"
        )
