"""What a report says, field by field: the schema of `report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, FiniteFloat, model_validator

from tacit.views.report._part import Missable, Part
from tacit.views.report.exchanged import Exchanged

Measured = Literal["leak_auc", "variance_read", "attribute_auc"]
"""What a figure is: of labels, of features, of a private attribute."""


class Subject(Part):
    """Who and what was audited."""

    kind: Literal["run", "files"] = Field(description="a run of ours, or what somebody else's system sent.")
    side: Literal["features", "label"] = Field(
        description='who is looking: "features" reads gradients and is after labels, "label" reads embeddings and is '
        "after features."
    )
    run: str = Field(description="the run's name, or the name of the file with the messages.")
    party: str | None = Field(default=None, description="whose messages these are.")
    role: Literal["label", "features"] | None = Field(default=None, description="of that party.")
    peers: tuple[str, ...] = Field(default=(), description="who received them.")
    contract: str | None = Field(default=None, description="digest of the contract.")
    alignment: str | None = Field(default=None, description="name of the alignment.")
    protection: str | None = Field(
        default=None, description="what was done to the messages, as it is spelled; None where that is not known."
    )
    rows: int | None = Field(default=None, description="examples that are trained on.")
    width: int | None = Field(default=None, description="numbers that a message holds for each example.")
    epochs: int | None = Field(default=None, description="planned visits of each example.")
    steps: int | None = Field(default=None, description="messages that were sent.")
    versions: Mapping[str, str] = Field(default={}, description="of Tacit, Python, torch and whatever else matters.")
    files: Mapping[str, str] = Field(default={}, description="digests of the files that were read, by name.")


class Leak(Part):
    """What one attack reached."""

    attack: str = Field(description="its name, with its options.")
    on: Literal["batches", "visits", "live"] = Field(
        description='single messages ("batches"), all visits of an example together ("visits"), or while training '
        'ran ("live").'
    )
    layer: str = Field(default="cut", description='"cut" is what crossed the wire.')
    measure: Measured = Field(
        default="leak_auc",
        description='"leak_auc" (0.5 a coin flip, 1 an open book) of labels; "variance_read" (0 nothing, 1 '
        'everything) of features; "attribute_auc" of a private attribute.',
    )
    value: FiniteFloat = Field(description="the estimate; an attack that reached none stands in `not_tested`.")
    low: FiniteFloat = Field(description="lower end of its 95% interval.")
    high: FiniteFloat = Field(description="upper end.")
    quantile: Missable = Field(
        default=None,
        description="what 95 of 100 batches stay under, chance taken out; with a baseline, that and the upper end of "
        "what messages add to it on the same rows.",
    )
    baseline: Missable = Field(
        default=None, description="what the same attacker reaches without the messages, where that is not a coin flip."
    )
    knows: str | None = Field(default=None, description="what it has to know beside the messages.")
    costs: str | None = Field(default=None, description="how much work it is.")
    seconds: Missable = Field(default=None, description="that it took here.")
    about: str | None = Field(default=None, description="what it does, in one sentence.")


class Worst(Part):
    """The attack that reached most above what its attacker had without any message."""

    attack: str = Field(description="its name, as in `leaks`.")
    value: FiniteFloat = Field(description="the estimate, with what the attacker had anyway.")
    low: FiniteFloat = Field(description="lower end of its 95% interval.")
    high: FiniteFloat = Field(description="upper end.")
    measure: Measured = Field(default="leak_auc", description="what the figures are, as in `leaks`.")


class Moment(Part):
    """An epoch: what was measured in it, under which strength, and how good the model was after it."""

    epoch: int = Field(description="counted from 1.")
    strength: str = Field(description="the protection as it stood, spelled.")
    level: int = Field(default=0, description="how many public steps above the configured strength.")
    worst: Worst | None = Field(default=None, description="the worst live attack in this epoch.")
    figures: Mapping[str, Missable] = Field(
        default={}, description="of the model after it: test_auc, test_loss and the like."
    )


class Decision(Part):
    """What the gate decided, when and why."""

    time: str = Field(description="when.")
    epoch: int = Field(description="before which it was taken, counted from 1.")
    decision: Literal["keep", "raise", "lower", "pause", "stop", "resume"] = Field(description="what was done.")
    reason: str = Field(description="why, for the owner alone.")


class Override(Part):
    """Somebody let a run out that had broken its limit, and is on record for it."""

    time: str = Field(description="when.")
    who: str = Field(description="the name that was given.")
    what: str = Field(description="was let out.")
    reason: str = Field(description="that was given.")


class LiveCurve(Part):
    """One attack's figures while training ran, thinned for the page."""

    attack: str = Field(description="its name.")
    measure: Measured = Field(default="leak_auc", description="what the values are.")
    steps: tuple[int, ...] = Field(description="at which it looked.")
    values: tuple[Missable, ...] = Field(description="what it reached there; None where it could not tell.")

    @model_validator(mode="after")
    def _paired(self) -> LiveCurve:
        if len(self.steps) != len(self.values):
            raise ValueError(
                f"{self.attack} has {len(self.steps)} steps and {len(self.values)} values: give one for each"
            )
        return self


