"""One-shot training in one process: the same coins, learners, decoders and heads as between two companies.

What each side would send, and what could be read of it, is seen before anybody sends anything.
"""

from __future__ import annotations

import math
import secrets
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.arguments import count, device_named
from tacit.config import Exchange
from tacit.config.contract import MOST_BITS, WIDEST
from tacit.contracts import Estimate
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.exchange._rows import received_target
from tacit.exchange.findings import ReleaseAudit
from tacit.exchange.head import fit_head
from tacit.exchange.judged import FEWEST, Tested
from tacit.exchange.learn import Bottom, pca
from tacit.exchange.learn import learner as named_learner
from tacit.exchange.learn.network import Network
from tacit.exchange.learn.own import own as own_learner
from tacit.exchange.learn.own import own_unlabelled
from tacit.exchange.model import Model, nothing
from tacit.exchange.reading import Reader, check_index, labels_of
from tacit.exchange.releasing import Home, Released, release, shown
from tacit.labels.coins import Coins, counted_keys
from tacit.labels.label_bound import LabelBound
from tacit.labels.mechanisms import Mechanism, agreed_mechanism, described
from tacit.labels.numbers import NumberFlips
from tacit.labels.records import Charge, Summary
from tacit.labels.target import Labels, figures, read_target
from tacit.labels.target import Target as Truth
from tacit.progress import Progress

_FEW_LABELS = 20  # different numbers that may be classes, at most
_WIDE = 100  # characters of a line of a result


@dataclass(frozen=True, repr=False)
class Result:
    """What both sides have when it is over; `print` shows it on one screen."""

    label_bound: LabelBound  # the label party's: what was sent of its labels, and the bound
    # the feature party's: what decoders read of its embedding; None where they were not asked to
    audit: ReleaseAudit | None
    figures: dict[str, float]  # on the test rows, with the feature party's embedding
    alone: dict[str, float]  # the same of the model without it, which also scores rows that have no partner
    # of all rows, in the order they were given: the probability of class 1, of all classes, or numbers
    scores: NDArray[np.float64]
    codes: NDArray[np.uint8]  # the embedding as it was sent, in the same order. (rows, numbers)
    sent: NDArray[np.int64]  # of the training rows' labels; -1 for test rows. (rows,)
    test: NDArray[np.intp]  # the numbers of the test rows
    released: Released  # the embedding, and the cells of its numbers
    form: str  # what was sent of a row
    model: Model  # both halves, to score other rows and to keep
    tested: Tested  # the test rows that have a label
    secret: bytes  # keys coins

    @property
    def bottom(self) -> Any:
        """What made the embedding."""
        return self.released.bottom

    def embed(self, features: Any) -> NDArray[np.uint8]:
        """What would be sent of other rows.  (rows, numbers)"""
        return self.model.embed(features)

    def predict(self, *, features: Any = None, own: Any = None) -> Any:
        """Scores of other rows, in the kind in which they are given: see `tacit.exchange.model.Model.predict`."""
        return self.model.predict(features=features, own=own)

    def save(self, folder: str | Path) -> Path:
        """Write the model to a new folder, without pickle; `tacit.load` brings it back."""
        return self.model.save(folder)

    def worth(self, by: Any = None) -> pl.DataFrame:
        """What the partner is worth: each figure on the test rows with its numbers and without, and the difference.

        The difference has a 95% interval, a bootstrap over the test rows. `by` is a column of all rows in the order in
        which they were given, such as households: rows with one value are drawn together.
        """
        groups = None if by is None else np.unique(_column_of(by, len(self.scores)).to_numpy()[self.tested.rows],
                                                   return_inverse=True)[1]  # fmt: skip
        return self.tested.worth(groups)

    def by(self, segment: Any) -> pl.DataFrame:
        """The figures on the test rows of each value of a column, given for all rows in their order."""
        return self.tested.by(_column_of(segment, len(self.scores)))

    def calibration(self, bins: int = 10) -> pl.DataFrame:
        """Mean score and share of ones on the test rows, in parts of equal size by their score."""
        return self.tested.calibration(bins)

    def importance(self) -> pl.DataFrame:
        """How much worse the model gets on the test rows where an own column, or the partner, is shuffled."""
        return self.tested.importance(self.model.head)

    def plot(self) -> Any:
        """Calibration, importance, and what decoders read of the features, as a Matplotlib figure."""
        from tacit.exchange.plotting import plot

        return plot(self.tested, self.model.head, self.audit)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        bound = f"<p>{escape(self.label_bound.sentence)} {escape(self.label_bound.posterior)}</p>"
        worth = self.worth() if len(self.tested.truth) >= FEWEST else None
        told = "" if worth is None else worth.with_columns(pl.selectors.float().round(4))._repr_html_()
        read = [f"<p>{escape(line)}</p>" for line in (_sent_of_features(self), *_read(self.audit)[:1])]
        if self.audit is not None:
            read.append(_by_column(self.audit)._repr_html_())
        return f"<h4>{len(self.test):,} test rows</h4>{told}<h4>Labels</h4>{bound}<h4>Features</h4>{''.join(read)}"

    def __repr__(self) -> str:
        """One screen."""
        label_bound = self.label_bound
        told = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.figures.items())
        alone = ", ".join(f"{value:.4f}" for value in self.alone.values())
        lines = [f"{label_bound.rows:,} rows trained on, {len(self.test):,} tested: {told or 'no figures'}"]
        lines += [f"without the features: {alone}"] if alone else []
        lines += ["", f"Labels: {label_bound.mechanism}.", *_wrapped(label_bound.sentence)]
        lines += [*_wrapped(label_bound.posterior), *_wrapped(label_bound.why)]
        lines += ["", *_wrapped(_sent_of_features(self))]
        return "\n".join([*lines, *_read(self.audit)])


