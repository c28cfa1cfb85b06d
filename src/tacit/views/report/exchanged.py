"""What a report says of a training in one exchange: a certificate of labels, or what decoders read of what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, FiniteFloat

from tacit.views.report._part import Missable, Part


class Departure(Part):
    """Something that left this party."""

    time: str | None = Field(default=None, description="when; None where nobody noted it.")
    what: str = Field(description="it was.")
    to: str = Field(description="whom it went to.")
    rows: int = Field(description="that it is about.")
    bytes: int = Field(description="of it, without what the wire adds.")


class Figure(Part):
    """A figure, and whether it is a bound or a measurement."""

    name: str = Field(description="what it is.")
    kind: Literal["bound", "measurement", "private"] = Field(
        description='"bound" holds whatever anybody computes; "measurement" is what was seen here; "private" is one '
        "of the party's own model, which nobody else sees."
    )
    value: FiniteFloat = Field(description="of it.")
    low: Missable = Field(default=None, description="lower end of its 95% interval, of a measurement.")
    high: Missable = Field(default=None, description="upper end.")
    most: Missable = Field(default=None, description="the bound that it is held against, where there is one.")
    held: bool | None = Field(default=None, description="whether it is, but for chance: less than once in a million.")
    about: str = Field(description="what it means, in a sentence.")


class Charged(Part):
    """What all exchanges so far tell about a unit, and about how many units: a bound."""

    units: int = Field(description="that have come to this much.")
    auc: FiniteFloat = Field(description="leak AUC over all exchanges.")
    odds: Missable = Field(default=None, description="the factor by which the odds of its label change, at most.")
    through: str = Field(description="the mechanisms that its rows went through.")


class Certified(Part):
    """The certificate of a label party: bounds, which hold against any partner."""

    sentence: str = Field(description="the one for a lawyer.")
    mechanism: str = Field(description="in words.")
    parameters: str = Field(description="of it, exact, as JSON.")
    rows: int = Field(description="whose labels were sent.")
    unit: str = Field(description="what the bound is about: one row, or all rows of one value of a column.")
    auc: FiniteFloat = Field(description="of this exchange.")
    odds: FiniteFloat = Field(description="of this exchange.")
    total_auc: FiniteFloat = Field(description="over all exchanges, of the unit that was told most about.")
    total_odds: Missable = Field(description="likewise.")
    budget: Missable = Field(default=None, description="that the owner set for `total_auc`; None for none.")
    odds_budget: Missable = Field(default=None, description="that the owner set for `total_odds`.")
    releases: int = Field(description="exchanges so far.")
    labels: int = Field(description="that were ever sent.")
    charges: tuple[Charged, ...] = Field(
        default=(), description="what units have come to, the most first; the ledger has all, a report the first 12."
    )
    share: Missable = Field(default=None, description="of class 1, of two classes.")
    after: tuple[float, ...] | None = Field(
        default=None,
        description="how likely class 1 is after a 0 and after a 1 was sent, for whoever knows that share and "
        "nothing else.",
    )
    posterior: str = Field(default="", description="the same in a sentence.")
    delta: float = Field(default=0.0, description="the probability with which odds may be passed; 0 but for sums.")
    why: str = Field(default="", description="what decided, where the odds did and not the limit.")
    not_covered: tuple[str, ...] = Field(default=(), description="what no bound on messages bounds.")


class ColumnRead(Part):
    """The most that decoders read of a column: a measurement."""

    column: str = Field(description="its name.")
    question: str = Field(
        description="what was asked about it: its variance, a tail or band, a set of values, a category, its codes."
    )
    decoder: str = Field(description="that answered best.")
    rows: str = Field(description="which rows were judged.")
    given: bool = Field(
        description="whether all other columns were known to the decoder; then what the embedding adds is counted."
    )
    members: int = Field(description="how many judged rows are in the tail, band or set, or of the category.")
    value: FiniteFloat = Field(description="from 0, nothing, to 1, everything.")
    low: FiniteFloat = Field(description="lower end of its 95% interval.")
    high: FiniteFloat = Field(description="upper end, which a limit is held against.")


class Released(Part):
    """What a feature party sent, and what its own decoders read of it before it was sent."""

    width: int = Field(description="numbers a row that say something.")
    agreed: int = Field(description="numbers a row that the contract has; the rest are 0.")
    ranks: int = Field(description="that a number may have.")
    noise: FiniteFloat = Field(description="in units of each number's deviation.")
    learner: str = Field(description="that made the embedding.")
    tried: tuple[str, ...] = Field(
        description="every form that was attacked, with the most that was read of it; the last one was sent."
    )
    worst: FiniteFloat = Field(description="the largest upper end, which the limit is held against.")
    sure: FiniteFloat = Field(
        description="that much is read of something, with a false-alarm rate of 5% over all figures together."
    )
    slack: FiniteFloat = Field(
        description="how far below a limit all true figures must lie, such that chance refuses at most 5 of 100 "
        "releases."
    )
    columns: tuple[ColumnRead, ...] = Field(
        description="the worst of each column, with all other columns known and without, worst first."
    )
    questions: int = Field(description="that were asked in all.")
    known: dict[str, int] = Field(description="rows that decoders learnt from, looked up and were chosen on.")
    judged: dict[str, int] = Field(description="rows of each kind that were judged.")
    matched: FiniteFloat = Field(description="the share of judged rows whose embedding is that of some known row.")
    fingerprints: FiniteFloat = Field(description="the share whose embedding is that of at most four known rows.")
    equal: Missable = Field(
        default=None,
        description="of pairs of rows that are equal in all columns, the share with equal embeddings; None without "
        "any.",
    )
    fisher: Mapping[str, float] = Field(
        default={},
        description="for each number the least squared error of any unbiased decoder, in units of its variance: a "
        "bound.",
    )
    no_fisher: str = Field(default="", description="why there is no such bound; empty where there is one.")
    notes: tuple[str, ...] = Field(default=(), description="what was left out of the audit, and why.")


class Exchanged(Part):
    """A training in one exchange."""

    certificate: Certified | None = Field(default=None, description="of a label party.")
    release: Released | None = Field(default=None, description="of a feature party.")
    figures: tuple[Figure, ...] = Field(
        default=(), description="what was measured, with the bounds that it is held against."
    )
    departures: tuple[Departure, ...] = Field(default=(), description="everything that left this party.")
    checked: str = Field(
        default="", description="what a check of the book of coins said; empty where it was not asked."
    )
