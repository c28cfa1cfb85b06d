"""What a report says, field by field: the schema of `report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import FiniteFloat, model_validator

from tacit.views.report._part import Missable, Part
from tacit.views.report.exchanged import Exchanged

__all__ = [
    "Decision",
    "Leak",
    "LedgerSummary",
    "LiveCurve",
    "Measured",
    "Moment",
    "NotTested",
    "Override",
    "Report",
    "Subject",
    "Worst",
]


Measured = Literal["leak_auc", "variance_read", "attribute_auc"]
"""What a figure is: of labels, of features, of a private attribute."""


class Subject(Part):
    """Who and what was audited.

    Attributes:
        kind: a run of ours, or what somebody else's system sent.
        side: who is looking: "features" reads gradients and is after labels, "label" reads embeddings and is after
            features.
        run: the run's name, or the name of the file with the messages.
        party: whose messages these are.
        role: of that party.
        peers: who received them.
        contract: digest of the contract.
        alignment: name of the alignment.
        protection: what was done to the messages, as it is spelled; None where that is not known.
        rows: examples that are trained on.
        width: numbers that a message holds for each example.
        epochs: planned visits of each example.
        steps: messages that were sent.
        versions: of Tacit, Python, torch and whatever else matters.
        files: digests of the files that were read, by name.
    """

    kind: Literal["run", "files"]
    side: Literal["features", "label"]
    run: str
    party: str | None = None
    role: Literal["label", "features"] | None = None
    peers: tuple[str, ...] = ()
    contract: str | None = None
    alignment: str | None = None
    protection: str | None = None
    rows: int | None = None
    width: int | None = None
    epochs: int | None = None
    steps: int | None = None
    versions: Mapping[str, str] = {}
    files: Mapping[str, str] = {}


class Leak(Part):
    """What one attack reached.

    Attributes:
        attack: its name, with its options.
        on: single messages ("batches"), all visits of an example together ("visits"), or while training ran ("live").
        layer: "cut" is what crossed the wire.
        measure: "leak_auc" (0.5 a coin flip, 1 an open book) of labels; "variance_read" (0 nothing, 1 everything) of
            features; "attribute_auc" of a private attribute.
        value: the estimate; an attack that reached none stands in `not_tested`.
        low: lower end of its 95% interval.
        high: upper end.
        quantile: what 95 of 100 batches stay under, chance taken out; with a baseline, that and the upper end of what
            messages add to it on the same rows.
        baseline: what the same attacker reaches without the messages, where that is not a coin flip.
        knows: what it has to know beside the messages.
        costs: how much work it is.
        seconds: that it took here.
        about: what it does, in one sentence.
    """

    attack: str
    on: Literal["batches", "visits", "live"]
    layer: str = "cut"
    measure: Measured = "leak_auc"
    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    quantile: Missable = None
    baseline: Missable = None
    knows: str | None = None
    costs: str | None = None
    seconds: Missable = None
    about: str | None = None


class Worst(Part):
    """The attack that reached most above what its attacker had without any message.

    Attributes:
        attack: its name, as in `leaks`.
        value: the estimate, with what the attacker had anyway.
        low: lower end of its 95% interval.
        high: upper end.
        measure: what the figures are, as in `leaks`.
    """

    attack: str
    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    measure: Measured = "leak_auc"


class Moment(Part):
    """An epoch: what was measured in it, under which strength, and how good the model was after it.

    Attributes:
        epoch: counted from 1.
        strength: the protection as it stood, spelled.
        level: how many public steps above the configured strength.
        worst: the worst live attack in this epoch.
        figures: of the model after it: test_auc, test_loss and the like.
    """

    epoch: int
    strength: str
    level: int = 0
    worst: Worst | None = None
    figures: Mapping[str, Missable] = {}


class Decision(Part):
    """What the gate decided, when and why.

    Attributes:
        time: when.
        epoch: before which it was taken, counted from 1.
        decision: what was done.
        reason: why, for the owner alone.
    """

    time: str
    epoch: int
    decision: Literal["keep", "raise", "lower", "pause", "stop", "resume"]
    reason: str


class Override(Part):
    """Somebody let a run out that had broken its limit, and is on record for it.

    Attributes:
        time: when.
        who: the name that was given.
        what: was let out.
        reason: that was given.
    """

    time: str
    who: str
    what: str
    reason: str


class LiveCurve(Part):
    """One attack's figures while training ran, thinned for the page.

    Attributes:
        attack: its name.
        measure: what the values are.
        steps: at which it looked.
        values: what it reached there; None where it could not tell.
    """

    attack: str
    measure: Measured = "leak_auc"
    steps: tuple[int, ...]
    values: tuple[Missable, ...]

    @model_validator(mode="after")
    def _paired(self) -> LiveCurve:
        if len(self.steps) != len(self.values):
            raise ValueError(
                f"{self.attack} has {len(self.steps)} steps and {len(self.values)} values: give one for each"
            )
        return self


class LedgerSummary(Part):
    """What has been spent of every example, over all runs of this party.

    Attributes:
        examples: that were ever answered about.
        answers: rows answered, each visit counted.
        runs: trainings in the ledger.
        most_visits: of one example.
        visits: how many examples have been visited so often: visits -> examples.
        worst_case: the leak AUC up to which messages about the most exposed example tell its label to whoever knows
            everything else; 1 where a mechanism promises nothing; None where it is not known.
        budget: that the owner set for it.
        head: digest at the end of the hash chain.
        notes: what the figure does not know.
    """

    examples: int
    answers: int
    runs: int
    most_visits: int
    visits: dict[int, int]
    worst_case: float | None = None
    budget: float | None = None
    head: str
    notes: tuple[str, ...] = ()


class NotTested(Part):
    """What was not tried, and why.

    Attributes:
        what: an attack, or a kind of attacker.
        why: the reason.
    """

    what: str
    why: str


class Report(Part):
    """The whole report.

    Attributes:
        schema_version: of these fields; it changes when a field changes its meaning.
        made: when, in UTC.
        subject: who and what.
        limit: that the owner set; None where there is none.
        on_limit: what happens where it can't be held.
        verdict: "held" where every upper end stays under the limit and nothing that should have been tried is missing.
        worst: the worst attack; None where none could run.
        leaks: every attack.
        moments: epoch by epoch.
        decisions: of the gate.
        curves: while training ran.
        ledger: of the party.
        overrides: on record.
        exchange: what there is to say of a training in one exchange; None of one step by step, and of files.
        not_tested: what was not tried.
        assumptions: under which the figures hold.
        repeat: commands that make this report again.
    """

    schema_version: Literal["1"] = "1"
    made: str
    subject: Subject
    limit: FiniteFloat | None = None
    on_limit: str | None = None
    verdict: Literal["held", "broken", "no limit", "not judged"]
    worst: Worst | None = None
    leaks: tuple[Leak, ...] = ()
    moments: tuple[Moment, ...] = ()
    decisions: tuple[Decision, ...] = ()
    curves: tuple[LiveCurve, ...] = ()
    ledger: LedgerSummary | None = None
    overrides: tuple[Override, ...] = ()
    exchange: Exchanged | None = None
    not_tested: tuple[NotTested, ...] = ()
    assumptions: tuple[str, ...] = ()
    repeat: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sensible(self) -> Report:
        if self.verdict in ("held", "broken") and self.limit is None:
            raise ValueError(f'the verdict is "{self.verdict}", but there is no limit: give the limit, or "no limit"')
        if self.verdict == "held" and self.worst is None:
            raise ValueError('the verdict is "held", but no attack ran: that is "not judged"')
        return self
