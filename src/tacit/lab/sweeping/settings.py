"""What one replica of a sweep is, a protection at one strength and a seed; and which of them a sweep tries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.contracts import Protection
from tacit.errors import UsageError
from tacit.split.protect import gradient
from tacit.split.protect.gradient import protection
from tacit.split.protect.labels.randomized_response import FACTS as FLIPS
from tacit.split.protect.labels.randomized_response import randomized_response

Option = float | int | str | bool | None
"""What an option of a protection may be."""


@dataclass(frozen=True)
class Setting:
    """One replica: what its label party does, and where its randomness starts."""

    protection: str  # a gradient protection's name, or "randomized_response"
    knob: str | None = None  # the option that is its strength; None where it has none, as for `none` and `max_norm`
    strength: float | None = None  # the value of that option; None where it has none
    others: tuple[tuple[str, Option], ...] = ()  # its other options, as pairs of name and value
    seed: int = 0  # of first weights, batches and noise

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Setting:
        """The setting of a row of results."""
        others = tuple((key, value) for key, value in json.loads(row["options"]).items() if key != row["knob"])
        return cls(row["protection"], row["knob"], row["strength"], others, row["seed"])

    @property
    def options(self) -> Mapping[str, Option]:
        """All options of the protection, the strength among them."""
        knob = {} if self.knob is None else {self.knob: self.strength}
        return {**knob, **dict(self.others)}

    @property
    def spelled(self) -> str:
        """As it would be written in code, for tables and legends.

        >>> Setting("marvell", "scale", 4.0).spelled
        'marvell(scale=4)'
        """
        shown = (
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in self.options.items()
        )
        return f"{self.protection}({', '.join(shown)})" if self.options else self.protection

    @property
    def options_json(self) -> str:
        """The options as they stand in a results file."""
        return json.dumps(dict(self.options), sort_keys=True)

    @property
    def flips(self) -> bool:
        """Whether it acts on the labels before the loss and not on gradients."""
        return self.protection == "randomized_response"

    def build(self) -> Protection:
        """The gradient protection; `none` where labels are flipped instead."""
        return protection("none") if self.flips else protection(self.protection, **dict(self.options))


# --- which ones a sweep tries ----------------------------------------------------------------------------------------


_SPELLED = re.compile(r"\s*(?P<name>\w+)\s*(?::\s*(?P<knob>\w+)\s*)?(?:\((?P<options>[^()]*)\))?\s*")


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
            (`"matched(visits=5)"`), or at one strength (`"marvell(sum_kl=0.1)"`). Its file has the strengths.
        strengths: how many of each that is not spelled out; `none` and `max_norm` have none and run once.
        seeds: of first weights, batches and noise; every setting runs with each of them.
        strongest: for a protection's usual knob another strong end than that of its file.

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
    found = _SPELLED.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no protection: write a name, name:knob or name(option=value, ...)")
    name, options = found["name"], spelled_options(text, found["options"] or "")
    known = sorted({*gradient.names(), "randomized_response"})
    if name not in known:
        raise UsageError(f"there is no protection {name!r} for a sweep; there are: {', '.join(known)}")
    facts = FLIPS if name == "randomized_response" else gradient.facts(name)
    knobs = {option.name: option for option in facts.strengths}
    given = [key for key in options if key in knobs]
    if len(given) > 1 or (given and found["knob"]):
        raise UsageError(f"{text!r} names more than one strength: a protection has one, of {', '.join(knobs)}")
    if given:
        made = [_one(text, name, given[0], options.pop(given[0]), options)]
    elif not knobs:
        if found["knob"]:
            raise UsageError(f"{text!r}: {name} has no strength; write {name!r}")
        made = [Setting(name, others=tuple(options.items()))]
    else:
        usual = next(iter(knobs))
        knob = found["knob"] or usual
        if knob not in knobs:
            raise UsageError(f"{name} has no strength {knob!r}; there are: {', '.join(knobs)}")
        if knobs[knob].sweep is None:
            raise UsageError(f"{text!r} has no usual strengths: spell it, as {name}({knob}=...)")
        values = knobs[knob].strengths(strengths, strongest.get(name) if knob == usual else None)
        made = [_one(text, name, knob, value, options) for value in values]
    for one in made:  # what can't be built is refused now and not in the middle of a sweep
        if not one.flips:
            one.build()
        elif one.others:
            raise UsageError(f"randomized_response takes a rate and nothing else, not {one.others[0][0]}")
        else:
            randomized_response(one.strength or 0.0)
    return made


def _one(text: str, name: str, knob: str, value: Option, others: Mapping[str, Option]) -> Setting:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise UsageError(f"{text!r}: {knob} = {value!r} is no number")
    return Setting(name, knob, float(value), tuple(sorted(others.items())))


def spelled_options(text: str, inside: str) -> dict[str, Option]:
    """Options as people write them, "key=value, key=value"; the whole text is for errors."""
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