def one_shot(  # a public entry point: each setting by name, and both parties from top to bottom
    *,
    features: Any,
    labels: Any,
    own: Any = None,
    limit: float | None = 0.6,
    odds: float | None = None,
    bits: int = 3,
    numbers: int = 1,
    smallest: float = 0.02,
    send_labels: bool = True,
    rare: str = "neither",
    classes: int | None = 2,
    low: float | None = None,
    high: float | None = None,
    cells: int = 16,
    learner: Any = "trees",
    head: Any = "trees",
    withheld: Collection[str] = (),
    feature_limit: float | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    secret: bytes | None = None,
    threads: int = 1,
    device: str = "auto",
    audit: bool = True,
    progress: Progress | None = None,
) -> Result:
    """Train both parties of a one-shot training in one process, on rows that are aligned already.

    Labels are flipped once, the bottom learns from the flipped ones alone, its embedding is attacked before it would
    leave, and the private head learns from true labels, own columns and the embedding.

    Args:
        features: the feature party's columns: a polars or pandas DataFrame, a NumPy array, a tensor or `Inputs`.
        labels: classes from 0 on, or numbers; missing ones are allowed.
        own: the label party's own columns, as features; None if it has none.
        limit: the leak AUC of a label that nobody can pass, above 0.5 and below 1.
        odds: the factor by which a label's odds change at most; needed with three classes and more.
        bits: of each number that is sent of a row: it is one of 2**bits cells. 1 to 5.
        numbers: that are sent of a row, 1 to 128; more than one are for features that are no secret.
        smallest: the share of the rows that each cell of the score has at least.
        send_labels: False where the embedding is learnt without labels, and none is sent.
        rare: which of two classes is rare, as everybody may know: "positive", "negative" or "neither".
        classes: how many there are; 0 or None for numbers, which have `low` and `high`.
        low: the lowest number; lower ones count as this one.
        high: the highest one.
        cells: steps of the grid of numbers.
        learner: "trees", "network", "linear", an object with `fit` such as scikit-learn's, or an `nn.Module` that makes
            hidden units of rows: called with numbers alone, with codes and numbers where there are categories. Where no
            label is sent, "trees" stands for principal components, and an object has `fit` and `transform`.
        head: "trees", "network", an object with `fit` and `predict_proba`, or an `nn.Module`.
        withheld: columns that the learner never sees; decoders still look for them.
        feature_limit: the most that decoders may recover of any column, category or range, 0 to 1; a
            `LimitError` where it does not hold. None for none.
        test_share: of the rows, drawn by `seed` alone.
        seed: of everything that is drawn but coins.
        secret: of at least 32 bytes, keys coins. None draws a fresh one, which `Result.secret` has: pass that to have
            the same labels sent again, for fresh coins about the same labels would tell more.
        threads: that may be used.
        device: where networks learn: "cpu", "cuda", or "auto" for CUDA where there is one.
        audit: whether decoders attack the embedding, most of the time that it takes.
        progress: told what is being done, how much of it is done and how much there is.
    """
    tell = progress or (lambda *_: None)
    tell("preparing", 0, 1)
    count("bits", bits, high=MOST_BITS)
    count("numbers", numbers, high=WIDEST)
    if not 0 < smallest <= 1 / (1 << bits):
        raise UsageError(f"smallest = {smallest!r}: {1 << bits} cells can't all have that share of the rows: lower it")
    if feature_limit is not None and not (audit and 0 < feature_limit <= 1):
        raise UsageError(f"feature_limit = {feature_limit!r}: a number above 0 and up to 1, with audit = True")
    key = _secret(secret)
    sizes = {"bits": bits, "numbers": numbers, "smallest": smallest, "labels": "flips" if send_labels else "none"}
    table = _table(features, labels, own, _exchange(sizes, rare, classes, low, high, cells), test_share, seed)
    mechanism = agreed_mechanism(table.exchange, limit, odds) if send_labels else None
    sent, label_bound = _sent(table, mechanism, key)
    device, columns, train = device_named(device), table.readers[0].columns, table.train
    shown(table.rows, columns, tuple(withheld), "withheld")  # a wrong name is told before anything is learnt
    home = Home(
        table.rows, columns, train, table.exchange, tuple(withheld), limit=feature_limit, attacked=audit, seed=seed,
        threads=threads, progress=tell,
    )  # fmt: skip

    def learnt(rows: Inputs) -> Bottom:
        return _learnt(learner, rows[:train] if mechanism is None else rows, sent, mechanism, home, device)

    received = None if mechanism is None else received_target(sent, mechanism)
    released = release(learnt(home.shown), received, home, learnt)
    return _fitted(table, home, released, sent, label_bound, head, device, key)


