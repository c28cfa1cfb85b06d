"""What is tried: how labels are sent, what makes the embedding of them, and in which form it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tacit.config.contract import WIDEST
from tacit.errors import UsageError
from tacit.one_shot.flips import Flips, flips
from tacit.one_shot.floor import FLOORS
from tacit.one_shot.learn import LEARNERS

_DECIDE = ("label_limit", "head", "attack_rows", "given")

Labels = Literal["flips", "none", "true", "raw", "alone", "split"]
"""Flipped once; not sent at all; sent as they are; all columns sent as they are; nothing sent by anybody; as gradients,
step by step."""

RIVALS = ("raw", "true", "split", *FLOORS)
"""What flips can be compared with, beside no partner."""

CUT = 128
"""Numbers a row that split training sends at every visit."""


@dataclass(frozen=True)
class Family:
    """Settings that differ in form alone: one embedding, of which more or less is sent."""

    labels: Labels  # what is sent of them
    # what makes the embedding: a learner, or one that no label has a part in; empty where there is none. Of split
    # training the protection of its gradients
    bottom: str = ""
    odds: float | None = None  # of flips; None for a symmetric coin

    @property
    def words(self) -> str:
        """In a few words."""
        coin = "flips" if self.odds is None else f"flips, odds {self.odds:g}"
        return {
            "flips": f"{coin}, {self.bottom}",
            "none": f"no label, {self.bottom}",
            "true": f"true labels, {self.bottom}",
            "raw": "true labels, raw columns",
            "alone": "no partner",
            "split": "split, no protection" if self.bottom == "none" else f"split, {self.bottom}",
        }[self.labels]

    @property
    def keeps_labels(self) -> bool:
        """Whether a label limit is certified to hold; what was measured of split training is no bound."""
        return self.labels in ("flips", "none", "alone")


@dataclass(frozen=True)
class Setting:
    """One form of a family."""

    family: Family
    width: int = 0
    noise: float = 0.0

    @property
    def words(self) -> str:
        """In a few words."""
        noise = f", noise {self.noise:g}" if self.noise else ""
        numbers = f", {self.width} number{'' if self.width == 1 else 's'}" if self.width else ""
        return f"{self.family.words}{numbers}{noise}"


@dataclass(frozen=True)
class Search:
    """Everything that is tried."""

    label_limit: float = 0.6  # the leak AUC of a label
    odds: float | None = None  # of a second coin beside the symmetric one; None for none
    widths: tuple[int, ...] = (1, 2, 4, 8)  # numbers a row
    noises: tuple[float, ...] = (1.0, 4.0)  # on the narrowest embedding, in units of its deviation
    learners: tuple[str, ...] = ("trees",)  # by name
    rivals: tuple[str, ...] = RIVALS  # what they are compared with, of `RIVALS`
    head: str = "trees"  # of the label party
    seeds: int = 1  # with how many each is tried
    attack_rows: int = 8000  # that decoders know, and are judged on, at most
    given: bool = False  # whether decoders also try with all other columns of a row known, which takes most of the time

    def __post_init__(self) -> None:
        flips(self.label_limit, self.odds)  # refuses what is no limit
        if not self.widths or any(not 1 <= width <= WIDEST for width in self.widths):
            raise UsageError(f"widths {self.widths}: an embedding has 1 to {WIDEST} numbers a row")
        if any(noise < 0 for noise in self.noises):
            raise UsageError(f"noise {self.noises}: it is 0 or more, in units of each number's deviation")
        for name, known, what in (
            *((name, LEARNERS, "learner") for name in self.learners),
            *((name, RIVALS, "rival") for name in self.rivals),
        ):
            if name not in known:
                raise UsageError(f"there is no {what} {name!r}; there are: {', '.join(known)}")
        if self.seeds < 1 or self.attack_rows < 1000:
            raise UsageError("at least one seed is needed, and 1000 rows that decoders know")

    def coin(self, odds: float | None, share: float) -> Flips:
        """The coin, for the class that is rare."""
        rare = "neither" if odds is None else "positive" if share < 0.5 else "negative"
        return flips(self.label_limit, odds, rare=rare)

    def families(self) -> Iterator[Family]:
        """All of them: no partner and no protection first, then what holds the label limit."""
        yield Family("alone")
        if "raw" in self.rivals:
            yield Family("raw")
        if "split" in self.rivals:
            yield Family("split", "none")
            yield Family("split", "matched")
        for learner in self.learners:
            if "true" in self.rivals:
                yield Family("true", learner)
            yield Family("flips", learner)
            if self.odds is not None:
                yield Family("flips", learner, self.odds)
        for name in FLOORS:
            if name in self.rivals:
                yield Family("none", name)

    def forms(self, family: Family) -> Sequence[Setting]:
        """The settings of a family: every width, and noise on the narrowest."""
        if not family.bottom:
            return [Setting(family)]
        if family.labels == "split":
            return [Setting(family, CUT)]
        widths = sorted(set(self.widths))
        noisy = [Setting(family, widths[0], noise) for noise in sorted(set(self.noises)) if noise]
        return [*noisy, *(Setting(family, width) for width in widths)]

    def as_dict(self) -> dict[str, Any]:
        """What decides a figure, for JSON: results of another search are no results of this one."""
        return {key: value for key, value in asdict(self).items() if key in _DECIDE}
