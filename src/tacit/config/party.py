"""A party's own settings: nobody else sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tacit.config.files import (
    Address,
    Count,
    Factory,
    File,
    Name,
    Names,
    Number,
    Positive,
    Problem,
    Section,
    Switch,
    Text,
    Whole,
)
from tacit.config.protections import Embedding, Gradient
from tacit.config.serving import Serve, Variable


class Network(Section):
    """Where the label party listens, or where a feature party finds it.

    Attributes:
        listen: host and port that feature parties connect to; the label party's alone.
        connect: host and port of the label party; a feature party's alone.
    """

    listen: Address | None = None
    connect: Address | None = None


class Data(Section):
    """The party's table.

    Attributes:
        path: a Parquet or CSV file, relative to the party's folder.
        query: an SQL query in its place; `tacit align` copies the rows that it gives then to `table.parquet` in the
            run's folder, and training reads them there.
        url_from: the environment variable that holds the connection string of the query's database, as SQLAlchemy
            spells it.
        ids: the columns that together name a row, as the other parties name it.
        label: the column to be learnt; the label party's alone.
        categorical: columns that become codes.
        numeric: columns that are standardised.
        flagged: numeric columns whose absence becomes a column of its own.
        dates: columns of dates (2014-01-19 or 19.1.2014); each becomes a number of days, a weekday and a month.
        times: the same of dates with a time of day, whose hour is used as well.
        coin_id: the columns by which the label party itself knows a row, for good: a row's label is flipped by a coin
            that hangs on them, and stays the same whoever asks; `ids` if not given. One-shot training alone.
        coin_epoch: raised by one, all labels are read and flipped anew, corrected ones too, and everything that is
            released again is charged again. One-shot training alone.
    """

    path: Text | None = Field(default=None, examples=['"data.parquet"'])
    query: Text | None = None
    url_from: Variable = "TACIT_ROWS_URL"
    ids: Annotated[Names, Field(min_length=1)] = Field(examples=['["flight_id"]'])
    label: Text | None = None
    categorical: Names = ()
    numeric: Names = ()
    flagged: Names = ()
    dates: Names = ()
    times: Names = ()
    coin_id: Names = ()
    coin_epoch: Count = 0

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are learnt from, each once."""
        return tuple(dict.fromkeys((*self.categorical, *self.numeric, *self.dates, *self.times)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column but the ids, each once."""
        label = () if self.label is None else (self.label,)
        return tuple(dict.fromkeys((*self.features, *label)))

    def _problems(self) -> Iterator[Problem]:
        if self.path is None and self.query is None:
            yield "path", 'is missing: add it, for example path = "data.parquet", or an SQL query in its place'
        if self.path is not None and self.query is not None:
            yield "query", "does not go with path: rows come from one place, keep one of them"
        if "url_from" in self.model_fields_set and self.query is None:
            yield "url_from", "is for a query alone: add query, or remove it"
        for name in self.flagged:
            if name not in self.numeric:
                yield "flagged", f"{name!r} is not among the numeric columns: add it there, or remove it here"
        for kind in ("categorical", "numeric", "dates", "times"):
            if self.label is not None and self.label in getattr(self, kind):
                yield kind, f"{self.label!r} is the label: remove it, a model that sees it learns nothing"


class Ripe(Section):
    """When a label is what it will stay: the label party's alone.

    Attributes:
        complete: "30 days after clicked_at", of a column of dates; rows that are younger on the day of an alignment, or
            have no date, stay out of it. Without it all rows take part.
    """

    complete: Text | None = Field(default=None, examples=['"30 days after clicked_at"'])

    @property
    def rule(self) -> tuple[int, str] | None:
        """So many days after the date in which column; None for no rule."""
        found = re.fullmatch(_COMPLETE, self.complete or "")
        return None if found is None else (int(found[1]), found[2])

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that the rule is about, where there is a rule."""
        return () if self.rule is None else self.rule[1:]

    def _problems(self) -> Iterator[Problem]:
        if self.complete is not None and self.rule is None:
            yield "complete", f'{self.complete!r} is no such rule: write "30 days after clicked_at"'


_COMPLETE = r"(\d{1,5}) days? after (.+)"


class Model(Section):
    """The party's half of the model: one of ours by name, or its own.

    Attributes:
        name: of a model of ours.
        layers: ReLU layers in this half.
        embedding: the width of an embedded category, in a bottom.
        sparse: whether tables are updated row by row, for very many categories.
        factory: "file:function" or "module:function", which gets the inputs and gives an nn.Module.
    """

    name: Literal["wide_deep"] | None = None
    layers: Count | None = None
    embedding: Whole | None = None
    sparse: Switch | None = None
    factory: Factory | None = None

    def _problems(self) -> Iterator[Problem]:
        if self.name is None and self.factory is None:
            yield "name", 'is missing: write name = "wide_deep", or factory = "my_model:make" for one of your own'
        if self.factory is not None:
            for key in ("name", "layers", "embedding", "sparse"):
                if getattr(self, key) is not None:
                    yield key, "does not go with factory, which makes the whole model: keep one of them"


LEARNING_RATES = {"label": 0.002, "features": 0.0005}
"""Of each role, where none is given: a half that learns fast from noisy gradients follows the noise."""


FEATURE_LIMIT = 0.9
"""The suggested limit of a feature party: the most that decoders may recover of any one column, category or range."""

BUDGET = 0.75
"""Of a label party that does not set one: seven runs of `matched(leak_auc=0.6)` over the same rows."""

ODDS_BUDGET = 20.0
"""The factor that all releases of one-shot training together may reach, where a label party does not set one."""


class Training(Section):
    """How the party trains its half.

    Attributes:
        optimizer: of this party's half.
        learning_rate: of the optimizer; if not given, 0.002 at a label party and 0.0005 at a feature party, whose
            gradients come with noise.
        threads: of this process; 0 leaves it to torch, which takes all cores.
        device: where networks learn: "auto" is CUDA where there is one. What one exchange sends is computed on the CPU
            in any case; a split run is repeated bit for bit on the CPU alone. Of a split run both halves, one's own
            too, and what protects embeddings compute on the device. Gradients are protected and attacked on the CPU:
            their noise is keyed by the bytes of the gradient that it hides, and what is sent is stored and attacked as
            it was sent, so that each crosses once.
        checkpoint_every: steps between two checkpoints.
        seed: of the first weights; fresh ones are drawn where it is not given.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Positive | None = Field(default=None, examples=["0.002"])
    threads: Count = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    checkpoint_every: Whole = 200
    seed: Annotated[Count, Field(lt=2**63)] | None = None


class Protect(Section):
    """What the party does to what it sends.

    Attributes:
        gradient: the label party's protection; without a default in split training.
        embedding: a feature party's protections, in their order; an empty list sends bare embeddings. Without a default
            in split training.
    """

    gradient: Gradient | None = Field(
        default=None, examples=['{ name = "matched", leak_auc = 0.6, visits = "epochs" }']
    )
    embedding: tuple[Embedding, ...] | None = Field(default=None, examples=['[{ name = "gaussian", snr = 4.0 }]'])


class Learn(Section):
    """How a feature party learns at home, and what it sends of it; one-shot training alone.

    Attributes:
        learner: what learns from flipped labels: boosted trees, a network, a line.
        factory: "file:function" or "module:function" in its place, which gives a learner or an estimator of your own.
        pretrain: whether a network first learns the columns from themselves, without any label.
        sample: how many rows trees learn from at most, drawn at random; without it all that have labels.
        withheld: columns that the learner never sees; the audit still looks for them in what is sent.
        known: the share of the rows that decoders know when they attack what is about to be sent.
    """

    learner: Literal["trees", "network", "linear"] = "trees"
    factory: Factory | None = None
    pretrain: Switch = True
    sample: Annotated[Whole, Field(ge=1)] | None = None
    withheld: Names = ()
    known: Annotated[Number, Field(gt=0, lt=1)] = 0.5


class Head(Section):
    """The label party's private model over embeddings and its own columns; one-shot training alone.

    Attributes:
        kind: boosted trees, or a network.
        factory: "file:function" or "module:function" in its place, which gives an object with `fit` and
            `predict_proba` (or `predict`, for numbers).
        sample: how many rows it learns from at most, drawn at random; without it all that have labels.
    """

    kind: Literal["trees", "network"] = "trees"
    factory: Factory | None = None
    sample: Annotated[Whole, Field(ge=1)] | None = None


class Align(Section):
    """How often a peer may align with this party, for every time it may learn about the ids that changed.

    Attributes:
        runs_a_month: with one peer, in 30 days, those that broke off included. A pause between two of them counts as a
            week at most, for a clock may have been set ahead: who aligns once a month needs 5 or more.
        allow_edits: whether a peer may come with a set whose size differs from that of a former one by a few ids alone.
        keyed_rows_a_month: that a label party may ask a feature party for by key (`tacit predict --match keyed`), in 30
            days, counted likewise, known here or not. The same file over the same table counts once.
    """

    runs_a_month: Whole = 10
    allow_edits: Switch = False
    keyed_rows_a_month: Whole = 10_000_000


class Record(Section):
    """What is kept for the party's own attacks: some batches, and every visit of a few examples, drawn in secret.

    Attributes:
        last: whole batches that are kept, of the newest epoch.
        follow: examples of which every visit is kept; fewer where all of them would take more than 64 MiB.
    """

    last: Count = 24
    follow: Count = 8192


class Live(Section):
    """How often a party attacks what it sends while it trains.

    Attributes:
        every: steps between two looks at a whole batch with the cheap attacks; 0 for none. A run of few steps is looked
            at more often, eight times in all.
        attacks: a label party's, by name; all that cost little if none are named.
        fitted: steps that lie at least between two rounds of all other attacks, which are run at epoch ends; where a
            limit is set they are run at every epoch end.
    """

    every: Count = 128
    attacks: Names = ()
    fitted: Whole = 5000

    def within(self, steps: int) -> Live:
        """The same for a run of so many steps: however short it is, it is looked at eight times."""
        return self.model_copy(update={"every": min(self.every, max(1, steps // 8))})


class Party(File):
    """A party's own settings, from `party.toml`; see the comments of its template for each field.

    A party that trains from Python may leave `[data]` out, and brings its table and its model with it.

    Attributes:
        name: of the party, as in its certificate.
        role: "label" has the column to be learnt, "features" has columns that help.
        limit: that no attack on what this party sends may pass: of a label party the leak AUC of its labels (0.5 is a
            coin flip), of a feature party what can be recovered of a column (0 is nothing). In one exchange that of a
            label party is a bound.
        odds: of a label party in one exchange: the factor by which the odds of a label change at most, for whoever
            sees what is sent; limit / (1 - limit) where it is not given.
        on_limit: what to do where it would be passed: training pauses, or the run ends for good.
        budget: of a label party: the leak AUC that all releases in one exchange together may reach for any unit, or
            that a protection step by step may promise of any row over all visits; 0.75 if not given, and 1 for none.
            Step by step it takes a protection that has a bound for every row.
        odds_budget: of a label party: the factor that the odds of any label may change by over all releases of one-shot
            trainings.
        network: the address.
        data: the party's table.
        label: when a label is complete.
        model: the party's half.
        training: how it learns.
        protect: what is done to what is sent.
        align: how often peers may align.
        record: what is kept for attacks on oneself.
        live: how often these run.
        learn: how a feature party learns at home, in one-shot training.
        head: a label party's private model, in one-shot training.
        serve: how it answers while it serves.
    """

    FILE: ClassVar[str] = "party.toml"

    name: Name = Field(examples=['"airport"'])
    role: Literal["label", "features"] = Field(examples=['"features"'])
    limit: Number | None = Field(default=None, examples=["0.6"])
    on_limit: Literal["pause", "stop"] = "pause"
    budget: Number | None = Field(default=None, examples=["0.7"])
    odds: Number | None = Field(default=None, examples=["3.0"])
    odds_budget: Number = Field(default=ODDS_BUDGET, examples=["20.0"])
    network: Network = Field(examples=['with listen or connect = "airline.example.com:7443"'])
    data: Data | None = Field(default=None, examples=['with path = "data.parquet" and ids = ["flight_id"]'])
    label: Ripe = Ripe()
    model: Model = Model(name="wide_deep")
    training: Training = Training()
    protect: Protect = Protect()
    align: Align = Align()
    record: Record = Record()
    live: Live = Live()
    learn: Learn = Learn()
    head: Head = Head()
    serve: Serve = Serve()

    @property
    def spendable(self) -> float | None:
        """The budget that is kept; None where there is none."""
        if self.role == "features" or self.budget == 1:
            return None
        return BUDGET if self.budget is None else self.budget

    @property
    def address(self) -> str:
        """Where the label party listens, or where a feature party finds it."""
        address = self.network.listen if self.role == "label" else self.network.connect
        assert address is not None  # _problems saw to it
        return address

    def _problems(self) -> Iterator[Problem]:
        label = self.role == "label"
        needed, other = ("listen", "connect") if label else ("connect", "listen")
        if self._other_role(needed, other, label=label):
            theirs = "features" if label else "label"
            yield (
                "role",
                f'this file was written for the role "{theirs}": write that, or make a folder with `tacit init`',
            )
            return
        if getattr(self.network, needed) is None:
            yield f"network.{needed}", f'is missing: add it, for example {needed} = "{_ADDRESSES[needed]}"'
        if getattr(self.network, other) is not None:
            yield f"network.{other}", f"a party with the role {self.role!r} does not {other}: remove it"
        if self.data is not None:  # without it, the party's table, model and protection come from Python
            yield from self._data_problems(self.data, label=label)
        if not label and self.model.layers == 0:
            yield "model.layers", "a feature party's half has at least one layer: write 1 or more"
        yield from self._limit_problems(least=0.5 if label else 0.0)
        for place in _FEATURES_ONLY if label else _LABEL_ONLY:
            table, _, key = place.rpartition(".")
            section: Section | None = getattr(self, table) if table else self
            if section is not None and key in section.model_fields_set and getattr(section, key) is not None:
                yield place, f"is not for a party with the role {self.role!r}: remove it"
        if self.learn.sample is not None and (self.learn.factory or self.learn.learner != "trees"):
            yield "learn.sample", 'is for trees alone: remove it, or write learner = "trees"'

    def _other_role(self, needed: str, other: str, *, label: bool) -> bool:
        """Whether everything but the role is that of the other one: then nothing else need be said."""
        turned = getattr(self.network, needed) is None and getattr(self.network, other) is not None
        return turned and self.data is not None and (self.data.label is not None) != label

    def _limit_problems(self, *, least: float) -> Iterator[Problem]:
        for key in ("limit", "budget"):
            value = getattr(self, key)
            if value is not None and not least < value < 1 and (key, value) != ("budget", 1):
                yield key, f"{value} is not between {least:g} and 1: choose a number in between"
        if self.odds is not None and not 1 < self.odds <= ODDS_BUDGET:
            yield "odds", f"{self.odds:g} is not above 1 and at most 20: write a factor such as 3.0"
        if self.odds_budget <= 1:
            yield "odds_budget", f"{self.odds_budget:g} is not above 1: write a factor such as 20.0"
        if self.limit is not None and not self.record.last:
            yield "record.last", "a limit is held by attacks on recorded batches, and none are kept: write 24"
        if self.limit is not None and not self.record.follow:
            yield "record.follow", "a limit holds over all visits too, and no example is followed: write 8192"

    def _data_problems(self, data: Data, *, label: bool) -> Iterator[Problem]:
        if label and data.label is None:
            yield "data.label", 'is missing: name the column to be learnt, for example label = "late"'
        if not label and not data.features:
            yield "data", "there is no feature: name columns under categorical, numeric, dates or times"

    def split_problem(self) -> str | None:
        """What is missing for a training step by step, where nothing is sent bare by default; None where all is there.

        A party that trains from Python, without `[data]`, brings its protection with it.
        """
        if self.data is None:
            return None
        if self.role == "label" and self.protect.gradient is None:
            return (
                '[protect] gradient is missing: write { name = "matched", leak_auc = 0.6 }, or { name = "none" } to '
                "send bare gradients"
            )
        if self.role == "features" and self.protect.embedding is None:
            return (
                '[protect] embedding is missing: write [{ name = "gaussian", snr = 4.0, clip = 8.0 }], or [] to send '
                "bare embeddings"
            )
        return None


_ADDRESSES = {"listen": "0.0.0.0:7443", "connect": "airline.example.com:7443"}
_SERVE_FEATURES = ("rows_a_minute", "different_rows", "refresh_seconds", "rows")
_FEATURES_ONLY = (
    *("protect.embedding", "align.keyed_rows_a_month", "learn"),
    *(f"serve.{name}" for name in _SERVE_FEATURES),
)
_LABEL_ONLY = (
    *(
        "label",
        "data.label",
        "data.coin_id",
        "data.coin_epoch",
        "protect.gradient",
        "head",
        "budget",
        "odds",
        "odds_budget",
    ),
    *(f"serve.{name}" for name in Serve.model_fields if name not in (*_SERVE_FEATURES, "http")),
)
