"""What a report says of a training in one exchange: a certificate of labels, or what decoders read of what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import FiniteFloat

from tacit.views.report._part import Missable, Part

__all__ = ["Certified", "ColumnRead", "Departure", "Exchanged", "Figure", "Released"]


class Departure(Part):
    """Something that left this party.

    Attributes:
        time: when; None where nobody noted it.
        what: it was.
        to: whom it went to.
        rows: that it is about.
        bytes: of it, without what the wire adds.
    """

    time: str | None = None
    what: str
    to: str
    rows: int
    bytes: int


class Figure(Part):
    """A figure, and whether it is a bound or a measurement.

    Attributes:
        name: what it is.
        kind: "bound" holds whatever anybody computes; "measurement" is what was seen here; "private" is one of the
            party's own model, which nobody else sees.
        value: of it.
        low: lower end of its 95% interval, of a measurement.
        high: upper end.
        most: the bound that it is held against, where there is one.
        held: whether it is, but for chance: less than once in a million.
        about: what it means, in a sentence.
    """

    name: str
    kind: Literal["bound", "measurement", "private"]
    value: FiniteFloat
    low: Missable = None
    high: Missable = None
    most: Missable = None
    held: bool | None = None
    about: str


class Certified(Part):
    """The certificate of a label party: bounds, which hold against any partner.

    Attributes:
        sentence: the one for a lawyer.
        mechanism: in words.
        parameters: of it, exact, as JSON.
        rows: whose labels were sent.
        unit: what the bound is about: one row, or all rows of one value of a column.
        auc: of this exchange.
        odds: of this exchange.
        total_auc: over all exchanges, of the unit that was told most about.
        total_odds: likewise.
        budget: that the owner set for `total_auc`; None for none.
        odds_budget: that the owner set for `total_odds`.
        releases: exchanges so far.
        labels: that were ever sent.
        share: of class 1, of two classes.
        after: how likely class 1 is after a 0 and after a 1 was sent, for whoever knows that share and nothing else.
        posterior: the same in a sentence.
        delta: the probability with which odds may be passed; 0 but for sums.
        why: what decided, where the odds did and not the limit.
        not_covered: what no bound on messages bounds.
    """

    sentence: str
    mechanism: str
    parameters: str
    rows: int
    unit: str
    auc: FiniteFloat
    odds: FiniteFloat
    total_auc: FiniteFloat
    total_odds: Missable
    budget: Missable = None
    odds_budget: Missable = None
    releases: int
    labels: int
    share: Missable = None
    after: tuple[float, ...] | None = None
    posterior: str = ""
    delta: float = 0.0
    why: str = ""
    not_covered: tuple[str, ...] = ()


class ColumnRead(Part):
    """The most that decoders read of a column: a measurement.

    Attributes:
        column: its name.
        question: what was asked about it: its variance, a tail or band, a set of values, a category, its codes.
        decoder: that answered best.
        rows: which rows were judged.
        given: whether all other columns were known to the decoder; then what the embedding adds is counted.
        members: how many judged rows are in the tail, band or set, or of the category.
        value: from 0, nothing, to 1, everything.
        low: lower end of its 95% interval.
        high: upper end, which a limit is held against.
    """

    column: str
    question: str
    decoder: str
    rows: str
    given: bool
    members: int
    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat


class Released(Part):
    """What a feature party sent, and what its own decoders read of it before it was sent.

    Attributes:
        width: numbers a row that say something.
        agreed: numbers a row that the contract has; the rest are 0.
        ranks: that a number may have.
        noise: in units of each number's deviation.
        learner: that made the embedding.
        tried: every form that was attacked, with the most that was read of it; the last one was sent.
        worst: the largest upper end, which the limit is held against.
        sure: that much is read of something, with a false-alarm rate of 5% over all figures together.
        slack: how far below a limit all true figures must lie, such that chance refuses at most 5 of 100 releases.
        columns: the worst of each column, with all other columns known and without, worst first.
        questions: that were asked in all.
        known: rows that decoders learnt from, looked up and were chosen on.
        judged: rows of each kind that were judged.
        matched: the share of judged rows whose embedding is that of some known row.
        fingerprints: the share whose embedding is that of at most four known rows.
        equal: of pairs of rows that are equal in all columns, the share with equal embeddings; None without any.
        fisher: for each number the least squared error of any unbiased decoder, in units of its variance: a bound.
        no_fisher: why there is no such bound; empty where there is one.
        notes: what was left out of the audit, and why.
    """

    width: int
    agreed: int
    ranks: int
    noise: FiniteFloat
    learner: str
    tried: tuple[str, ...]
    worst: FiniteFloat
    sure: FiniteFloat
    slack: FiniteFloat
    columns: tuple[ColumnRead, ...]
    questions: int
    known: dict[str, int]
    judged: dict[str, int]
    matched: FiniteFloat
    fingerprints: FiniteFloat
    equal: Missable = None
    fisher: Mapping[str, float] = {}
    no_fisher: str = ""
    notes: tuple[str, ...] = ()


class Exchanged(Part):
    """A training in one exchange.

    Attributes:
        certificate: of a label party.
        release: of a feature party.
        figures: what was measured, with the bounds that it is held against.
        departures: everything that left this party.
        checked: what a check of the book of coins said; empty where it was not asked.
    """

    certificate: Certified | None = None
    release: Released | None = None
    figures: tuple[Figure, ...] = ()
    departures: tuple[Departure, ...] = ()
    checked: str = ""
