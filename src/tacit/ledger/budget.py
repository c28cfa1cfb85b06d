"""A budget for every example over all runs: how much of it former runs have used, and what is left for the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.errors import UsageError
from tacit.ledger.keys import Keys
from tacit.ledger.ledger import Ledger
from tacit.ledger.run import Run
from tacit.ledger.summary import auc_of, sum_kl_of

_LEAST = 1e-9  # a sumKL below this takes more noise than numbers can hold


@dataclass(frozen=True)
class Remaining:
    """What a run may still use."""

    leak_auc: float  # that all visits of this run together may reach, for its most exposed example
    spent: float  # the leak AUC that former runs have reached for that example
    budget: float  # for all runs together


def remaining(ledger: Ledger, run: Run, keys: Keys | None, budget: float) -> Remaining:
    """What is left of the budget for this run; its own answers do not count, so a resumed run gets the same answer.

    A budget is a leak AUC A in the worst case over all visits of any example in all runs, which allows a sumKL of
    2 Phi^-1(A)^2 in all. Runs are independent trainings, so what each leaves adds up. A former run whose part is not
    known has used up everything that it visited. Rows of which nothing is left are a `UsageError` that says how many.
    """
    if not 0.5 < budget <= 1.0:
        raise UsageError(f"budget = {budget!r}: it is a leak AUC above 0.5, a coin flip, and at most 1")
    allowed = sum_kl_of(budget)
    if math.isinf(allowed):
        return Remaining(1.0, auc_of(float(ledger.spent_by(keys, but=run).max(initial=0.0))), budget)
    used = ledger.spent_by(keys, but=run)
    gone = int(np.count_nonzero(used > allowed - _LEAST))
    if gone:
        raise UsageError(
            f"budget = {budget}: former runs have used it up for {gone} of {len(used)} rows of the run {run.name!r} "
            "(`tacit ledger` shows them; one whose protection has no bound for a row counts as all of it): leave these "
            "rows out, or set a larger budget in party.toml"
        )
    most = float(used.max(initial=0.0))
    return Remaining(auc_of(allowed - most), auc_of(most), budget)