def _learnt(
    learner: Any, rows: Inputs, sent: NDArray[Any], mechanism: Mechanism | None, home: Home, device: str
) -> Bottom:
    """What the feature party learns, from flipped labels or, where none was sent, without."""
    numbers, seed = home.exchange.numbers, home.seed
    if mechanism is None:
        return pca.fit(rows, numbers, seed=seed) if isinstance(learner, str) else own_unlabelled(learner, rows, numbers)
    made = named_learner(learner) if isinstance(learner, str) else own_learner(learner)
    if isinstance(made, Network):
        made = replace(made, device=device)
        if isinstance(made.pretraining, nn.Module) and not rows.cardinalities:
            made = replace(made, pretraining=_OfNumbers(made.pretraining))
    return made.fit(rows, sent, mechanism, numbers, seed=seed, threads=home.threads, progress=home.progress)


# --- what is given ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """Both sides' rows in a common order that nobody chose, training rows first."""

    rows: Inputs
    own: Inputs
    target: Truth
    order: NDArray[np.intp]
    train: int
    readers: tuple[Reader, Reader | None]
    exchange: Exchange


def _exchange(
    sizes: dict[str, Any], rare: str, classes: int | None, low: float | None, high: float | None, cells: int
) -> Exchange:
    """What two companies would agree on, or what is wrong with it."""
    count("cells", cells, low=2, high=64)
    if rare not in ("positive", "negative", "neither") or (rare != "neither" and classes != 2):
        raise UsageError(f'rare = {rare!r}: "positive" or "negative" of two classes, or "neither"')
    if not classes:
        if low is None or high is None or not low < high:
            raise UsageError("numbers have a public range: pass low and high, low below high")
        return Exchange(**sizes, target="number", low=float(low), high=float(high), cells=cells)
    if low is not None or high is not None:
        raise UsageError("low and high are the range of numbers: leave them out, or pass classes = None")
    return Exchange(**sizes, classes=count("classes", classes, low=2, high=1000), rare=rare)  # type: ignore[arg-type]


