"""The label bound: what a label party may say of its labels after the exchange, in words that a lawyer can read."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tacit.labels.flips import Flips
from tacit.labels.mechanisms import Mechanism, described
from tacit.labels.records import Summary

# what no bound on messages bounds
NOT_COVERED = (
    "what a partner's own columns tell about labels: the bound is on what the messages add to that",
    "which rows are common, and that a row has been labelled by the time of the exchange: the alignment shows it",
    "settings that were chosen by looking at labels and stand in the contract: classes, which is rare, a range",
    "decisions that others can watch, such as whom a company calls after it has scored its customers",
    "predictions of the private model that are shown to the partner: they void the label bound",
    "labels of a unit that went through another folder with a secret of its own, or that go out step by step "
    '(mode = "split") after this; and what was sent before a restore that somebody answered for (on record)',
)


@dataclass(frozen=True)
class LabelBound:
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

    @classmethod
    def of(
        cls, mechanism: Mechanism | None, rows: int, total: Summary, share: float | None, beside: str = ""
    ) -> LabelBound:
        """The bound after an exchange by this mechanism, with whatever earlier exchanges add up to.

        Without a mechanism no label was sent.
        """
        if mechanism is None:
            return cls(
                mechanism="no label was sent", parameters={}, rows=0, unit=total.unit, auc=0.5, odds=1.0,
                total_auc=total.auc, total_odds=total.odds, share=None, after=None, why="", beside=beside,
            )  # fmt: skip
        after = mechanism.posterior(share) if share is not None and isinstance(mechanism, Flips) else None
        return cls(
            mechanism=described(mechanism), parameters=dict(mechanism.parameters()), rows=rows, unit=total.unit,
            auc=mechanism.auc, odds=mechanism.odds, total_auc=total.auc, total_odds=total.odds, share=share,
            after=after, why=mechanism.why if isinstance(mechanism, Flips) else "", beside=beside,
        )  # fmt: skip

    @property
    def epsilon(self) -> float:
        """That of label differential privacy, over all exchanges: the natural logarithm of `total_odds`."""
        return math.log(self.total_odds)

    @property
    def sentence(self) -> str:
        """The bound in one paragraph; where something else has told these labels, that comes first."""
        if not self.parameters:
            none = "In this exchange no label, and nothing that depends on one, was sent."
            if self.beside:
                return f"No bound is stated for these labels: {self.beside}. {none}"
            if self.total_auc > 0.5:
                none += f" Earlier exchanges reveal a {self.unit}'s label with a leak AUC of at most "
                none += f"{_up(self.total_auc)}, and changed its odds by at most a factor of {_up(self.total_odds)}."
            return none
        sent = "everything that this party has ever sent" if not self.beside else "what this party sent in exchanges"
        before = f"No bound is stated for these labels: {self.beside}. Of exchanges alone: " if self.beside else ""
        return (
            f"{before}{'t' if before else 'T'}ake two {self.unit}s with different labels that nothing else "
            f"distinguishes. Anyone who holds {sent}, every other label and unlimited computing power picks the right "
            f"one at most {_up(100 * self.total_auc, 1)}% of the time (a leak AUC of at most {_up(self.total_auc)}; "
            f"guessing: 50%), and the odds of any label change by at most a factor of {_up(self.total_odds)} (label "
            f"differential privacy with epsilon = {_up(self.epsilon)}). This is a bound, not a measurement; it holds "
            "against any partner, honest or not."
        )

    @property
    def posterior(self) -> str:
        """What it means for one row; empty where there are not two classes."""
        if self.share is None or self.after is None:
            return ""
        zero, one = self.after
        return (
            f"If a 1 was sent, the label is 1 with probability {one:.1%}; if a 0 was sent, with probability {zero:.1%} "
            f"(base rate: {self.share:.1%})."
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, sentences included."""
        words = {"sentence": self.sentence, "posterior": self.posterior, "not_covered": list(NOT_COVERED)}
        return asdict(self) | {"epsilon": self.epsilon} | words


def _up(value: float, digits: int = 3) -> str:
    """So many digits after the point, never below the value."""
    step = 10.0**-digits
    rounded = round(value, digits)
    return f"{rounded if rounded >= value - 1e-9 * step else rounded + step:.{digits}f}"
