"""What a split training would send of a party: how many visits of which rows, under which protection."""

from __future__ import annotations

import math
from typing import Any

from tacit.align.batches import Plan as Turns
from tacit.company.aligned import facts_of
from tacit.company.folder import Folder
from tacit.company.plans import Ahead, Plan, of_young, rows_ahead
from tacit.company.split_history import split_runs_about
from tacit.split.promise import check_promise
from tacit.split.protect.facts import bound_for
from tacit.split.protect.gradient import protection


def plan(folder: Folder) -> Plan:
    """What the party would send in the contract's run; settings that don't fit are an error."""
    check_promise(folder)
    ahead = rows_ahead(folder)
    return _gradients(folder, ahead) if folder.config.role == "label" else _embeddings(folder, ahead)


def _visits(folder: Folder, ahead: Ahead) -> tuple[str, dict[str, Any]]:
    """How often which rows go out, in words and in figures."""
    contract, config = folder.contract, folder.config
    mine = contract.feature_parties if config.role == "label" else (config.name,)
    words = f"{contract.epochs} visits of {contract.trained} of {ahead.words}"
    if ahead.count is None:
        return words, {"visits": contract.epochs}
    tested = None if ahead.aligned is None else ahead.aligned.count - ahead.aligned.train
    turns = Turns(ahead.count, contract.batch_size, contract.epochs, 0, contract.test_share, tested)
    trained = turns.steps * contract.batch_size
    size = 4 * trained * contract.epochs * sum(math.prod(contract.cut.widths[name]) for name in mine)
    figures = {"visits": contract.epochs, "rows": ahead.count, "trained": trained, "tested": turns.test_count}
    return f"{words} ({size / 1e6:,.0f} MB)", figures | {"bytes": size}


def _gradients(folder: Folder, ahead: Ahead) -> Plan:
    contract, config, gradient = folder.contract, folder.config, folder.config.protect.gradient
    words, figures = _visits(folder, ahead)
    if gradient is None:  # it comes from Python, with the party
        return Plan((f"Gradients of {words} go to {', '.join(contract.feature_parties)}.",), figures=figures)
    bound = bound_for(protection(gradient.name, **gradient.options(contract.epochs)), contract.epochs)
    sent = [f"Gradients of {words} go to {', '.join(contract.feature_parties)}, under {gradient}."]
    sent += of_young(folder, ahead)
    warnings = []
    if bound is not None:
        sent.append(
            f"What the messages about a row add tells its label with an AUC of at most {bound:.4g} over all visits "
            "(0.5 is guessing), to a partner who follows the protocol."
        )
    elif gradient.name == "none":
        warnings.append("Gradients are sent bare: whoever gets them can read most labels.")
    else:
        warnings.append("This protection promises nothing of a single row; what attacks read is measured.")
    if config.limit is not None:
        sent.append(f"Training pauses before attacks read labels with an AUC of more than {config.limit:g}.")
    if contract.share.metrics:
        warnings.append(f"After each epoch {', '.join(contract.share.metrics)} is told, which no limit covers.")
    others = [one for one in split_runs_about(facts_of(folder), folder) if one.contract != contract.digest]
    if others:
        sent.append(
            f"These labels went out before in {', '.join(f'{one.run!r} ({one.epochs} epochs)' for one in others)}."
        )
    return Plan(tuple(sent), tuple(warnings), figures | {"protection": str(gradient), "bound": bound})


def _embeddings(folder: Folder, ahead: Ahead) -> Plan:
    contract, config = folder.contract, folder.config
    words, figures = _visits(folder, ahead)
    width = " x ".join(map(str, contract.cut.widths[config.name]))
    under = ", ".join(map(str, config.protect.embedding or ()))
    test = ", and after each epoch those of the test rows" if contract.test_share else ""
    what = f"Embeddings of {width} numbers, {words}{test}, go to {contract.label_party}"
    sent, warnings = [f"{what}, under {under}." if under else f"{what}."], []
    if not under:
        warnings.append(
            "Embeddings are sent bare: what decoders read of your columns is measured, and nothing is done."
        )
    if config.limit is None:
        warnings.append("No limit is set: training goes on whatever decoders recover of your columns.")
    else:
        sent.append(f"Training pauses before decoders recover more than {config.limit:.0%} of any column.")
    return Plan(tuple(sent), tuple(warnings), figures | {"protection": under, "limit": config.limit})