def _table(features: Any, labels: Any, own: Any, exchange: Exchange, test_share: float, seed: int) -> _Table:
    column = labels_of(labels)
    _check_kind(column, exchange)
    total = len(column)
    check_index(features, {"labels": labels, "own": own})
    for what, given in (("features", features), ("own", own)):
        if given is not None and len(given) != total:
            raise TensorError(
                f"{what} have {len(given)} rows and labels {total}: pass aligned rows, one label for each"
            )
    if not 0 <= test_share < 1:
        raise UsageError(f"test_share = {test_share!r}: a share from 0 to below 1, as 0.2")
    train = total - int(total * test_share)
    order = np.random.default_rng([seed, 7]).permutation(total)
    reader = Reader.fit(features, order[:train], "features")
    owner = None if own is None else Reader.fit(own, order[:train], "own")
    told = Labels(column.name, exchange)
    told.add(column)
    told.check()
    target = read_target(column[order], exchange, order)
    mine = nothing(total) if owner is None else owner.read(own, "own")
    rows, place = reader.read(features, "features"), torch.from_numpy(order)
    return _Table(rows[place], mine[place], target, order, train, (reader, owner), exchange)


def _check_kind(column: pl.Series, exchange: Exchange) -> None:
    """Refuse numbers where classes are to be learnt, and say what to pass."""
    numbers = column.drop_nulls().cast(pl.Float64, strict=False) if column.dtype.is_numeric() else None
    if numbers is None or exchange.target == "number":
        return
    seen = numbers.drop_nans()
    if seen.n_unique() > _FEW_LABELS and seen.n_unique() > exchange.classes:
        low, high = math.floor(seen.min()), math.ceil(seen.max())  # type: ignore[arg-type]
        raise LabelsError(
            f"labels are numbers, {seen.n_unique():,} different ones, and classes = {exchange.classes}: pass "
            f"classes=None with a public range, such as low={low}, high={high}, or labels that are classes"
        )


class _OfNumbers(nn.Module):
    """A module of the user's for rows without categories: it gets numbers alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, categorical: Tensor, numeric: Tensor) -> Tensor:
        units: Tensor = self.module(numeric)
        return units


def _secret(secret: bytes | None) -> bytes:
    if secret is None:
        return secrets.token_bytes(32)
    if not isinstance(secret, bytes) or len(secret) < 32:
        raise UsageError("secret is too short: pass at least 32 random bytes, as secrets.token_bytes(32), or None")
    return secret


# --- what is made of it ----------------------------------------------------------------------------------------------


def _sent(table: _Table, mechanism: Mechanism | None, secret: bytes) -> tuple[NDArray[Any], LabelBound]:
    """The training rows' labels as they are sent, -1 where none is, and the bound on what that tells."""
    target, train = table.target, table.train
    if mechanism is None:
        return np.full(train, -1, np.int64), LabelBound.of(None, 0, Summary("row", (), (), 0), None)
    labels = mechanism.cell_of(target.values) if isinstance(mechanism, NumberFlips) else target.values
    known = np.where(target.known, labels, -1).astype(np.int64)[:train]
    coins = Coins(secret, column="labels", definition=target.definition, epoch=0)
    sent = coins.draw(mechanism, counted_keys(table.order[:train]), known)
    charge = Charge(train, mechanism.auc, mechanism.odds, described(mechanism))
    share = float(target.values[:train][target.known[:train]].mean()) if target.classes == 2 else None
    return sent, LabelBound.of(mechanism, train, Summary("row", (), (charge,), train), share)


