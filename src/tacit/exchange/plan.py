"""What one exchange would send of a party's labels or columns, and what that costs: see `tacit.company.plans`."""

from __future__ import annotations

import json
from typing import Any

from tacit.company.check import columns_of
from tacit.company.folder import Folder
from tacit.company.plans import Ahead, Plan, of_young, rows_ahead
from tacit.company.split_history import told_beside
from tacit.config import FEATURE_LIMIT
from tacit.errors import UsageError
from tacit.exchange.common import check_at_home
from tacit.exchange.feature_party import before
from tacit.exchange.label_party import Answers, mechanism_of

_LISTED = 8  # columns that are named


def plan(folder: Folder) -> Plan:
    """What the party would send in the contract's run; settings that don't fit are an error."""
    check_at_home(folder)
    label = folder.config.role == "label"
    if label:
        mechanism_of(folder, folder.one_shot)  # limits that do not fit each other are named before anything is read
    ahead = rows_ahead(folder)
    return _labels(folder, ahead) if label else _columns(folder, ahead)


def _labels(folder: Folder, ahead: Ahead) -> Plan:
    contract, config, mechanism = folder.one_shot, folder.config, mechanism_of(folder, folder.one_shot)
    to = ", ".join(contract.feature_parties)
    if mechanism is None:
        return Plan((f"No label is sent to {to}.",), figures={"labels": 0})
    one = "" if contract.positive is None else f" (1 is {contract.positive!r})"
    sent = [
        f"The label {str(folder.table.label)!r}{one} of {contract.trained} of {ahead.words} goes to {to}, once, "
        "randomized.",
        f"Of two of them that differ, whoever gets that picks the right one at most {mechanism.auc:.1%} of the time, "
        f"and the odds of a label change by at most a factor of {mechanism.odds:.4g}: a bound, whatever else is known.",
        "Labels that have left are frozen for good: one that is corrected later is never sent.",
        *of_young(folder, ahead),
    ]
    why = getattr(mechanism, "why", "")
    figures: dict[str, Any] = {"auc": mechanism.auc, "odds": mechanism.odds, "why": why}
    if ahead.aligned is None:
        return Plan(tuple(sent), figures=figures)
    price = Answers(folder, ahead.aligned, mechanism).price()
    again = price.rows - price.new - price.raised
    raised = f", {price.raised:,} have left under a lower limit" if price.raised else ""
    sent.append(
        f"{price.new:,} of these labels are new{raised}; {again:,} leave again as they are, which costs nothing."
    )
    budget = "no budget" if config.spendable is None else f"budget {config.spendable:g}"
    sent.append(
        f"All that will have left comes to {price.auc:.4g} ({budget}) and odds {price.odds:.4g} (budget "
        f"{config.odds_budget:g}) for whom most is told about."
    )
    beside = told_beside(folder, None)
    warnings = [f"No bound is stated for these labels: {beside}."] if beside else []
    if price.unpaid:
        warnings.append(
            f"There is no budget left for {price.unpaid:,} rows: they leave as what was paid for before, or as if they "
            "had no label. The partner can't see that; that you stop over it, it can."
        )
    figures |= {"rows": price.rows, "new": price.new, "raised": price.raised, "unpaid": price.unpaid}
    return Plan(tuple(sent), tuple(warnings), figures | {"total_auc": price.auc, "total_odds": price.odds})


def _columns(folder: Folder, ahead: Ahead) -> Plan:
    contract, config = folder.one_shot, folder.config
    withheld = config.learn.withheld
    columns = [name for name in columns_of(folder).names if name not in withheld]
    if not columns:
        raise UsageError("[learn] withheld: no column is left to learn from: withhold fewer")
    listed = ", ".join(columns[:_LISTED]) + (f" and {len(columns) - _LISTED} more" if columns[_LISTED:] else "")
    sent = [
        f"Of each of {ahead.words} {contract.label_party} gets {contract.exchange.form}, once, learnt from {listed}.",
    ]
    if withheld:
        sent.append(f"Nothing is learnt from {', '.join(withheld)}; decoders look for them all the same.")
    warnings = []
    if config.limit is None:
        warnings.append(
            "No limit is set: it is attacked before it leaves, and leaves whatever was recovered. Write "
            f"limit = {FEATURE_LIMIT}, the most that may be recovered of any column, or another."
        )
    else:
        sent.append(
            f"Decoders attack it first: where they recover more than {config.limit:.0%} of any column, nothing is sent."
        )
    figures: dict[str, Any] = {"columns": columns, "withheld": list(withheld), "limit": config.limit}
    if ahead.aligned is not None:
        others = len(before(folder, ahead.aligned).embeddings)
        figures |= {"rows": ahead.aligned.count, "before": others}
        if others:
            sent.append(f"{others} such embeddings of some of these rows have left before: all are attacked together.")
    return Plan(tuple(sent), tuple(warnings), json.loads(json.dumps(figures)))
