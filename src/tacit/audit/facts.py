"""What an attack says of itself beside its formula: where it is tried, and what it needs for that.

Every attack's file has one such record, `FACTS`, and a docstring with `Knows:` and `Costs:` for people. Audits, the
gate of a running training, its live look and sweeps choose by it; none of them names an attack.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Need = Literal["labels", "share", "clean", "embedding"]
"""What an attack can't do without: some labels, the share of positives, a clean positive gradient for each step, or the
party's own embeddings. Gradients are there for all."""

Sweep = Literal["every batch", "some batches", "last batches"]
"""Where a sweep tries an attack: what takes a few passes on every batch, what takes more on one batch of each stretch,
and what needs several batches together on the last ones, which are recorded."""


@dataclass(frozen=True)
class Facts:
    """What others need to know about an attack before they try it."""

    order: int = 1000  # its place in reports and tables; of two attacks that found the same, the first one is named
    needs: tuple[Need, ...] = ()  # what it can't do without
    audited: bool = True  # whether audits try it on single batches
    variants: tuple[Mapping[str, Any], ...] = ({},)  # the options with which they do
    # the options with which it looks at gradients alone, where visits are joined and in sweeps: what embeddings tell is
    # told by every trained model, and a protection does not answer for it
    on_gradients: Mapping[str, Any] = field(default_factory=dict)
    joined: tuple[str, ...] = ()  # how an audit joins all visits of an example for it, as `accumulated` takes it
    steers: bool = (
        False  # whether what it finds, in less than a second, decides whether a training under a limit goes on
    )
    live: bool = False  # whether it looks at single batches while a training runs; it should take some milliseconds
    # where a sweep tries it; on every batch and on some it must do with one batch alone and draw no randomness
    sweep: Sweep | None = None


class Described(NamedTuple):
    """What an attack's docstring says of it, each as one line of text."""

    about: str  # what it does, in one sentence
    knows: str  # what it uses of the view and of what is granted
    costs: str  # how much work it is


def described(factory: Callable[..., Any]) -> Described:
    """The first sentence of a function's docstring, and what stands there after `Knows:` and `Costs:`."""
    about, *rest = inspect.cleandoc(factory.__doc__ or "").splitlines()
    return Described(about, _after("Knows:", rest), _after("Costs:", rest))


def _after(word: str, lines: Sequence[str]) -> str:
    """What follows a word that begins a line, with the lines after it that are set in."""
    start = next((place for place, line in enumerate(lines) if line.startswith(word)), None)
    if start is None:
        return ""
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return " ".join(" ".join(lines[start:end]).removeprefix(word).split())
