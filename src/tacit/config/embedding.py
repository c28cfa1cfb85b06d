"""An embedding protection as files name it, and whether a list of them is at least what was agreed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from tacit.config._base import Count, Positive, Problem, Section, Whole
from tacit.errors import UsageError

__all__ = ["EMBEDDING_OPTIONS", "Embedding", "meets_embedding"]

EMBEDDING_OPTIONS = {
    "adversarial": ("weight",),
    "distance_correlation": ("weight", "log", "unbiased", "projections"),
    "gaussian": ("std", "snr", "clip"),
    "noise_regularization": ("weight", "noise", "width"),
    "quantize": ("bits",),
}
"""The embedding protections that files may name, each with its options."""

_NEEDED = {"gaussian": ("std", "snr"), "quantize": ("bits",)}  # exactly one of these; of all others the weight

_MORE_IS_STRONGER = ("weight", "std")
_LESS_IS_STRONGER = ("snr", "clip", "bits")

Flag = Annotated[bool, Strict()]


class Embedding(Section):
    """One thing that a feature party does so that its embeddings give less away.

    Attributes:
        name: of the protection.
        weight: of the loss that it adds to the party's own.
        log: whether the logarithm of the distance correlation is the loss.
        unbiased: whether the distance correlation is the one that does not depend on the size of the batch.
        projections: random projections of its fast estimate; 0 for the exact one at every size of a batch.
        noise: what reconstructions are drawn to.
        width: of that noise: its deviation, or half its range.
        std: deviation of the noise on each number of an embedding.
        snr: power of the embedding over that of the noise.
        clip: the largest norm of an embedding.
        bits: of each number of an embedding.
    """

    name: Literal["adversarial", "distance_correlation", "gaussian", "noise_regularization", "quantize"] = Field(
        examples=['"gaussian"']
    )
    weight: Positive | None = None
    log: Flag | None = None
    unbiased: Flag | None = None
    projections: Count | None = None
    noise: Literal["gaussian", "uniform"] | None = None
    width: Positive | None = None
    std: Positive | None = None
    snr: Positive | None = None
    clip: Positive | None = None
    bits: Annotated[Whole, Field(le=16)] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments for `tacit.embedding_protection(name, **options)`."""
        given = {option: getattr(self, option) for option in EMBEDDING_OPTIONS[self.name]}
        return {option: value for option, value in given.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{option}={value}' for option, value in self.options().items())})"

    def _problems(self) -> Iterator[Problem]:
        allowed = EMBEDDING_OPTIONS[self.name]
        for option in type(self).model_fields:
            if option != "name" and option not in allowed and getattr(self, option) is not None:
                yield option, f"{self.name} has no such option: remove it; there are: {', '.join(allowed)}"
        needed = _NEEDED.get(self.name, ("weight",))
        given = [option for option in needed if getattr(self, option) is not None]
        if not given:
            yield needed[0], f"{self.name} needs a strength: write {' or '.join(needed)}"
        elif len(given) > 1:
            yield given[1], f"{' and '.join(given)} are spellings of one strength: keep one"


def meets_embedding(
    minimum: Sequence[Embedding], own: Sequence[tuple[str, Mapping[str, Any]]], *, whose: str = "the contract's"
) -> None:
    """Refuse protections that are less than what was agreed; a `UsageError` says in what.

    Like is compared with like: each protection of the minimum must be there under its name, with every option that
    the minimum spells out at least as strong.

    Args:
        minimum: the least that was agreed; an empty list demands nothing.
        own: what the feature party is going to do: name and options of each protection, defaults filled in.
        whose: minimum it is, for the message.
    """
    for least in minimum:
        there = [options for name, options in own if name == least.name]
        if not any(_at_least(options, least.options()) for options in there):
            having = f"its {least.name} is weaker" if there else f"there is no {least.name}"
            raise UsageError(
                f"{whose} least protection of embeddings is {least}, and {having}: protect them with at least that"
            )


def _at_least(own: Mapping[str, Any], least: Mapping[str, Any]) -> bool:
    for option, wanted in least.items():
        mine = own.get(option)
        if mine is None:
            return False
        if option in _MORE_IS_STRONGER:
            enough = mine >= wanted
        elif option in _LESS_IS_STRONGER:
            enough = mine <= wanted
        else:
            enough = mine == wanted
        if not enough:
            return False
    return True