def _fitted(
    table: _Table,
    home: Home,
    released: Released,
    sent: NDArray[Any],
    label_bound: LabelBound,
    head: Any,
    device: str,
    secret: bytes,
) -> Result:
    """The private models, and everything in the order in which rows were given."""
    target, test = table.target, slice(table.train, len(table.order))
    heads, given = [], (released.codes, None)
    for kind, codes in zip((head, "network" if isinstance(head, nn.Module) else head), given, strict=True):
        what = "fitting the model" if codes is not None else "fitting it without the features"

        def told(_: str, done: int, total: int, what: str = what) -> None:
            home.progress(what, done, total)

        fitted = fit_head(
            kind, codes, table.own, target.values, classes=target.classes or None, train=table.train, seed=home.seed,
            threads=home.threads, device=device, blank=released.codes.shape[1], progress=told,
        )  # fmt: skip
        heads.append(fitted)
    home.progress("scoring", 0, 1)
    scores = [
        fitted.predict(codes, table.own, threads=home.threads) for fitted, codes in zip(heads, given, strict=True)
    ]
    home.progress("scoring", 1, 1)
    back = np.argsort(table.order)
    whole = np.full(len(table.order), -1, np.int64)
    whole[table.order[: table.train]] = sent
    return Result(
        label_bound, released.audit, figures(target, test, scores[0][test]), figures(target, test, scores[1][test]),
        scores[0][back], released.codes[back], whole, np.sort(table.order[test]), released, table.exchange.form,
        Model(released.bottom, released.cells, heads[0], heads[1], table.readers, home.withheld),
        Tested.of(target, table.order, table.train, scores[0], scores[1], released.codes, table.own), secret,
    )  # fmt: skip


# --- in words --------------------------------------------------------------------------------------------------------


def _sent_of_features(result: Result) -> str:
    return f"Features: of each row {result.form}, by {result.bottom.name}. There is no bound on what that tells."


def _column_of(given: Any, rows: int) -> pl.Series:
    """A column that goes with all rows."""
    column = given if isinstance(given, pl.Series) else pl.Series(np.asarray(given))
    if len(column) != rows:
        raise TensorError(f"the column has {len(column)} rows, and {rows} were given: pass one value for each")
    return column


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, _WIDE)


def _by_column(audit: ReleaseAudit) -> pl.DataFrame:
    """The most that decoders read of each column, worst first."""
    rows = [
        (name, one.question, one.decoder, one.given, one.members, *(round(end, 3) for end in _ends(one.read)))
        for name, one in audit.columns().items()
    ]
    names = ["column", "most read of it", "decoder", "all others known", "rows", "read", "low", "high"]
    return pl.DataFrame(rows, schema=names, orient="row")


def _ends(read: Estimate) -> tuple[float, float, float]:
    return read.value, read.low, read.high


def _read(audit: ReleaseAudit | None) -> list[str]:
    """What decoders read, the worst of each column."""
    if audit is None:
        return ["They were not attacked (audit = False)."]
    lines = [
        f"Decoders read {audit.numbers:.0%} of the numbers' variance and {audit.codes:.0%} of the codes; at worst "
        f"{audit.worst:.3f} of 1, of:"
    ]
    worst = list(audit.columns().items())[:6]
    names = max((len(name) for name, _ in worst), default=0)
    questions = max((len(one.question) for _, one in worst), default=0)
    for name, one in worst:
        given = ", all other columns known" if one.given else ""
        lines.append(
            f"  {name:<{names}}  {one.question:<{questions}}  {one.read.value:.3f} [up to {one.read.high:.3f}]{given}"
        )
    return lines
