"""The party's ledger in a run: every message is entered before it leaves, and what epochs look like is measured."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor

from tacit.align.batches import digest
from tacit.config import Contract
from tacit.contracts import Event, Protected, Protection
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan, Task
from tacit.ledger.budget import remaining
from tacit.ledger.keys import Keys, keys_of, load_keys
from tacit.ledger.ledger import Ledger
from tacit.ledger.moments import WIDEST, Moments
from tacit.ledger.run import Run
from tacit.ledger.worst_case import auc_of, enough, forecast, rows_needed, sum_kl_of
from tacit.party._aligned import Aligned
from tacit.party.folder import Folder
from tacit.wire.checkpoint import load, save

__all__ = ["Bookkeeping"]

_SPARE = 1.25  # times the rows that are needed: batches differ in how many positives they have
_OFTEN = 64  # numbers of a row for each step that lies between two looks at moments, at least: wide rows take long
_OPEN = re.compile(r"moments-(\d{12})\.safetensors")
_FIGURES = ("power", "sum_kl", "untouched_rows")  # of a protection's report, that the ledger keeps


class Bookkeeping:
    """A party's ledger, open for one run.

    Args:
        folder: of the party.
        contract: what was agreed on.
        rows: that are aligned.
        plan: of the training.
        party: that sends.
    """

    def __init__(
        self,
        folder: Folder,
        contract: Contract,
        rows: Aligned,
        plan: Plan,
        party: LabelParty | FeatureParty,
    ) -> None:
        self.party = party
        self.budget = folder.config.budget
        self.plan = plan
        self._where = folder.run_folder(contract)
        self._ledger = Ledger(folder.path / "ledger")
        run = Run(
            contract.run, contract.digest, rows.id, folder.config.role, plan.count, plan.batch_size, plan.epochs,
            plan.seed, plan.test_share, plan.test_rows,
        )  # fmt: skip
        keys = self._keys(folder, rows, run)
        self.former = 0.0  # the sumKL that former runs have left of the most exposed example
        if self.budget is not None:
            self.former = sum_kl_of(remaining(self._ledger, run, keys, self.budget).spent)
        self._entries = self._ledger.begin(run, keys, budget=self.budget)
        width = sum(math.prod(shape) for shape in contract.cut.widths.values())
        measurable = isinstance(party, LabelParty) and party.classes == 2 and width <= WIDEST and not _clips(party)
        self._moments = Moments.empty(width) if measurable else None
        self._epoch = 0
        self._every = _cadence(party, plan, width) if isinstance(party, LabelParty) else 1

    def _keys(self, folder: Folder, rows: Aligned, run: Run) -> Keys | None:
        """Keys of the aligned rows: those that the run was declared with, or made of the party's ids."""
        for declared in self._ledger.runs():
            if declared.run == run and declared.keys:
                return load_keys(self._ledger.folder, declared.keys)
        if folder.config.data is None:
            return None
        ids = folder.config.data.ids
        return keys_of(rows.table(folder.data, ids).select(pl.col(*ids)), self._ledger.secret)

    def resume(self, turn: int) -> None:
        """Go on from the checkpoint of a turn; every message before it must be in the ledger."""
        self._entries.resume(turn)
        self._epoch = turn // self.plan.epoch_turns
        path = self._open(turn)
        if self._moments is not None and path.exists():
            kept = load(path).state
            if kept["epoch"] == self._epoch:
                self._moments = Moments(**kept["moments"])

    def keep(self, turn: int) -> None:
        """Bring to the disk what belongs to a checkpoint."""
        self._entries.sync()
        if self._moments is None:
            return
        tensors = {name: getattr(self._moments, name) for name in ("count", "total", "square", "weight", "noise")}
        save(self._open(turn), {"epoch": self._epoch, "moments": tensors})
        for old in sorted(path for path in self._where.iterdir() if _OPEN.fullmatch(path.name))[:-3]:
            old.unlink()

    def _open(self, turn: int) -> Path:
        """The moments of the epoch that is open at a checkpoint."""
        return self._where / f"moments-{turn:012d}.safetensors"

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

    def measure(self, task: Task, clean: Tensor, sent: Tensor, labels: Tensor) -> None:
        """Now and then, what a batch adds to the moments of its epoch."""
        if self._moments is not None and (self.party.steps - 1) % self._every == self._every // 2:
            self._moments = self._moments.add(clean, sent, labels)

    def turned(self, task: Task) -> None:
        """A turn is over; at the end of an epoch its moments are entered."""
        if self._moments is None or (task.turn + 1) % self.plan.epoch_turns:
            return
        self._entries.epoch(task.epoch, self._moments)
        self._moments, self._epoch = Moments.empty(self._moments.width), task.epoch + 1

    def foreseen(self, epoch: int, factor: float) -> float | None:
        """The worst case of the most exposed example at the end, as a leak AUC: former runs, this one, what is planned.

        Args:
            epoch: that is about to begin.
            factor: what the noise's power is multiplied by from now on.

        Returns:
            None where too few rows were measured to say.
        """
        epochs = self._entries.epochs()
        if not enough(epochs):
            return None
        return auc_of(self.former + forecast(epochs, self.plan.epochs - epoch, factor))

    def planned(self, protect: Protection, former: float) -> float | None:
        """The same before anything was measured, by what the protection plans for; None where it plans nothing.

        Args:
            protect: the protection.
            former: the sumKL that former runs have left.
        """
        links: tuple[Any, ...] = getattr(protect, "links", (protect,))
        plans = [link for link in links if getattr(link, "visits", 0) >= self.plan.epochs]
        return auc_of(former + min(float(link.sum_kl) for link in plans)) if plans else None

    def close(self) -> None:
        """Enter what was measured of an epoch that is not over, and let another process add to the ledger."""
        if self._moments is not None and min(self._moments.counts) > 0 and self._epoch < self.plan.epochs:
            self._entries.epoch(self._epoch, self._moments)
        self._ledger.close()


def _clips(party: LabelParty) -> bool:
    """Whether rows are clipped before noise is added: what is taken off a row is no noise, and can't be told apart."""
    links = getattr(party.protect, "links", (party.protect,))
    return any(getattr(link, "name", "") == "clip" for link in links)


def _cadence(party: LabelParty, plan: Plan, width: int) -> int:
    """Steps between two batches whose moments are taken, so that the worst case is known in the end."""
    least = 1 / (plan.train_count + 1)
    share = min(max(float(party.labels[: plan.train_count].double().mean()), least), 1 - least)
    wanted = _SPARE * rows_needed(width, share) / plan.batch_size  # batches
    return max(2, width // _OFTEN, int(plan.steps * plan.epochs / wanted))
