"""A gradient protection as files name it, and whether one is at least as strong as another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from tacit.config._base import Number, Problem, Section, Visits
from tacit.errors import UsageError

__all__ = ["KNOBS", "LESS_IS_STRONGER", "Gradient", "meets"]

KNOBS = {
    "none": (),
    "max_norm": (),
    "iso": ("t",),
    "marvell": ("leak_auc", "sum_kl", "scale", "detection_error"),
    "matched": ("leak_auc", "scale"),
}
"""The gradient protections that files may name, each with the spellings of its one strength."""

_KNOB_NAMES = ("leak_auc", "sum_kl", "scale", "detection_error", "t")

LESS_IS_STRONGER = ("leak_auc", "sum_kl")
"""Spellings of a strength where a smaller number means more noise."""

_BELOW = {"leak_auc": (0.5, 1.0), "detection_error": (0.0, 0.5)}  # between which numbers; all others are above 0


class Gradient(Section):
    """What the label party does to a gradient before it is sent, with its one strength.

    Attributes:
        name: of the protection; "none" sends the bare gradient and must be written out.
        leak_auc: strength of `matched` and `marvell`: the AUC that its model of gradients leaves the best attacker.
        sum_kl: strength of `marvell`: what is left of the divergence between the classes.
        scale: strength of `matched` and `marvell`: noise power over the squared distance of the class means.
        detection_error: strength of `marvell`: the error that any attacker is left with on balanced classes.
        t: strength of `iso`: noise power over the largest squared norm in the batch.
        visits: for `matched`, over how many visits of one example the strength holds; "epochs" is as many as there are.
    """

    name: Literal["none", "max_norm", "iso", "marvell", "matched"] = Field(examples=['"matched"'])
    leak_auc: Number | None = None
    sum_kl: Number | None = None
    scale: Number | None = None
    detection_error: Number | None = None
    t: Number | None = None
    visits: Visits | None = None

    @model_validator(mode="before")
    @classmethod
    def _whole_training(cls, given: Any) -> Any:
        """The strength of `matched` holds over the whole training, where nothing else is said."""
        return {"visits": "epochs", **given} if isinstance(given, dict) and given.get("name") == "matched" else given

    @property
    def knob(self) -> str | None:
        """The spelling of the strength, None where the protection has none."""
        return next((knob for knob in _KNOB_NAMES if getattr(self, knob) is not None), None)

    def options(self, epochs: int) -> dict[str, float | int]:
        """The arguments for `tacit.protection(name, **options)` in a training of so many epochs."""
        options: dict[str, float | int] = {} if self.knob is None else {self.knob: getattr(self, self.knob)}
        if self.name == "matched":
            options["visits"] = self.visits if isinstance(self.visits, int) else epochs
        return options

    def __str__(self) -> str:
        options = [f"{self.knob}={getattr(self, self.knob):g}"] if self.knob else []
        if self.name == "matched":
            options.append(f"visits={self.visits}")
        return f"{self.name}({', '.join(options)})"

    def _problems(self) -> Iterator[Problem]:
        allowed = KNOBS[self.name]
        given = [knob for knob in _KNOB_NAMES if getattr(self, knob) is not None]
        for knob in given:
            low, high = _BELOW.get(knob, (0.0, float("inf")))
            if knob not in allowed:
                instead = f"write one of {', '.join(allowed)} instead" if allowed else "remove it"
                yield knob, f"{self.name} has no such strength: {instead}"
            elif not low < getattr(self, knob) < high:
                yield knob, f"{getattr(self, knob)} is not between {low:g} and {high:g}: choose a number in between"
        if allowed and not given:
            yield allowed[0], f"{self.name} needs a strength: write one of {', '.join(allowed)}"
        elif len([knob for knob in given if knob in allowed]) > 1:
            yield given[1], f"{' and '.join(given)} are spellings of one strength: keep one"
        if self.visits is not None and self.name != "matched":
            yield "visits", f"{self.name} does not plan for visits: remove it, or use matched"


def meets(minimum: Gradient, protection: Gradient, *, epochs: int) -> None:
    """Refuse a protection that is not at least as strong as the minimum; a `UsageError` says in what.

    Only like is compared with like: the same mechanism, in the same spelling of its strength. Which of two mechanisms
    is the stronger one is a matter of attacks, not of configuration.

    Args:
        minimum: the least that was agreed; anything meets "none".
        protection: what the label party is going to do.
        epochs: how often an example is visited, where one of them says "epochs".
    """
    if minimum.name == "none":
        return
    remedy = f"set [protect] gradient at least to the contract's minimum, {minimum}"
    if protection.name != minimum.name:
        raise UsageError(f"the protection {protection} is not the contract's {minimum.name}: {remedy}")
    if protection.knob != minimum.knob:
        raise UsageError(
            f"{protection.name} is given as {protection.knob}, the contract's minimum as {minimum.knob}, and these "
            f"can't be compared: write the same spelling; {remedy}"
        )
    least, own = minimum.options(epochs), protection.options(epochs)
    for option in least:
        weaker = own[option] > least[option] if option in LESS_IS_STRONGER else own[option] < least[option]
        if weaker:
            raise UsageError(
                f"{protection.name} with {option} = {own[option]:g} is weaker than the contract's minimum of "
                f"{least[option]:g}: {remedy}"
            )
