"""Protections as files name them, and whether one is at least as strong as what was agreed.

Which protections there are, which options each of them has and which of two values is the stronger one stands in the
file of each protection (`tacit.split.protect.facts`), which is imported when a file names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tacit import plugins
from tacit.config.files import Problem, Section, Text, Visits
from tacit.errors import UsageError

_GRADIENT, _EMBEDDING = "tacit.split.protect.gradient", "tacit.split.protect.embedding"


class _Named(Section):
    """A protection by its name, with options that its own file knows: they are checked by what it says of them."""

    model_config = ConfigDict(extra="allow")

    ALWAYS: ClassVar[tuple[str, ...]]  # options that a contract's digest has always counted, given or not

    name: Text

    @classmethod
    def known(cls) -> dict[str, Any]:
        """The protections that files may name, with what is known of them."""
        raise NotImplementedError

    @property
    def facts(self) -> Any:
        """What is known of this one."""
        return self.known()[self.name]

    @property
    def _given(self) -> dict[str, Any]:
        """The options of the file, in the protection's order."""
        extra = self.model_extra or {}
        return {option: extra[option] for option in self.facts.options if option in extra}

    def options(self, epochs: int = 1) -> dict[str, Any]:
        """The arguments for `tacit.protection` or `tacit.embedding_protection`, in a training of so many epochs."""
        return self._given

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, given: Any) -> Any:
        """4 is 4.0 where any number will do, so that both spellings are one contract."""
        if not isinstance(given, dict) or given.get("name") not in (known := cls.known()):
            return given
        numbers = [option.name for option in known[given["name"]].options.values() if option.kind is float]
        return {key: _as_float(value) if key in numbers else value for key, value in given.items()}

    @model_serializer(mode="wrap")
    def _whole(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**dict.fromkeys(self.ALWAYS), **handler(self)}

    def _problems(self) -> Iterator[Problem]:
        known = self.known()
        if self.name not in known:
            yield "name", f"there is no protection {self.name!r}: {_meant(self.name, known)}"
            return
        options, strengths = self.facts.options, [option.name for option in self.facts.strengths]
        for key, value in (self.model_extra or {}).items():
            if key not in options:
                yield key, f"{self.name} has no such option: {_meant(key, options)}"
            elif problem := options[key].problem(value):
                yield key, problem
        given = [name for name in strengths if name in self._given]
        if strengths and not given:
            yield strengths[0], f"{self.name} needs a strength: write {' or '.join(strengths)}"
        elif len(given) > 1:
            yield given[1], f"{' and '.join(given)} are spellings of one strength: keep one"


class Gradient(_Named):
    """What the label party does to a gradient before it is sent, with its one strength.

    Attributes:
        name: of the protection; "none" sends the bare gradient and must be written out.
        visits: for a protection that plans for visits, over how many of one example the strength holds; "epochs", which
            is usual, is as many as there are.
    """

    ALWAYS = ("leak_auc", "sum_kl", "scale", "detection_error", "t")

    name: Text = Field(examples=['"matched"'])
    visits: Visits | None = None

    @classmethod
    def known(cls) -> dict[str, Any]:
        """Those that are a protection by themselves."""
        every = {name: plugins.facts(_GRADIENT, "protection", name) for name in plugins.names(_GRADIENT)}
        return {name: facts for name, facts in every.items() if facts.alone}

    @model_validator(mode="before")
    @classmethod
    def _whole_training(cls, given: Any) -> Any:
        """The strength holds over the whole training, where nothing else is said."""
        facts = cls.known().get(str(given.get("name"))) if isinstance(given, dict) else None
        return given if facts is None or "visits" not in facts.options else {"visits": "epochs", **given}

    def options(self, epochs: int = 1) -> dict[str, Any]:
        """As above; where it plans for visits, for as many as there are."""
        visits = {} if self.visits is None else {"visits": epochs if self.visits == "epochs" else self.visits}
        return {**self._given, **visits}

    def __str__(self) -> str:
        options = {**self._given, **({} if self.visits is None else {"visits": self.visits})}
        given = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in options.items()]
        return f"{self.name}({', '.join(given)})"

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        if self.visits is not None and self.name in self.known() and "visits" not in self.facts.options:
            yield "visits", f"{self.name} does not plan for visits: remove it, or use matched"


class Embedding(_Named):
    """One thing that a feature party does so that its embeddings give less away.

    Attributes:
        name: of the protection.
    """

    ALWAYS = ("weight", "log", "unbiased", "projections", "noise", "width", "std", "snr", "clip")

    name: Text = Field(examples=['"gaussian"'])

    @classmethod
    def known(cls) -> dict[str, Any]:
        """All that there are."""
        return {name: plugins.facts(_EMBEDDING, "protection", name) for name in plugins.names(_EMBEDDING)}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{option}={value}' for option, value in self._given.items())})"


def _as_float(value: Any) -> Any:
    if type(value) not in (int, float):
        return value
    try:
        return float(value) + 0.0  # -0.0 is 0.0
    except OverflowError:
        return float("inf")


def _meant(key: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(key, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"remove it; there are: {', '.join(known) or 'none'}"


def meets(
    minimum: Sequence[Gradient | Embedding],
    own: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    epochs: int = 1,
    whose: str = "the contract's minimum",
) -> None:
    """Refuse protections that are less than what was agreed, for a training of so many epochs; the error says in what.

    Each protection of the minimum must be there under its name, with every option that the minimum spells out at least
    as strong: which of two mechanisms is the stronger one is a matter of attacks. `own` has the name and the options of
    each protection of the party.
    """
    for least in minimum:
        if least.name == "none":
            continue
        wanted = least.options(epochs)
        there = [options for name, options in own if name == least.name]
        weaker = [least.facts.weaker(options, wanted) for options in there]
        if None not in weaker:
            having = f"{least.name} is weaker in {weaker[0]}" if there else f"there is no {least.name}"
            raise UsageError(
                f"{whose} is {least}, and {having}: protect with at least that, in the same spelling, under [protect] "
                "or in Python"
            )
