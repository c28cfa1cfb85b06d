"""Which split runs have told something about a label column: what `matched` plans for, and what no bound covers.

Each is in the party's file of facts for good. How many there are is counted apart from the folder, so that an older
copy of it, which has forgotten one, is known as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.company.aligned import facts_of
from tacit.company.facts import Facts, SplitRun
from tacit.company.folder import Folder
from tacit.company.run_record import vouched
from tacit.config import Contract
from tacit.contracts import Protection
from tacit.errors import UsageError
from tacit.protect.facts import bound_for
from tacit.protect.gradient import protection
from tacit.wire.exactly_once import SPLIT_RUNS, Restored, Tally


@contextmanager
def counted_facts(folder: Folder, restored: Restored | None) -> Iterator[Facts]:
    """The party's file of facts, which has forgotten no split run."""
    facts = facts_of(folder)
    tally = Tally(folder.tally_path_of("split-runs"), restored, SPLIT_RUNS)
    with tally.around(lambda: len(facts.split_runs())):
        yield facts


def told_beside(folder: Folder, restored: Restored | None) -> str:
    """What has told the labels of the contract's run beside its exchange, or may have; empty for nothing.

    An older version counted split runs in `ledger/`: where that is, somebody must say that none had these rows.
    """
    with counted_facts(folder, restored) as facts:
        found = [
            f"the same labels went out in the split run {one.run!r} under {one.protection}, and of that and exchanges "
            "together no bound is known"
            for one in _about(facts, folder)
        ]
    if (folder.path / "ledger" / "log").exists() and not vouched(folder.run_folder(folder.terms)):
        found.append(
            "they may have gone out in split runs of an older version of Tacit, whose ledger/ lies in the party's "
            "folder (who knows that none had these rows says so with `tacit train --no-split-run NAME --reason WHY`)"
        )
    return "; ".join(found)


def _about(facts: Facts, folder: Folder) -> list[SplitRun]:
    """Those about this party's label column; one of which the column is not known counts for every column."""
    label = label_of(folder)
    return [one for one in facts.split_runs() if label is None or one.label in (None, label)]


def label_of(folder: Folder) -> str | None:
    """The column of labels; None where the party has none, or trains from Python without one."""
    return None if folder.config.data is None else folder.config.data.label


def check_promise(folder: Folder, protect: Protection | None = None) -> None:
    """Refuse, of a label party, a protection that can't promise what is to be kept over all split runs of its labels.

    A matter of settings and of past runs alone: never of which rows are aligned. The protection is that of party.toml
    where none is given.
    """
    gradient = folder.config.protect.gradient
    if folder.config.role != "label" or not isinstance(folder.terms, Contract) or (protect or gradient) is None:
        return
    contract = folder.contract
    if protect is None:
        assert gradient is not None
        protect = protection(gradient.name, **gradient.options(contract.epochs))
    _check_budget(folder.config.spendable, protect, contract.epochs)
    _check_visits(folder, contract, protect)


def _check_budget(budget: float | None, protect: Protection, epochs: int) -> None:
    bound = bound_for(protect, epochs)
    if budget is not None and bound is None:
        name = getattr(protect, "name", type(protect).__name__)
        raise UsageError(
            f"a budget of {budget:g} is to be kept, but {name} has no bound for a row that could be counted: "
            "protect with matched, or write budget = 1 in party.toml to train without a budget"
        )
    if budget is not None and bound is not None and bound > budget:
        raise UsageError(
            f"a budget of {budget:g} is to be kept, and the protection promises {bound:g} of any row: protect more, or "
            "set a larger budget in party.toml"
        )


def _check_visits(folder: Folder, contract: Contract, protect: Protection) -> None:
    """Whichever rows were aligned: each run counts as one over all rows, and one that goes on counts once.

    One that goes on under another contract than it began with is refused, by its own records.
    """
    visits = getattr(protect, "visits", None)
    if visits is None:
        return
    begun = {contract.run} if (folder.run_folder(contract) / "begun").exists() else set()
    found = _about(facts_of(folder), folder)
    others = [one for one in found if one.contract != contract.digest and one.run not in begun]
    planned = contract.epochs + sum(one.epochs for one in others)
    if planned > visits:
        names = "".join(f", {one.epochs} in {one.run!r}" for one in others)
        raise UsageError(
            f"the promise holds over {visits} visits of a row, and all split runs of these labels together have "
            f"{planned} epochs ({contract.epochs} in {contract.run!r}{names}): write visits = {planned} beside the "
            "strength under [protect], or more where other runs are to follow"
        )
