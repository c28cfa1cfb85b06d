"""What a report says of a training in one exchange: a bound on labels, or what decoders read of what was sent."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

Missable = Annotated[
    float | None, BeforeValidator(lambda x: None if isinstance(x, float) and not math.isfinite(x) else x)
]
"""A number that may be missing; JSON has no infinity, so what is not finite counts as missing."""


class Part(BaseModel):
    """A part of a report: nothing that is not listed, and nothing that changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def told(description: str, default: Any = ...) -> Any:
    """A field and what the reference says of it; without a default it must be given."""
    return Field(default, description=description)


class Departure(Part):
    """Something that left this party."""

    time: str | None = told("when; None where nobody noted it.", None)
    what: str = told("it was.")
    to: str = told("whom it went to.")
    rows: int = told("that it is about.")
    bytes: int | None = told("of it, without what the wire adds; None where nobody counted them.", None)


class Figure(Part):
    """A figure, and whether it is a bound or a measurement."""

    name: str = told("what it is.")
    kind: Literal["bound", "measurement", "private"] = told(
        '"bound" holds whatever anybody computes; "measurement" is what was seen here; "private" is one of the '
        "party's own model, which nobody else sees."
    )
    value: FiniteFloat = told("of it.")
    low: Missable = told("lower end of its 95% interval, of a measurement.", None)
    high: Missable = told("upper end.", None)
    most: Missable = told("the bound that it is held against, where there is one.", None)
    held: bool | None = told("whether it is, allowing for chance: less than once in a million.", None)
    about: str = told("what it means, in a sentence.")


class Worth(Part):
    """A figure of the label party's private model on the test rows, with partners and without."""

    figure: str = told("its name; of AUC, PR-AUC, lift, accuracy and R2 more is better, of all others less.")
    together: FiniteFloat = told("with what partners sent.")
    alone: FiniteFloat = told("of a model without it.")
    difference: FiniteFloat = told("between the two.")
    low: FiniteFloat = told("lower end of its 95% interval, a bootstrap over the test rows, by unit.")
    high: FiniteFloat = told("upper end.")


class Calibrated(Part):
    """Test rows of like scores: how likely their label was said to be 1, and how often it is."""

    score: FiniteFloat = told("the mean score.")
    share: FiniteFloat = told("the share of ones.")
    rows: int = told("how many they are.")


class Charged(Part):
    """What all exchanges so far tell about a unit, and about how many units: a bound."""

    units: int = told("that have come to this much.")
    auc: FiniteFloat = told("leak AUC over all exchanges.")
    odds: Missable = told("the factor by which the odds of its label change, at most.", None)
    through: str = told("the mechanisms that its rows went through.")


class Bounded(Part):
    """The label bound, of a label party: it holds against any partner, honest or not."""

    sentence: str = told("the bound in words that a lawyer can read.")
    mechanism: str = told("in words.")
    parameters: str = told("of it, exact, as JSON.")
    rows: int = told("whose labels were sent.")
    unit: str = told("what the bound is about: one row, or all rows of one value of a column.")
    auc: FiniteFloat = told("of this exchange.")
    odds: FiniteFloat = told("of this exchange.")
    total_auc: FiniteFloat = told("over all exchanges, of the unit that was told most about.")
    total_odds: Missable = told("likewise.")
    epsilon: Missable = told("of label differential privacy: the natural logarithm of `total_odds`.")
    budget: Missable = told("that the owner set for `total_auc`; None for none.", None)
    odds_budget: Missable = told("that the owner set for `total_odds`.", None)
    releases: int = told("exchanges so far.")
    labels: int = told("that were ever sent.")
    charges: tuple[Charged, ...] = told(
        "what units have come to, the most first; `tacit ledger` shows the sum, a report the first 12.", ()
    )
    share: Missable = told("of class 1, of two classes.", None)
    after: tuple[float, ...] | None = told(
        "how likely class 1 is after a 0 and after a 1 was sent, for whoever knows that share and nothing else.", None
    )
    posterior: str = told("the same in a sentence.", "")
    why: str = told("what decided, where the odds did and not the limit.", "")
    beside: str = told("what else told, or may have told, these labels, so that no bound is stated.", "")
    not_covered: tuple[str, ...] = told("what no bound on messages bounds.", ())


class ColumnRead(Part):
    """The most that decoders read of a column: a measurement."""

    column: str = told("its name.")
    question: str = told(
        "what was asked about it: its variance, a tail or band, a set of values, a category, its codes."
    )
    decoder: str = told("that answered best.")
    rows: str = told("which rows were judged.")
    given: bool = told("whether all other columns were known to the decoder; then what the embedding adds is counted.")
    members: int = told("how many judged rows are in the tail, band or set, or of the category.")
    value: FiniteFloat = told("from 0, nothing, to 1, everything.")
    low: FiniteFloat = told("lower end of its 95% interval.")
    high: FiniteFloat = told("upper end, which a limit is held against.")


class Released(Part):
    """What a feature party sent, and what its own decoders read of it before it was sent."""

    sentence: str = told("the size of it, and that nothing bounds what it tells.")
    form: str = told("what was sent of a row.")
    bits: int = told("of each number.")
    numbers: int = told("of a row.")
    smallest: FiniteFloat = told("the share of the rows that is in the smallest group that was sent.")
    learner: str = told("that made the embedding.")
    labels: str = told('"flips" if it learnt from flipped labels, "none" if from columns alone.')
    worst: FiniteFloat = told("the largest upper end, which the limit is held against.")
    sure: FiniteFloat = told("that much is read of something, with a false-alarm rate of 5% over all figures together.")
    slack: FiniteFloat = told(
        "how far below a limit all true figures must lie, such that chance refuses at most 5 of 100 releases."
    )
    columns: tuple[ColumnRead, ...] = told(
        "the worst of each column, with all other columns known and without, worst first."
    )
    questions: int = told("that were asked in all.")
    known: dict[str, int] = told("rows that decoders learnt from, looked up and were chosen on.")
    judged: dict[str, int] = told("rows of each kind that were judged.")
    matched: FiniteFloat = told("the share of judged rows whose embedding is that of some known row.")
    fingerprints: FiniteFloat = told("the share whose embedding is that of at most four known rows.")
    equal: Missable = told(
        "of pairs of rows that are equal in all columns, the share with equal embeddings; None without any.", None
    )
    notes: tuple[str, ...] = told("what was left out of the audit, and why.", ())


class Exchanged(Part):
    """A training in one exchange."""

    label_bound: Bounded | None = told("of a label party.", None)
    release: Released | None = told("of a feature party.", None)
    figures: tuple[Figure, ...] = told("what was measured, with the bounds that it is held against.", ())
    worth: tuple[Worth, ...] = told("what the partners are worth to a label party's private model.", ())
    calibration: tuple[Calibrated, ...] = told("of that model, of two classes, from the lowest scores on.", ())
    departures: tuple[Departure, ...] = told("everything that left this party.", ())
    checked: str = told("what a check of the book of coins said; empty where it was not asked.", "")
