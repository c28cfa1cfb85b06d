"""What a protection says of itself beside its formula: the options that files may name, and what it promises.

Every protection's file has one such record, `FACTS`. Settings check what they read with it, contracts compare two
strengths, and sweeps take their strengths from it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any, Literal

from torch import Tensor, nn

from tacit.contracts import EmbeddingProtection, Event, Protection

_NORMAL = NormalDist()
_SCALES: Mapping[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "log": (math.log, math.exp),
    "normal": (_NORMAL.inv_cdf, _NORMAL.cdf),
    "linear": (float, float),
}
_DERIVED = ("knob", "strength", "sum_kl", "warmup")  # of an event: what a strength is made of, or brings along


@dataclass(frozen=True)
class Option:
    """One option of a protection that files and sweeps may name."""

    name: str  # of the argument
    kind: type[float] | type[int] | type[bool] | tuple[str, ...] = float  # what it is, or one of these words
    above: float = 0.0  # a number lies above this
    below: float = math.inf  # and below that
    stronger: Literal["more", "less"] | None = "more"  # what hides more; None where two values can't be compared
    sweep: tuple[float, float] | None = None  # the mild and the strong end of what a sweep tries; None for no sweep
    # how strengths lie between the two: an AUC's noise grows with the inverse square of its normal quantile
    spaced: Literal["log", "normal", "linear"] = "log"

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value and what to do, for the reader of a file; None where nothing is."""
        if isinstance(self.kind, tuple):
            words = " or ".join(map(repr, self.kind))
            return None if value in self.kind else f"{value!r} is not {words}: write one of them"
        kinds = (int, float) if self.kind is float else (self.kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and self.kind is not bool):
            what = {float: "a number", int: "a whole number", bool: "true or false"}[self.kind]
            return f"{value!r} is not {what}: correct it"
        if not math.isfinite(value):
            return f"{value} is not a finite number: write one"
        if self.kind is bool or self.above < value < self.below:
            return None
        if math.isinf(self.below):
            return f"{value} is not greater than {self.above:g}: choose a larger number"
        return f"{value} is not between {self.above:g} and {self.below:g}: choose a number in between"

    def weaker(self, own: Any, least: Any) -> bool:
        """Whether a value hides less than another one, or can't be compared with it."""
        if self.stronger is None:
            return bool(own != least)
        return bool(own < least if self.stronger == "more" else own > least)

    def strengths(self, count: int, strong: float | None = None) -> list[float]:
        """So many strengths from mild to strong, or to another strong end, with three digits each; one alone is the
        middle.

        >>> Option("scale", sweep=(0.01, 25.0)).strengths(3)
        [0.01, 0.5, 25.0]
        """
        assert self.sweep is not None  # the caller has looked
        forth, back = _SCALES[self.spaced]
        low, high = forth(self.sweep[0]), forth(self.sweep[1] if strong is None else strong)
        places = [0.5] if count == 1 else [place / (count - 1) for place in range(count)]
        return [float(f"{back(low + (high - low) * place):.3g}") for place in places]


@dataclass(frozen=True)
class Facts:
    """What others need to know about a protection before they make one."""

    strengths: tuple[Option, ...] = ()  # the spellings of its one strength, the usual one first
    others: tuple[Option, ...] = ()  # its other options that files may name
    alone: bool = True  # whether it is a protection by itself, which contracts and settings may name
    noise: bool = False  # whether every row of every batch gets noise

    @property
    def options(self) -> dict[str, Option]:
        """All options that files may name, by name."""
        return {option.name: option for option in (*self.strengths, *self.others)}

    def weaker(self, own: Mapping[str, Any], least: Mapping[str, Any]) -> str | None:
        """The first option in which one protection of this kind hides less than another; None where it is in none.

        Options that the least does not spell out are not compared, nor are those that files can't name.
        """
        for name in (name for name in least if name in self.options):
            if name not in own or self.options[name].weaker(own[name], least[name]):
                return name
        return None


class Mechanism:
    """A protection as a value: a frozen dataclass of its options, whose repr is the same in every process."""

    @property
    def name(self) -> str:
        """The protection's name in configs, reports and tables: the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    @functools.cached_property
    def event(self) -> Event:
        """What it does: the options that were given; of a module, what it shows of itself.

        Strengths that differ between the problems of a stack are no part of it: each replica's own protection has them.
        """
        options = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        shown = {key: repr(value) if isinstance(value, nn.Module) else value for key, value in options.items()}
        return Event(self.name, {key: value for key, value in shown.items() if not isinstance(value, Tensor | None)})


def options_of(event: Event) -> dict[str, Any]:
    """The options of what was done, as files and factories spell them.

    >>> options_of(Event("matched", {"knob": "leak_auc", "strength": 0.6, "sum_kl": 0.128, "visits": 3}))
    {'leak_auc': 0.6, 'visits': 3}
    """
    own = event.parameters
    strength = {str(own["knob"]): own["strength"]} if "knob" in own else {}
    return {**strength, **{name: value for name, value in own.items() if name not in _DERIVED and value is not None}}


def spelled(event: Event) -> str:
    """What was done, in one line: the mechanism with its strength.

    >>> spelled(Event("matched", {"knob": "leak_auc", "strength": 0.6, "sum_kl": 0.128, "visits": 3}))
    'matched(leak_auc=0.6, visits=3)'
    """
    if event.parts:
        return " + ".join(spelled(part) for part in event.parts)
    options = options_of(event).items()
    given = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in options]
    return f"{event.mechanism}({', '.join(given)})" if given else event.mechanism


def described(protect: Protection | Sequence[EmbeddingProtection]) -> str:
    """What a party does to what it sends, in one line; somebody's own protection may not say more than its repr."""
    if isinstance(protect, Sequence):
        return " + ".join(spelled(each.event) for each in protect) or "none"
    event = getattr(protect, "event", None)
    return repr(protect) if event is None else spelled(event)


# --- many visits -----------------------------------------------------------------------------------------------------


def bound_for(protect: Protection, epochs: int) -> float | None:
    """The AUC up to which a row's label can be told from all its visits; None where the protection bounds no row.

    Visits are those that it plans for, or the epochs of a training where these are more. Each has noise of its own, so
    that what they leave adds up: a sumKL of K is an AUC of Phi(sqrt(K/2)).
    """
    row_kl = getattr(protect, "row_kl", None)
    if row_kl is None:
        return None
    visits = max(epochs, getattr(protect, "visits", None) or 0)
    return round(_NORMAL.cdf(math.sqrt(float(row_kl) * visits / 2)), 9)  # a sum is not the whole to the last digit
