"""Whether a protection can promise what is to be kept over all split runs of a label column."""

from __future__ import annotations

from tacit.company.aligned import facts_of
from tacit.company.folder import Folder
from tacit.company.split_history import split_runs_about
from tacit.config import Contract
from tacit.contracts import Protection
from tacit.errors import UsageError
from tacit.split.protect.facts import bound_for
from tacit.split.protect.gradient import protection


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
    found = split_runs_about(facts_of(folder), folder)
    others = [one for one in found if one.contract != contract.digest and one.run not in begun]
    planned = contract.epochs + sum(one.epochs for one in others)
    if planned > visits:
        names = "".join(f", {one.epochs} in {one.run!r}" for one in others)
        raise UsageError(
            f"the promise holds over {visits} visits of a row, and all split runs of these labels together have "
            f"{planned} epochs ({contract.epochs} in {contract.run!r}{names}): write visits = {planned} beside the "
            "strength under [protect], or more where other runs are to follow"
        )
