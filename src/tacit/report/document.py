"""What a report says, field by field: the schema of `report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import FiniteFloat, model_validator

from tacit.report.exchanged import Departure, Exchanged, Missable, Part, told

Measured = Literal["leak_auc", "variance_read", "attribute_auc"]
"""What a figure is: of labels, of features, of a private attribute."""


class Subject(Part):
    """Who and what was audited."""

    kind: Literal["run", "files"] = told("a run of ours, or what somebody else's system sent.")
    side: Literal["features", "label"] = told(
        'who is looking: "features" reads gradients and is after labels, "label" reads embeddings and is after '
        "features."
    )
    run: str = told("the run's name, or the name of the file with the messages.")
    party: str | None = told("whose messages these are.", None)
    role: Literal["label", "features"] | None = told("of that party.", None)
    peers: tuple[str, ...] = told("who received them.", ())
    contract: str | None = told("digest of the contract.", None)
    alignment: str | None = told("name of the alignment.", None)
    label: str | None = told("the column that is learnt, of a label party.", None)
    positive: str | None = told("of two classes, the label that counts as 1, where the contract names it.", None)
    classes: tuple[str, ...] = told("of more classes, what the contract calls them, from class 0 on.", ())
    table: str | None = told("the party's table, as its settings name it.", None)
    ids: tuple[str, ...] = told("the columns of it that name a row.", ())
    columns: tuple[str, ...] = told("its columns that are learnt from.", ())
    common: int | None = told("rows that all parties have.", None)
    protection: str | None = told(
        "what was done to the messages, as it is spelled; None where that is not known.", None
    )
    rows: int | None = told("examples that are trained on.", None)
    width: int | None = told("numbers that a message holds for each example.", None)
    epochs: int | None = told("planned visits of each example.", None)
    steps: int | None = told("messages that were sent.", None)
    versions: Mapping[str, str] = told("of Tacit, Python, torch and whatever else matters.", {})
    files: Mapping[str, str] = told("digests of the files that were read, by name.", {})


class Leak(Part):
    """What one attack reached."""

    attack: str = told("its name, with its options.")
    on: Literal["batches", "visits", "live", "exchange"] = told(
        'single messages ("batches"), all visits of an example together ("visits"), while training ran ("live"), or '
        'what was sent in one exchange ("exchange").'
    )
    layer: str = told('"cut" is what crossed the wire.', "cut")
    measure: Measured = told(
        '"leak_auc" (0.5 a coin flip, 1 certainty) of labels; "variance_read" (0 nothing, 1 everything) of '
        'features; "attribute_auc" of a private attribute.',
        "leak_auc",
    )
    value: FiniteFloat = told("the estimate; an attack that reached none stands in `not_tested`.")
    low: FiniteFloat = told("lower end of its 95% interval.")
    high: FiniteFloat = told("upper end.")
    quantile: Missable = told(
        "what 95 of 100 batches stay under, chance taken out; with a baseline, that and the upper end of what "
        "messages add to it on the same rows.",
        None,
    )
    baseline: Missable = told(
        "what the same attacker reaches without the messages, where that is not a coin flip.", None
    )
    knows: str | None = told("what it has to know beside the messages.", None)
    costs: str | None = told("how much work it is.", None)
    seconds: Missable = told("that it took here.", None)
    about: str | None = told("what it does, in one sentence.", None)


class Moment(Part):
    """An epoch: what was measured in it, and how good the model was after it."""

    epoch: int = told("counted from 1.")
    worst: Leak | None = told("the worst live attack in this epoch.", None)
    figures: Mapping[str, Missable] = told("of the model after it: test_auc, test_loss and the like.", {})


class Decision(Part):
    """What the gate decided, when and why."""

    time: str = told("when.")
    epoch: int = told("before which it was taken, counted from 1.")
    decision: Literal["keep", "pause", "stop", "resume"] = told("what was done.")
    reason: str = told("why, for the owner alone.")


class Override(Part):
    """Somebody let a run out that had broken its limit, and is on record for it."""

    time: str = told("when.")
    who: str = told("the name that was given.")
    what: str = told("was let out.")
    reason: str = told("that was given.")


class LiveCurve(Part):
    """One attack's figures while training ran, thinned for the page."""

    attack: str = told("its name.")
    measure: Measured = told("what the values are.", "leak_auc")
    steps: tuple[int, ...] = told("at which it looked.")
    values: tuple[Missable, ...] = told("what it reached there; None where it could not tell.")

    @model_validator(mode="after")
    def _paired(self) -> LiveCurve:
        if len(self.steps) != len(self.values):
            raise ValueError(
                f"{self.attack} has {len(self.steps)} steps and {len(self.values)} values: give one for each"
            )
        return self


class NotTested(Part):
    """What was not tried, and why."""

    what: str = told("an attack, or a kind of attacker.")
    why: str = told("the reason.")


class Report(Part):
    """The whole report."""

    schema_version: Literal["1"] = told("of these fields; it changes when a field changes its meaning.", "1")
    made: str = told("when, in UTC.")
    subject: Subject = told("who and what.")
    limit: FiniteFloat | None = told("that the owner set; None where there is none.", None)
    on_limit: str | None = told("what happens where it can't be held.", None)
    verdict: Literal["held", "broken", "no limit", "not judged"] = told(
        '"held" where every upper end stays under the limit and nothing that should have been tried is missing.'
    )
    worst: Leak | None = told(
        "the one that reached most above what its attacker had without any message; None where none could run.", None
    )
    leaks: tuple[Leak, ...] = told("every attack.", ())
    moments: tuple[Moment, ...] = told("epoch by epoch.", ())
    decisions: tuple[Decision, ...] = told("of the gate.", ())
    pauses: int = told(
        "how often the gate let nothing more out; of a label party each time is an answer to its partners about the "
        "labels of the rows that were aligned.",
        0,
    )
    curves: tuple[LiveCurve, ...] = told("while training ran.", ())
    overrides: tuple[Override, ...] = told("on record.", ())
    exchange: Exchanged | None = told(
        "what there is to say of a training in one exchange; None of one step by step, and of files.", None
    )
    disclosed: tuple[Departure, ...] = told(
        "what left beside the messages that `exchange` lists: the alignment first, which tells a partner which of its "
        "ids are common; what a split run sent; predictions so far.",
        (),
    )
    not_tested: tuple[NotTested, ...] = told("what was not tried.", ())
    assumptions: tuple[str, ...] = told("under which the figures hold.", ())
    repeat: tuple[str, ...] = told("commands that make this report again.", ())

    @model_validator(mode="after")
    def _sensible(self) -> Report:
        if self.verdict in ("held", "broken") and self.limit is None:
            raise ValueError(f'the verdict is "{self.verdict}", but there is no limit: give the limit, or "no limit"')
        if self.verdict == "held" and self.worst is None:
            raise ValueError('the verdict is "held", but no attack ran: that is "not judged"')
        return self
