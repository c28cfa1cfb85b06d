"""What a label party may say of its labels after the exchange: a bound, in words that a lawyer can read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit.one_shot.flips import Flips
from tacit.one_shot.mechanisms import Mechanism, described
from tacit.one_shot.records import Summary

# what no bound on messages bounds
NOT_COVERED = (
    "what a partner's own columns tell about labels: the bound is on what the messages add to that",
    "which rows are common, and that a row has been labelled by the time of the exchange: the alignment shows it",
    "settings that were chosen by looking at labels and stand in the contract: classes, which is rare, a range",
    "decisions that others can watch, such as whom a company calls after it has scored its customers",
    "predictions of the private model that are shown to the partner: they void the certificate",
    "labels of a unit that went through another folder with a secret of its own, or that go out step by step "
    '(mode = "split") after this; and what left before a restore that somebody answered for (on record)',
)


@dataclass(frozen=True)
class Certificate:
    """A bound on what messages tell about a label, whoever reads them and whatever is computed from them."""

    mechanism: str  # in words
    parameters: dict[str, Any]  # of it, exact
    rows: int  # whose labels were sent
    unit: str  # what the bound is about: one row, or all rows of one value of a column
    auc: float  # of this exchange: with which whoever knows everything else tells a row's label, at most
    odds: float  # of this exchange: the factor by which the odds of a row's label change, at most
    total_auc: float  # over all exchanges of the most told-about unit
    total_odds: float  # likewise
    share: float | None  # of class 1 among the labels, of two classes; None else
    # how likely class 1 is after a 0 and after a 1 was sent, where one knows that share and nothing else
    after: tuple[float, float] | None
    why: str  # what decided, where the odds did and not the limit
    beside: str = ""  # what else told, or may have told, these labels, so that no bound is stated; empty for nothing

    @property
    def sentence(self) -> str:
        """The one sentence; where something else has told these labels, that comes first."""
        told = "everything that this party has sent" if not self.beside else "what this party has sent in exchanges"
        before = f"No bound is stated for these labels: {self.beside}. Of exchanges alone: " if self.beside else ""
        return (
            f"{before}Of two {self.unit}s with different labels that nothing else tells apart, whoever receives "
            f"{told}, knows all other labels and computes whatever they like tells which is which "
            f"with an AUC of at most {_up(self.total_auc)} (0.5 is a coin flip, 1 an open book); and the odds of any "
            f"label change by at most a factor of {_up(self.total_odds)}. This is a bound, not a measurement; it holds "
            "against any partner, honest or not."
        )

    @property
    def posterior(self) -> str:
        """What it means for one row; empty where there are not two classes."""
        if self.share is None or self.after is None:
            return ""
        zero, one = self.after
        return (
            f"{self.share:.1%} of the labels are 1. After a 1 was sent, a row is one with a probability of {one:.1%}; "
            f"after a 0, with {zero:.1%}."
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, sentences included."""
        words = {"sentence": self.sentence, "posterior": self.posterior, "not_covered": list(NOT_COVERED)}
        return asdict(self) | words


def certify(mechanism: Mechanism, rows: int, total: Summary, share: float | None, beside: str = "") -> Certificate:
    """The certificate of an exchange."""
    after = mechanism.posterior(share) if share is not None and isinstance(mechanism, Flips) else None
    return Certificate(
        mechanism=described(mechanism), parameters=dict(mechanism.parameters()), rows=rows, unit=total.unit,
        auc=mechanism.auc, odds=mechanism.odds, total_auc=total.auc, total_odds=total.odds, share=share,
        after=after, why=mechanism.why if isinstance(mechanism, Flips) else "", beside=beside,
    )  # fmt: skip


def _up(value: float) -> str:
    """Three digits after the point, never below the value."""
    rounded = round(value, 3)
    return f"{rounded if rounded >= value - 1e-12 else rounded + 0.001:.3f}"
