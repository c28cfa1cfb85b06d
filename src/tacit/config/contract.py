"""The contract: what all parties agree on, equal on all sides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from tacit.config._base import File, Name, Number, Problem, Section, Shape, Whole, as_set
from tacit.config.embedding import Embedding
from tacit.config.gradient import Gradient

__all__ = ["METRICS", "Alignment", "Contract", "Cut", "Minimum", "Share"]

METRICS = ("test_auc",)
"""What a label party may tell the others at the end of an epoch.

Losses are not among them: one row can move a loss as far as its sender likes, so that no rounding hides its label.
"""


class Cut(Section):
    """What a row of an embedding looks like.

    Attributes:
        widths: for each feature party the shape of its rows; a single number is a width.
        dtype: of the numbers that cross the wire.
    """

    widths: dict[str, Shape] = Field(examples=["{ airport = 128 }"])
    dtype: Literal["float32"] = "float32"


class Alignment(Section):
    """How many ids a side may bring: too many cost the other side work, too few would probe for single ids.

    Attributes:
        largest_set: ids of a side, at most; more are refused before any work is done for them.
        smallest_set: of a side's ids and of the common ones, at least.
    """

    largest_set: Whole = 10_000_000
    smallest_set: Whole = 1000

    def _problems(self) -> Iterator[Problem]:
        if self.smallest_set > self.largest_set:
            yield "smallest_set", f"{self.smallest_set} is above largest_set = {self.largest_set}: lower it"


class Minimum(Section):
    """The least that parties must do to what they send; `{ name = "none" }`, written out, demands nothing.

    Attributes:
        gradient: the label party's part.
        embedding: every feature party's part, a list; an empty one demands nothing.
    """

    gradient: Gradient = Field(examples=['{ name = "matched", leak_auc = 0.6 }'])
    embedding: tuple[Embedding, ...] = ()


class Share(Section):
    """What the label party tells the others. A shared figure is a function of the labels that no limit covers.

    Attributes:
        metrics: figures over all test rows, at the end of an epoch, to two digits; nothing else is told.
    """

    metrics: Annotated[tuple[Literal["test_auc"], ...], AfterValidator(as_set)] = ()


class Contract(File):
    """What all parties agree on, from `contract.toml`.

    Attributes:
        run: the name of this training; a new name is a new training.
        label_party: its name, as in its certificate.
        feature_parties: one to eight names.
        loss: "binary" is one logit and labels 0 or 1, "softmax" one logit for each class.
        epochs: how often every example is visited.
        batch_size: examples in a batch.
        test_share: of the common rows, the last ones in their order, which nobody chose; 0 for none.
        cut: what crosses the wire.
        alignment: bounds of the private set intersection.
        minimum: the least protection on both sides.
        share: what the label party tells.
    """

    FILE: ClassVar[str] = "contract.toml"

    run: Name = Field(examples=['"flights"'])
    label_party: Name = Field(examples=['"airline"'])
    feature_parties: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8), AfterValidator(as_set)] = Field(
        examples=['["airport"]']
    )
    loss: Literal["binary", "softmax"] = Field(examples=['"binary"'])
    epochs: Annotated[Whole, Field(le=100_000)] = Field(examples=["3"])
    batch_size: Annotated[Whole, Field(le=2**20)] = Field(examples=["1024"])
    test_share: Annotated[Number, Field(ge=0, lt=1)] = 0.2
    cut: Cut = Field(examples=["with widths = { airport = 128 }"])
    alignment: Alignment = Alignment()
    minimum: Minimum = Field(examples=['with gradient = { name = "matched", leak_auc = 0.6 }'])
    share: Share = Share()

    @property
    def digest(self) -> str:
        """A digest of the content in hex: comments, order, defaults left out and spellings of numbers don't matter."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(b"tacit contract 1\n" + content.encode()).hexdigest()

    def _problems(self) -> Iterator[Problem]:
        if self.label_party in self.feature_parties:
            yield "feature_parties", f"{self.label_party!r} is the label party already: name the others here"
        for name in self.feature_parties:
            if name not in self.cut.widths:
                yield "cut.widths", f"{name!r} has no width: add {name} = 128 or what its bottom model gives"
        for name in self.cut.widths:
            if name not in self.feature_parties:
                yield "cut.widths", f"{name!r} is no feature party: remove it, or add it to feature_parties"
        if self.share.metrics and not self.test_share:
            yield "share.metrics", "test figures need test rows: raise test_share above 0, or share none"
