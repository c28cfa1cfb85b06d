"""In which form an embedding leaves: how many of its numbers, in how many ranks, under how much noise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Columns, Inputs
from tacit.errors import UsageError
from tacit.one_shot.noise import with_noise
from tacit.one_shot.ranks import Ranks


@dataclass(frozen=True)
class Form:
    """How an embedding is sent: how many of the learnt numbers, in how many ranks, under how much noise."""

    width: int
    ranks: int = 256
    noise: float = 0.0

    def __str__(self) -> str:
        numbers = "1 number" if self.width == 1 else f"{self.width} numbers"
        return f"{numbers} in {self.ranks} ranks, noise {self.noise:g}"

    def weaker(self) -> Iterator[Form]:
        """This one, and what tells less, step by step: narrower, then coarser, then noisier."""
        form = self
        yield form
        while form.width > 1:
            form = replace(form, width=form.width // 2)
            yield form
        while form.ranks > 4:
            form = replace(form, ranks=max(4, form.ranks // 8))
            yield form
        for noise in (1.0, 2.0, 4.0):
            if noise > self.noise:
                form = replace(form, noise=noise)
                yield form


@dataclass(frozen=True)
class Coding:
    """An embedding in a form, fitted on its training rows; any other row is coded alike."""

    form: Form  # of the embedding
    width: int  # of the message, which has one shape: numbers that are not sent are all 0
    scale: tuple[float, ...]  # the noise on each number; empty without noise
    version: str  # of the embedding and its form, by which noise is keyed
    ranks: Ranks  # of the numbers that are sent

    @classmethod
    def fit(cls, z: NDArray[np.float32], form: Form, *, width: int, secret: bytes, digest: str) -> Self:
        """Ranks, and noise in units of each number's deviation, of the training rows' embedding."""
        kept, version, scale = z[:, : form.width], f"{digest} {form}", ()
        if form.noise:
            spread = kept.std(axis=0, dtype=np.float64)
            scale = tuple((form.noise * np.where(spread > 0, spread, 1.0)).tolist())
            kept = with_noise(kept, np.array(scale), secret=secret, version=version)
        return cls(form, width, scale, version, Ranks.fit(kept, levels=form.ranks))

    def codes(self, z: NDArray[np.float32], secret: bytes) -> NDArray[np.uint8]:
        """The ranks of any rows' first numbers.  (rows, width)"""
        kept = z[:, : self.form.width]
        if self.scale:
            kept = with_noise(kept, np.array(self.scale), secret=secret, version=self.version)
        codes = np.zeros((len(z), self.width), np.uint8)
        codes[:, : self.form.width] = self.ranks.code(kept)
        return codes

    @classmethod
    def read(cls, state: Mapping[str, Any], width: int) -> Self:
        """What `state` gave, a coding again; `width` is that of the message."""
        form = Form(**state["form"])
        return cls(form, width, tuple(state["scale"]), state["version"], Ranks.read(state["ranks"]))

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "form": vars(self.form), "ranks": self.ranks.state(), "scale": list(self.scale), "version": self.version,
        }  # fmt: skip


def shown(inputs: Inputs, columns: Columns, withheld: Collection[str], what: str = "[learn] withheld") -> Inputs:
    """The inputs without the columns that their owner withholds from the learner."""
    unknown = set(withheld) - set(columns.names)
    if unknown:
        raise UsageError(f"{what}: {', '.join(sorted(unknown))} is none of the columns: correct the name")
    if not withheld:
        return inputs  # as it is mapped from files: no copy
    categories = [place for place, name in enumerate(columns.categorical) if name not in withheld]
    numbers = [place for place, name in enumerate((*columns.numeric, *columns.flagged)) if name not in withheld]
    if not categories and not numbers:
        raise UsageError(f"{what}: no column is left to learn from: withhold fewer")
    cardinalities = tuple(inputs.cardinalities[place] for place in categories)
    return Inputs(inputs.categorical[:, categories], inputs.numeric[:, numbers], cardinalities)
