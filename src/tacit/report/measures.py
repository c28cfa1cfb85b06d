"""What a figure means: where its scale begins and ends, and how it is said to a reader who is no specialist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.report.document import Leak, Measured, Report


@dataclass(frozen=True)
class Measure:
    """A scale from "nothing is learnt" to "everything is known"."""

    name: str  # of the figure
    chance: float  # where nothing is learnt
    lowest: str  # that end in words
    highest: str  # the other end, which is 1, in words
    secret: str  # what the attacker is after
    marks: Sequence[float]  # that the scale has

    @property
    def title(self) -> str:
        """The name, to begin a line with."""
        return self.name[0].upper() + self.name[1:]

    def share(self, value: float) -> float:
        """The place of a value on the scale, from 0 to 1."""
        return min(max((value - self.chance) / (1 - self.chance), 0.0), 1.0)

    def reaches(self, value: float, baseline: float | None = None) -> str:
        """What an attacker with this figure does, and what it does without messages, in words that follow its name."""
        spell = _times if self.chance else _percent
        act = f"guesses right {spell(value)}" if self.chance else f"reads {spell(value)} of {self.secret}"
        return act if baseline is None else f"{act} ({spell(baseline)} without any message)"

    def explained(self, value: float) -> str:
        """What that means, for a reader who has never seen such a figure."""
        if self.chance:
            return (
                f"Show the attacker two examples that differ in {self.secret}, one of each kind. With the messages in "
                f"hand it picks the right one {_times(value)}. Tossing a coin would do so 50 times in 100."
            )
        return (
            "The columns differ from example to example. An attacker who has the messages, and has seen the columns of "
            f"other examples, predicts {_percent(value)} of these differences (of their variance). 0% would be "
            "nothing, 100% every column of every example."
        )


_AUC_MARKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MEASURES: dict[Measured, Measure] = {
    "leak_auc": Measure("leak AUC", 0.5, "coin flip", "certainty", "their label", _AUC_MARKS),
    "attribute_auc": Measure("attribute AUC", 0.5, "coin flip", "certainty", "a private attribute", _AUC_MARKS),
    "variance_read": Measure("share read", 0.0, "nothing", "everything", "the columns", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
}
"""By the names that `report.json` has for them."""


@dataclass(frozen=True)
class Judged:
    """A figure as a limit judges it: what the messages add to a coin flip."""

    value: float  # the estimate
    low: float  # lower end of its interval
    high: float  # upper end
    baseline: float | None = None  # what the attacker has without any message, where that was taken off


def judged(leak: Leak) -> Judged:
    """A leak without what its attacker has before it sees any message; who does worse with them has learnt nothing."""
    if leak.baseline is None:
        return Judged(leak.value, leak.low, leak.high)
    chance = MEASURES[leak.measure].chance
    most = leak.high if leak.quantile is None else leak.quantile  # which was taken of the difference to the baseline
    value, low, high = (max(chance, chance + end - leak.baseline) for end in (leak.value, leak.low, most))
    return Judged(value, min(low, value), max(high, value), leak.baseline)


def without_messages(leak: Leak) -> float:
    """What the attacker reaches without any message."""
    return MEASURES[leak.measure].chance if leak.baseline is None else leak.baseline


def upper_end(leak: Leak) -> float:
    """What a limit is held against: the interval's upper end, or what 95 of 100 batches stay under if more."""
    most = judged(leak).high
    return most if leak.quantile is None or leak.baseline is not None else max(most, leak.quantile)


def main_measure(report: Report) -> Measured:
    """The measure that the limit is about: that of the worst attack, or else that of the side."""
    if report.worst is not None:
        return report.worst.measure
    return "leak_auc" if report.subject.side == "features" else "variance_read"


def _times(value: float) -> str:
    times = round(100 * value)
    return "more than 99 times in 100" if times == 100 and value < 1 else f"{times} times in 100"


def _percent(value: float) -> str:
    share = round(100 * max(value, 0.0))
    if share == 100 and value < 1:
        return "more than 99%"
    return "less than 1%" if share == 0 and value > 0 else f"{share}%"
