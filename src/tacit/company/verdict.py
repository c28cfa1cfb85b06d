"""From what attacks reached to what a report says: pure functions, the same for a training's end and for an audit."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import torch

from tacit._version import __version__
from tacit.audit.attacks import describe
from tacit.audit.inputs import InputFinding
from tacit.audit.run import Finding
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.report.document import Leak, NotTested, Report, Subject
from tacit.report.measures import upper_end, without_messages

Side = Literal["features", "label"]
"""Who is looking: "features" reads gradients and is after labels, "label" reads embeddings and is after features."""


@dataclass(frozen=True)
class Missing:
    """What was not tried in one audit."""

    what: str  # an attack, or some of the messages
    why: str  # in a sentence
    # whether a limit can't be said to hold without it; an attack that does not apply does not matter
    matters: bool = False


def now() -> str:
    """This moment, as reports write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Of what the figures may depend on."""
    return {"tacit": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}


def leaks_of(findings: Sequence[Finding], on: Literal["batches", "visits", "live"] = "batches") -> tuple[Leak, ...]:
    """What attacks on labels reached, as a report has it.

    A report's quantile is `Finding.upper`: what 95 of 100 batches stay under, chance taken out, which is what limits
    are held against. Over all visits there is one batch, and it only tells something beside a baseline.
    """
    return tuple(
        Leak(
            on=on,
            quantile=finding.upper if on != "visits" or finding.baseline is not None else None,
            baseline=None if finding.baseline is None else finding.baseline.value,
            **_described(finding, finding.leak.value, finding.leak.low, finding.leak.high),
        )
        for finding in findings
    )


def input_leaks_of(
    findings: Sequence[InputFinding], on: Literal["batches", "visits", "live"] = "batches"
) -> tuple[Leak, ...]:
    """What attacks on features reached: the share of the columns' variance that was read, or an attribute's AUC."""
    leaks = []
    for finding in findings:
        if finding.auc is not None:
            figures = _described(finding, finding.auc.value, finding.auc.low, finding.auc.high)
            leaks.append(Leak(on=on, measure="attribute_auc", **figures))
        elif (error := finding.relative) is not None:
            shares = (min(1.0, max(0.0, 1 - part)) for part in (error.value, error.high, error.low))
            leaks.append(Leak(on=on, measure="variance_read", **_described(finding, *shares)))
    return tuple(leaks)


def worst_of(leaks: Sequence[Leak]) -> Leak | None:
    """The attack that reached most above what its attacker had without any message; None where none ran."""
    return max(leaks, key=lambda leak: leak.value - without_messages(leak), default=None)


def passed(leaks: Sequence[Leak], limit: float) -> tuple[Leak, ...]:
    """The attacks whose upper end lies above a limit, less what each attacker had beyond a coin flip by itself."""
    return tuple(leak for leak in leaks if upper_end(leak) > limit)


def verdict(
    leaks: Sequence[Leak], limit: float | None, missing: Sequence[Missing] = ()
) -> Literal["held", "broken", "no limit", "not judged"]:
    """Whether a limit holds: "held" only where every upper end is under it and nothing that matters was left out."""
    if limit is None:
        return "no limit"
    if passed(leaks, limit):
        return "broken"
    return "not judged" if not leaks or any(part.matters for part in missing) else "held"


def skipped(reasons: Mapping[str, str], over: str = "") -> list[Missing]:
    """Attacks that the messages at hand give nothing to, as `attack_all` and `attack_inputs` note them."""
    return [Missing(f"the attack {name}{over}", why) for name, why in reasons.items()]


def not_tested(side: Side, missing: Sequence[Missing] = ()) -> tuple[NotTested, ...]:
    """Everything that was not tried: what is missing in this audit, and what no audit of a transcript can try."""
    untried = [*((part.what, part.why) for part in missing), *_NEVER[side]]
    return tuple(NotTested(what=what, why=why) for what, why in untried)


def run_subject(folder: Folder, protection: str, rows: int, width: int, **more: Any) -> Subject:
    """What a report on a party's own run is about."""
    contract, config, rows_of = folder.terms, folder.config, aligned(folder)
    if (table := config.data) is not None:
        where = table.path or "an SQL query"
        more |= {"label": table.label, "table": where, "ids": table.ids, "columns": table.features}
    return Subject(
        kind="run", side="features" if config.role == "label" else "label", run=contract.run, party=config.name,
        role=config.role, peers=folder.peers(contract), contract=contract.digest, alignment=rows_of.id,
        positive=contract.positive, classes=contract.class_names, common=rows_of.count, protection=protection,
        rows=rows, width=width, versions=versions(), **more,
    )  # fmt: skip


def report_of(
    subject: Subject, leaks: Sequence[Leak], missing: Sequence[Missing], *, limit: float | None,
    notes: Sequence[str] = (), repeat: Sequence[str] = (),
) -> Report:  # fmt: skip
    """The report on what attacks reached, under the assumptions of its side and these notes."""
    return Report(
        made=now(), subject=subject, limit=limit, verdict=verdict(leaks, limit, missing), worst=worst_of(leaks),
        leaks=tuple(leaks), not_tested=not_tested(subject.side, missing),
        assumptions=(*_ALWAYS[subject.side], *notes), repeat=tuple(repeat),
    )  # fmt: skip


def _described(finding: Finding | InputFinding, value: float, low: float, high: float) -> dict[str, Any]:
    about, knows, costs = describe(finding.attack)
    return {
        "attack": finding.attack, "value": value, "low": low, "high": high, "about": about, "knows": knows,
        "costs": costs, "seconds": getattr(finding, "seconds", None),
    }  # fmt: skip


_INTERVALS = "Intervals are of 95%; among many attacks the largest figure lies a little above the truth."
_ALWAYS: dict[Side, tuple[str, ...]] = {
    "features": (
        "Attackers who are told some labels know those of a random half of the examples, and are judged on the others.",
        "A leak AUC is about ranking: 0.5 is a coin flip, 1 tells each positive example from each negative one.",
        _INTERVALS,
    ),
    "label": (
        "Attackers know the features of a random half of the examples, with their embeddings, and are judged on the "
        "others.",
        "What was read is the share of the columns' variance that a decoder explains: 0 is nothing, 1 is everything.",
        _INTERVALS,
    ),
}


def _never(crafted: str, *others: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """What no audit of a transcript can try, with what is special to a side."""
    return (
        ("attacks that nobody has published or built here", "a figure is a lower bound of what can be learned"),
        ("a peer that departs from the protocol", f"only what was really exchanged is looked at; crafted {crafted}"),
        ("several receivers who put together what they have", "each transcript is judged by itself"),
        ("a receiver with knowledge from elsewhere", "other tables about the same people may tell more together with "
         "the messages"),
        *others,
        ("the trained model itself, and what its predictions give away", "only messages of training are looked at"),
    )  # fmt: skip


_NEVER: dict[Side, tuple[tuple[str, str], ...]] = {
    "features": _never(
        "embeddings could draw more out of the answers",
        ("layers below the cut", "attacks look at what crossed the wire; the receiver derives the rest from that"),
        ("labels of more than two classes", "leak AUC is about two"),
    ),
    "label": _never(
        "gradients could make embeddings tell more",
        ("single columns and rare values", "the figure is a mean over all columns and rows: some may be read better"),
    ),
}
