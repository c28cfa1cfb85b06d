"""Which settings a sweep tries: protections by name, each at several strengths from mild to strong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from tacit.errors import UsageError
from tacit.lab.sweeping.settings import Option, Setting
from tacit.protect.gradient import names as gradient_names
from tacit.protect.labels.randomized_response import randomized_response

__all__ = ["RANGES", "Range", "grid", "split_names"]

_SPELLED = re.compile(r"\s*(?P<name>\w+)\s*(?::\s*(?P<knob>\w+)\s*)?(?:\((?P<options>[^()]*)\))?\s*")
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Range:
    """The strengths of one knob that a sweep tries when none are named.

    Attributes:
        mild: the first.
        strong: the last.
        spaced: how they lie between: evenly in the "log"arithm, in the "normal" quantile (for an AUC, whose noise
            grows with the inverse square of it), or as they are, "linear".
    """

    mild: float
    strong: float
    spaced: str = "log"

    def values(self, count: int) -> list[float]:
        """So many strengths from mild to strong, with three digits each; one alone is the middle.

        >>> Range(0.01, 25.0).values(3)
        [0.01, 0.5, 25.0]
        """
        forth, back = _SCALES[self.spaced]
        low, high = forth(self.mild), forth(self.strong)
        places = [0.5] if count == 1 else [place / (count - 1) for place in range(count)]
        return [float(f"{back(low + (high - low) * place):.3g}") for place in places]


_SCALES: Mapping[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "log": (math.log, math.exp),
    "normal": (_NORMAL.inv_cdf, _NORMAL.cdf),
    "linear": (float, float),
}

RANGES: Mapping[str, Mapping[str, Range]] = {
    "iso": {"t": Range(0.0625, 625.0)},  # the papers' r from 0.25 to 25, squared
    "marvell": {
        "scale": Range(0.01, 25.0),
        "sum_kl": Range(3.6, 0.01),
        "detection_error": Range(0.1, 0.45, "linear"),
        "leak_auc": Range(0.95, 0.52, "normal"),
    },
    "matched": {"leak_auc": Range(0.95, 0.52, "normal"), "scale": Range(0.01, 25.0)},
    "randomized_response": {"rate": Range(0.02, 0.45)},
}
"""For each protection its knobs, the usual one first, with the strengths of a sweep: the papers' if they have any."""

_UNRANGED: Mapping[str, str] = {"clip": "norm", "label_distance_correlation": "weight"}  # they only run as spelled
_KNOBLESS = ("none", "max_norm")


def grid(
    protect: Sequence[str],
    strengths: int = 8,
    seeds: Sequence[int] = (0,),
    *,
    strongest: Mapping[str, float] | None = None,
) -> list[Setting]:
    """Every setting of a sweep: `none` first, as the baseline, then each protection at its strengths, for each seed.

    Args:
        protect: names (`"marvell"`), with another knob than the usual one (`"marvell:sum_kl"`), with options
            (`"matched(visits=5)"`), or at one strength (`"marvell(sum_kl=0.1)"`). `RANGES` has the strengths.
        strengths: how many of each that is not spelled out; `none` and `max_norm` have none and run once.
        seeds: of first weights, batches and noise; every setting runs with each of them.
        strongest: for a protection's usual knob another strong end than that of `RANGES`.

    >>> [one.spelled for one in grid(["max_norm", "iso"], 2)]
    ['none', 'max_norm', 'iso(t=0.0625)', 'iso(t=625)']
    """
    if strengths < 1:
        raise UsageError(f"strengths = {strengths}: a sweep tries one strength or more of each protection")
    if not seeds:
        raise UsageError("a sweep needs a seed: give one or more")
    once = [Setting("none")]
    for text in protect:
        once += [one for one in _settings(text, strengths, strongest or {}) if one not in once]
    return [replace(one, seed=seed) for seed in seeds for one in once]


def split_names(text: str) -> list[str]:
    """The protections of one line, parted by commas outside of brackets.

    >>> split_names("iso, matched(leak_auc=0.6, visits=5)")
    ['iso', 'matched(leak_auc=0.6, visits=5)']
    """
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _settings(text: str, strengths: int, strongest: Mapping[str, float]) -> list[Setting]:
    """What one spelled protection stands for."""
    found = _SPELLED.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no protection: write a name, name:knob or name(option=value, ...)")
    name, options = found["name"], _options(text, found["options"] or "")
    known = sorted({*gradient_names(), "randomized_response"})
    if name not in known:
        raise UsageError(f"there is no protection {name!r} for a sweep; there are: {', '.join(known)}")
    ranges = RANGES.get(name, {})
    knobs = [*ranges, *([_UNRANGED[name]] if name in _UNRANGED else [])]
    given = [key for key in options if key in knobs]
    if len(given) > 1 or (given and found["knob"]):
        raise UsageError(f"{text!r} names more than one strength: a protection has one, of {', '.join(knobs)}")
    if given:
        made = [_one(text, name, given[0], options.pop(given[0]), options)]
    elif name in _KNOBLESS:
        if found["knob"]:
            raise UsageError(f"{text!r}: {name} has no strength; write {name!r}")
        made = [Setting(name, others=tuple(options.items()))]
    elif not ranges:
        raise UsageError(f"{text!r} has no usual strengths: spell it, as {name}({knobs[0] if knobs else 'option'}=...)")
    else:
        knob = found["knob"] or next(iter(ranges))
        if knob not in ranges:
            raise UsageError(f"{name} has no strength {knob!r}; there are: {', '.join(ranges)}")
        chosen = ranges[knob]
        if knob == next(iter(ranges)):
            chosen = replace(chosen, strong=strongest.get(name, chosen.strong))
        made = [_one(text, name, knob, value, options) for value in chosen.values(strengths)]
    for one in made:
        _check(one)
    return made


def _one(text: str, name: str, knob: str, value: Option, others: Mapping[str, Option]) -> Setting:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise UsageError(f"{text!r}: {knob} = {value!r} is no number")
    return Setting(name, knob, float(value), tuple(sorted(others.items())))


def _check(setting: Setting) -> None:
    """Refuse what can't be built now and not in the middle of a sweep."""
    if setting.flips:
        if setting.others:
            raise UsageError(f"randomized_response takes a rate and nothing else, not {setting.others[0][0]}")
        randomized_response(setting.strength or 0.0)
    else:
        setting.build()


def _options(text: str, inside: str) -> dict[str, Option]:
    """What stands between the brackets."""
    options: dict[str, Option] = {}
    for part in inside.split(",") if inside.strip() else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"{text!r}: {part.strip()!r} is no option; write key=value")
        if key in options:
            raise UsageError(f"{text!r} gives {key} twice")
        options[key] = value_of(value)
    return options


def value_of(text: str) -> Option:
    """A value as people write it: a number, true, false or none; anything else is text, with or without quotes."""
    words: Mapping[str, Option] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'\"")
