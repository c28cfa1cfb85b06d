"""The contract: what all parties agree on, equal on all sides. There is one for each of the two ways to train."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from tacit.config.files import Day, File, Name, Names, Number, Problem, Section, Shape, Text, Whole, as_set
from tacit.config.protections import Embedding, Gradient
from tacit.errors import UsageError

WIDEST = 128
"""The numbers that an embedding has of a row, at most."""

MOST_BITS = 5
"""Of each number that one exchange sends of a row."""


class Cut(Section):
    """What a row of an embedding looks like.

    Attributes:
        widths: for each feature party the shape of its rows; a single number is a width.
    """

    widths: dict[str, Shape] = Field(examples=["{ airport = 128 }"])


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


class HeldOut(Section):
    """Which common rows are for testing where that is not left to chance: by time, or by group.

    One party's column says so, and all parties get to know which rows these are.

    Attributes:
        party: whose column it is; the label party if not given.
        date: its column of dates.
        after: rows of this day or later are for testing; those without a date are trained on.
        by: in place of these, its column of groups, such as households: `test_share` of the groups, drawn by the
            alignment's seed, are for testing with all their rows.
    """

    party: Name | None = None
    date: Text | None = Field(default=None, examples=['"clicked_at"'])
    after: Day | None = Field(default=None, examples=["2026-01-01"])
    by: Text | None = Field(default=None, examples=['"household"'])

    @property
    def column(self) -> str | None:
        """The column that says so; None where a random share of the rows is taken."""
        return self.by or self.date

    def _problems(self) -> Iterator[Problem]:
        if (self.date is None) != (self.after is None):
            yield "after", 'date and after go together: write date = "clicked_at" and after = 2026-01-01, or neither'
        if self.by is not None and self.date is not None:
            yield "by", "does not go with date and after: keep one of them"
        if self.party is not None and self.column is None:
            yield "party", "is whose column says which rows are for testing: name the column in by or date"


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

    # no loss: one row can move it as far as its sender likes, so that no rounding hides its label
    metrics: Annotated[tuple[Literal["test_auc"], ...], AfterValidator(as_set)] = ()


class Exchange(Section):
    """The messages of one-shot training: what is sent of a label, and what is sent back of a row.

    Attributes:
        bits: of each number that a feature party sends of a row: it is one of 2**bits cells. 1 to 5.
        numbers: that it sends of a row, the score first; more than one are for features that are no secret.
        smallest: the share of the rows that each cell of the score has at least.
        labels: "flips", each label once; or "none": the embedding is learnt without labels, and none is sent.
        target: what labels are: one of a few classes, or a number.
        classes: how many there are, for the target "classes"; labels are 0, 1, ...
        low: the lowest number; lower ones count as this one. For the target "number".
        high: the highest one.
        cells: steps of the grid of numbers between the two.
        rare: which of two classes is the rare one, which everybody may know; a coin that spares the other one tells
            more about it at the same limit.
        unit: "row", or the column of the label party whose rows with one value, such as a person's, count together.
    """

    bits: Annotated[Whole, Field(ge=1, le=MOST_BITS)] = Field(examples=["3"])
    numbers: Annotated[Whole, Field(ge=1, le=WIDEST)] = 1
    smallest: Annotated[Number, Field(gt=0, lt=1)] = 0.02
    labels: Literal["flips", "none"] = "flips"
    target: Literal["classes", "number"] = "classes"
    classes: Annotated[Whole, Field(ge=2, le=1000)] = 2
    low: Number | None = None
    high: Number | None = None
    cells: Annotated[Whole, Field(ge=2, le=64)] = 16
    rare: Literal["positive", "negative", "neither"] = "neither"
    unit: Text = "row"

    @property
    def form(self) -> str:
        """What is sent of a row, in words.

        >>> Exchange(bits=3).form, Exchange(bits=2, numbers=8).form
        ('one of 8 groups', '8 numbers, each one of 4 groups')
        """
        groups = f"one of {1 << self.bits} groups"
        return groups if self.numbers == 1 else f"{self.numbers} numbers, each {groups}"

    def _problems(self) -> Iterator[Problem]:
        if self.smallest * (1 << self.bits) > 1:
            yield "smallest", f"{1 << self.bits} cells can't all have {self.smallest:g} of the rows: lower it, or bits"
        if self.target == "number":
            if self.low is None or self.high is None or self.low >= self.high:
                yield "low", "numbers have a public range: write low and high, low below high"
            if self.classes != 2:
                yield "classes", 'is for the target "classes": remove it, or write cells'
        elif self.low is not None or self.high is not None:
            yield "low", 'low and high are for the target "number": remove them, or write target = "number"'
        if self.rare != "neither" and (self.target == "number" or self.classes != 2):
            yield "rare", 'is for two classes: write rare = "neither"'


class Terms(File):
    """What all parties agree on, whichever way they train.

    Attributes:
        run: the name of this training; a new name is a new training.
        label_party: its name, as in its certificate.
        feature_parties: one to eight names.
        test_share: of the common rows, the last ones in their order, which nobody chose; 0 for none.
        test: which rows these are, where time or groups decide and not chance.
        positive: of two classes, the value of the label's column that counts as 1; the other one is 0. Without it yes,
            true and 1 do.
        class_names: what the label's column calls more than two classes, from class 0 on; without it class numbers.
        alignment: bounds of the private set intersection.
    """

    FILE: ClassVar[str] = "contract.toml"

    run: Name = Field(examples=['"flights"'])
    label_party: Name = Field(examples=['"airline"'])
    feature_parties: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8), AfterValidator(as_set)] = Field(
        examples=['["airport"]']
    )
    test_share: Annotated[Number, Field(ge=0, lt=1)] = 0.2
    test: HeldOut = HeldOut()
    positive: Text | None = Field(default=None, examples=['"yes"'])
    class_names: Names = Field(default=(), examples=['["none", "basic", "premium"]'])
    alignment: Alignment = Alignment()

    @property
    def digest(self) -> str:
        """A digest of the content in hex: comments, order, defaults left out and spellings of numbers don't matter."""
        content = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(b"tacit contract 1\n" + content.encode()).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """Short digests of all keys, by which it is seen which ones differ: too short to tell what they are."""
        found = {}
        for key, value in self.model_dump(mode="json").items():
            keys = (
                {f"[{key}] {name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
            )
            for name, inner in keys.items():
                content = json.dumps([name, inner], sort_keys=True)
                found[name] = hashlib.sha256(b"tacit contract key 1\n" + content.encode()).hexdigest()[:4]
        return found

    def other_than(self, digests: object) -> list[str]:
        """The keys that differ from those of which a peer has sent the digests."""
        theirs, mine = digests if isinstance(digests, dict) else {}, self.digests
        return [name for name in mine if name in theirs and theirs[name] != mine[name]]

    def content(self) -> dict[str, Any]:
        """Everything that is agreed on; what is newer than other contracts only where it is there."""
        return self.model_dump(mode="json", exclude=set() if self.test.column else {"test"})

    @property
    def tested(self) -> str:
        """What decides which rows are for testing, as alignments have it; empty where chance does."""
        if self.test.column is None:
            return ""
        share = self.test_share if self.test.by else None
        return json.dumps([self.tester, self.test.model_dump(mode="json"), share], sort_keys=True)

    @property
    def tester(self) -> str | None:
        """The party whose column decides that; None where chance does."""
        return None if self.test.column is None else self.test.party or self.label_party

    @property
    def test_words(self) -> str:
        """Which common rows are for testing, in words."""
        if self.test.after is not None:
            return f"those of {self.test.after} and later, by the column {self.test.date!r} of {self.tester}"
        share = f"{self.test_share:.0%} of the common ones"
        return (
            share if self.test.by is None else f"{share}, whole groups by the column {self.test.by!r} of {self.tester}"
        )

    @property
    def trained(self) -> str:
        """Which common rows are trained on, in words."""
        if self.test.after is not None:
            return f"those before {self.test.after} (by {self.test.date})"
        share = "all" if not self.test_share else f"{1 - self.test_share:.0%}"
        return share if self.test.by is None else f"{share} (whole groups by {self.test.by})"

    def train_count(self, count: int) -> int:
        """How many of so many common rows are trained on, the first ones, where chance decides which."""
        return count - int(count * self.test_share)

    def _problems(self) -> Iterator[Problem]:
        if self.label_party in self.feature_parties:
            yield "feature_parties", f"{self.label_party!r} is the label party already: name the others here"
        if self.test.party is not None and self.test.party not in (self.label_party, *self.feature_parties):
            yield "test.party", f"{self.test.party!r} is no party of this contract: name one"
        if self.positive is not None and self.class_names:
            yield "positive", "does not go with class_names, which name all classes: keep one of them"


class OneShotContract(Terms):
    """What all parties agree on who train in one exchange, from `contract.toml`.

    Attributes:
        mode: "one_shot".
        exchange: what crosses the wire.
    """

    mode: Literal["one_shot"] = Field(examples=['"one_shot"'])
    exchange: Exchange = Field(examples=["with bits = 3"])

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        exchange = self.exchange
        if self.positive is not None and (exchange.target == "number" or exchange.classes != 2):
            yield "positive", "is for two classes: remove it, or name all classes in class_names"
        if self.class_names and (exchange.target == "number" or len(self.class_names) != exchange.classes):
            number = "labels are numbers" if exchange.target == "number" else f"[exchange] classes = {exchange.classes}"
            yield "class_names", f"has {len(self.class_names)} names, and {number}: make them agree"


class Contract(Terms):
    """What all parties agree on who train step by step, from `contract.toml`.

    Attributes:
        mode: "split".
        loss: "binary" is one logit and labels 0 or 1, "softmax" one logit for each class.
        epochs: how often every example is visited.
        batch_size: examples in a batch.
        cut: what crosses the wire.
        minimum: the least protection on both sides.
        share: what the label party tells.
    """

    mode: Literal["split"] = "split"
    loss: Literal["binary", "softmax"] = Field(examples=['"binary"'])
    epochs: Annotated[Whole, Field(le=100_000)] = Field(examples=["3"])
    batch_size: Annotated[Whole, Field(le=2**20)] = Field(examples=["1024"])
    cut: Cut = Field(examples=["with widths = { airport = 128 }"])
    minimum: Minimum = Field(examples=['with gradient = { name = "matched", leak_auc = 0.6 }'])
    share: Share = Share()

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        for name in self.feature_parties:
            if name not in self.cut.widths:
                yield "cut.widths", f"{name!r} has no width: add {name} = 128 or what its bottom model gives"
        for name in self.cut.widths:
            if name not in self.feature_parties:
                yield "cut.widths", f"{name!r} is no feature party: remove it, or add it to feature_parties"
        if self.positive is not None and self.loss != "binary":
            yield "positive", 'is for two classes: remove it, or write loss = "binary"'
        if self.share.metrics and not self.test_share:
            yield "share.metrics", "test figures need test rows: raise test_share above 0, or share none"


def read_contract(text: str, where: str | Path | None = None) -> Contract | OneShotContract:
    """A contract of either way to train, from the text of its file; `mode` says which, and none is "split"."""
    try:
        said = tomllib.loads(text)
    except (ValueError, RecursionError):  # told by what reads it whole
        said = {}
    mode, exchange = said.get("mode", "split"), said.get("exchange")
    if mode not in ("one_shot", "split"):
        raise UsageError(
            f'{where or Terms.FILE}: mode: there is no {mode!r}: write "one_shot", labels once and embeddings once, or '
            '"split", step by step'
        )
    if mode == "one_shot" and isinstance(exchange, dict) and "width" in exchange:
        raise UsageError(
            f"{where or Terms.FILE}: exchange.width: one exchange sends cells of a score, no ranked numbers: agree on "
            "bits = 3 in its place, and on a new `run`"
        )
    return OneShotContract.read(text, where) if mode == "one_shot" else Contract.read(text, where)


def load_contract(path: str | Path) -> Contract | OneShotContract:
    """A contract of either way to train, from its file."""
    return read_contract(Terms.text_of(path), path)