class LedgerSummary(Part):
    """What has been spent of every example, over all runs of this party."""

    examples: int = Field(description="that were ever answered about.")
    answers: int = Field(description="rows answered, each visit counted.")
    runs: int = Field(description="trainings in the ledger.")
    most_visits: int = Field(description="of one example.")
    visits: dict[int, int] = Field(description="how many examples have been visited so often: visits -> examples.")
    worst_case: float | None = Field(
        default=None,
        description="the leak AUC up to which messages about the most exposed example tell its label to whoever "
        "knows everything else; 1 where a mechanism promises nothing; None where it is not known.",
    )
    budget: float | None = Field(default=None, description="that the owner set for it.")
    head: str = Field(description="digest at the end of the hash chain.")
    notes: tuple[str, ...] = Field(default=(), description="what the figure does not know.")


class NotTested(Part):
    """What was not tried, and why."""

    what: str = Field(description="an attack, or a kind of attacker.")
    why: str = Field(description="the reason.")


class Report(Part):
    """The whole report."""

    schema_version: Literal["1"] = Field(
        default="1", description="of these fields; it changes when a field changes its meaning."
    )
    made: str = Field(description="when, in UTC.")
    subject: Subject = Field(description="who and what.")
    limit: FiniteFloat | None = Field(default=None, description="that the owner set; None where there is none.")
    on_limit: str | None = Field(default=None, description="what happens where it can't be held.")
    verdict: Literal["held", "broken", "no limit", "not judged"] = Field(
        description='"held" where every upper end stays under the limit and nothing that should have been tried is '
        "missing."
    )
    worst: Worst | None = Field(default=None, description="the worst attack; None where none could run.")
    leaks: tuple[Leak, ...] = Field(default=(), description="every attack.")
    moments: tuple[Moment, ...] = Field(default=(), description="epoch by epoch.")
    decisions: tuple[Decision, ...] = Field(default=(), description="of the gate.")
    curves: tuple[LiveCurve, ...] = Field(default=(), description="while training ran.")
    ledger: LedgerSummary | None = Field(default=None, description="of the party.")
    overrides: tuple[Override, ...] = Field(default=(), description="on record.")
    exchange: Exchanged | None = Field(
        default=None,
        description="what there is to say of a training in one exchange; None of one step by step, and of files.",
    )
    not_tested: tuple[NotTested, ...] = Field(default=(), description="what was not tried.")
    assumptions: tuple[str, ...] = Field(default=(), description="under which the figures hold.")
    repeat: tuple[str, ...] = Field(default=(), description="commands that make this report again.")

    @model_validator(mode="after")
    def _sensible(self) -> Report:
        if self.verdict in ("held", "broken") and self.limit is None:
            raise ValueError(f'the verdict is "{self.verdict}", but there is no limit: give the limit, or "no limit"')
        if self.verdict == "held" and self.worst is None:
            raise ValueError('the verdict is "held", but no attack ran: that is "not judged"')
        return self
