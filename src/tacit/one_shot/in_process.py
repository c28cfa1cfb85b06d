"""One-shot training in one process: the same coins, learners, decoders and heads as between two companies.

What each side would send, and what could be read of it, is seen before anybody sends anything.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.config import Exchange
from tacit.config.contract import WIDEST
from tacit.errors import TensorError, UsageError
from tacit.models.layers import count, device_named
from tacit.one_shot._rows import Progress
from tacit.one_shot.certificate import Certificate, certify
from tacit.one_shot.coins import Coins, counted_keys
from tacit.one_shot.findings import ReleaseAudit
from tacit.one_shot.forms import Form, shown
from tacit.one_shot.head import Head, fit_head
from tacit.one_shot.learn import learner as named_learner
from tacit.one_shot.learn.network import Network
from tacit.one_shot.learn.own import own as own_learner
from tacit.one_shot.mechanisms import Mechanism, agreed_mechanism, described
from tacit.one_shot.numbers import NumberFlips
from tacit.one_shot.reading import Reader, labels_of
from tacit.one_shot.records import Charge, Summary
from tacit.one_shot.releasing import Home, Released, above_floor, release
from tacit.one_shot.target import Labels, Target, figures, read_target

_WIDE = 100  # characters of a line of a result


@dataclass(frozen=True, repr=False)
class Result:
    """What both sides have when it is over; `print` shows it on one screen."""

    certificate: Certificate  # the label party's: what was sent of its labels, and the bound
    # the feature party's: what decoders read of its embedding; None where they were not asked to
    audit: ReleaseAudit | None
    figures: dict[str, float]  # on the test rows, with the feature party's embedding
    alone: dict[str, float]  # the same of the model without it, which also scores rows that have no partner
    # of all rows, in the order they were given: the probability of class 1, of all classes, or numbers
    scores: NDArray[np.float64]
    codes: NDArray[np.uint8]  # the embedding as it was sent, in the same order. (rows, width)
    sent: NDArray[np.int64]  # of the training rows' labels; -1 for test rows. (rows,)
    test: NDArray[np.intp]  # the numbers of the test rows
    released: Released  # the embedding in its form: what was tried, and what was sent instead of what was learnt, if so
    head: Head  # the private model
    fallback: Head  # the one without the feature party
    readers: tuple[Reader, Reader | None]  # how features and own columns are read
    withheld: tuple[str, ...]  # columns that the bottom never sees
    secret: bytes  # keys coins and noise

    @property
    def bottom(self) -> Any:
        """What made the embedding."""
        return self.released.bottom

    def embed(self, features: Any) -> NDArray[np.uint8]:
        """What would be sent of other rows.  (rows, width)"""
        reader = self.readers[0]
        seen = shown(reader.read(features, "features"), reader.columns, self.withheld, "withheld")
        return self.released.coding.codes(self.bottom.embed(seen), self.secret)

    def predict(self, *, features: Any, own: Any = None) -> NDArray[np.float64]:
        """Scores of other rows: the probability of class 1, of all classes, or numbers."""
        codes, reader = self.embed(features), self.readers[1]
        if (reader is None) != (own is None):
            raise UsageError("own columns were learnt from" if own is None else "no own columns were learnt from")
        rows = _nothing(len(codes)) if reader is None else reader.read(own, "own")
        return self.head.predict(codes, rows)

    def __repr__(self) -> str:
        """One screen."""
        certificate, form = self.certificate, self.released.coding.form
        told = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.figures.items())
        alone = ", ".join(f"{value:.4f}" for value in self.alone.values())
        lines = [f"{certificate.rows:,} rows trained on, {len(self.test):,} tested: {told or 'no figures'}"]
        lines += [f"without the features: {alone}"] if alone else []
        lines += ["", f"Labels: {certificate.mechanism}.", *_wrapped(certificate.sentence)]
        lines += [*_wrapped(certificate.posterior), *_wrapped(certificate.why)]
        lines += ["", f"Features: {form}, by {self.bottom.name}.", *_wrapped(self.released.why)]
        return "\n".join([*lines, *_read(self.audit)])


def one_shot(  # a public entry point: each setting by name, and both parties from top to bottom
    *,
    features: Any,
    labels: Any,
    own: Any = None,
    limit: float | None = 0.6,
    odds: float | None = None,
    width: int = 8,
    rare: str = "neither",
    classes: int | None = 2,
    low: float | None = None,
    high: float | None = None,
    cells: int = 16,
    learner: Any = "trees",
    head: Any = "trees",
    withheld: Collection[str] = (),
    noise: float = 0.0,
    ranks: int = 256,
    feature_limit: float | None = None,
    floor: bool = True,
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
        width: numbers that are sent of a row, 1 to 128.
        rare: which of two classes is rare, as everybody may know: "positive", "negative" or "neither".
        classes: how many there are; 0 or None for numbers, which have `low` and `high`.
        low: the lowest number; lower ones count as this one.
        high: the highest one.
        cells: steps of the grid of numbers.
        learner: "trees", "network", "linear", an object with `fit` such as scikit-learn's, or an `nn.Module` that makes
            hidden units of rows: called with numbers alone, with codes and numbers where there are categories.
        head: "trees", "network", an object with `fit` and `predict_proba`, or an `nn.Module`.
        withheld: columns that the learner never sees; decoders still look for them.
        noise: on the embedding, in units of each number's deviation.
        ranks: that a number may have, at most 256.
        feature_limit: the most that decoders may read of anything, 0 to 1. Where it does not hold the embedding gets
            narrower, coarser, noisier; else it is a `LimitError`. None for none.
        floor: whether a label-free embedding is sent where it tells no more of the rows and more of the labels.
        test_share: of the rows, drawn by `seed` alone.
        seed: of everything that is drawn but coins and noise.
        secret: of at least 32 bytes, keys coins and noise. None makes one of `seed`: good for trials in one process,
            never for labels that leave it.
        threads: that may be used.
        device: where networks learn: "cpu", "cuda", or "auto" for CUDA where there is one.
        audit: whether decoders attack the embedding, most of the time that it takes.
        progress: told what is being done, how much of it is done and how much there is.
    """
    tell = progress or (lambda *_: None)
    tell("preparing", 0, 1)
    count("width", width, high=WIDEST)
    if feature_limit is not None and not (audit and 0 < feature_limit <= 1):
        raise UsageError(f"feature_limit = {feature_limit!r}: a number above 0 and up to 1, with audit = True")
    key = _secret(secret, seed)
    table = _table(features, labels, own, _exchange(width, rare, classes, low, high, cells), test_share, seed)
    mechanism = agreed_mechanism(table.exchange, limit, odds)
    sent, certificate = _sent(table, mechanism, key)
    made = named_learner(learner) if isinstance(learner, str) else own_learner(learner)
    device = device_named(device)
    made = replace(made, device=device) if isinstance(made, Network) else made
    rows, columns, train = table.rows, table.readers[0].columns, table.train
    seen = shown(rows, columns, tuple(withheld), "withheld")
    if isinstance(made, Network) and isinstance(made.pretraining, nn.Module) and not seen.cardinalities:
        made = replace(made, pretraining=_OfNumbers(made.pretraining))
    home = Home(
        seen, rows, columns, train,
        width, key, limit=feature_limit, attacked=audit, seed=seed, threads=threads, progress=tell,
    )  # fmt: skip
    bottom = made.fit(home.shown, sent, mechanism, width, seed=seed, threads=threads, progress=tell)
    released = release(bottom, Form(width, ranks, noise), home)
    if floor:
        released = above_floor(released, made, sent, mechanism, home)
    return _fitted(table, home, released, sent, certificate, head, tuple(withheld), device)


# --- what is given ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """Both sides' rows in a common order that nobody chose, training rows first."""

    rows: Inputs
    own: Inputs
    target: Target
    order: NDArray[np.intp]
    train: int
    readers: tuple[Reader, Reader | None]
    exchange: Exchange


def _exchange(
    width: int, rare: str, classes: int | None, low: float | None, high: float | None, cells: int
) -> Exchange:
    """What two companies would agree on, or what is wrong with it."""
    count("cells", cells, low=2, high=64)
    if rare not in ("positive", "negative", "neither") or (rare != "neither" and classes != 2):
        raise UsageError(f'rare = {rare!r}: "positive" or "negative" of two classes, or "neither"')
    if not classes:
        if low is None or high is None or not low < high:
            raise UsageError("numbers have a public range: pass low and high, low below high")
        return Exchange(width=width, target="number", low=float(low), high=float(high), cells=cells)
    if low is not None or high is not None:
        raise UsageError("low and high are the range of numbers: leave them out, or pass classes = None")
    return Exchange(width=width, classes=count("classes", classes, low=2, high=1000), rare=rare)  # type: ignore[arg-type]


def _table(features: Any, labels: Any, own: Any, exchange: Exchange, test_share: float, seed: int) -> _Table:
    column = labels_of(labels)
    total = len(column)
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
    mine = _nothing(total) if owner is None else owner.read(own, "own")
    rows, place = reader.read(features, "features"), torch.from_numpy(order)
    return _Table(rows[place], mine[place], target, order, train, (reader, owner), exchange)


def _nothing(rows: int) -> Inputs:
    return Inputs(torch.zeros(rows, 0, dtype=torch.int64), torch.zeros(rows, 0), ())


class _OfNumbers(nn.Module):
    """A module of the user's for rows without categories: it gets numbers alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, categorical: Tensor, numeric: Tensor) -> Tensor:
        units: Tensor = self.module(numeric)
        return units


def _secret(secret: bytes | None, seed: int) -> bytes:
    if secret is None:
        return hashlib.sha256(f"tacit.one_shot in one process {seed}".encode()).digest()
    if not isinstance(secret, bytes) or len(secret) < 32:
        raise UsageError("secret is too short: pass at least 32 random bytes, as secrets.token_bytes(32), or None")
    return secret


# --- what is made of it ----------------------------------------------------------------------------------------------


def _sent(table: _Table, mechanism: Mechanism, secret: bytes) -> tuple[NDArray[Any], Certificate]:
    """The training rows' labels as they are sent, and what that is certified to tell."""
    target, train = table.target, table.train
    labels = mechanism.cell_of(target.values) if isinstance(mechanism, NumberFlips) else target.values
    known = np.where(target.known, labels, -1).astype(np.int64)[:train]
    coins = Coins(secret, column="labels", definition=target.definition, epoch=0)
    sent = coins.draw(mechanism, counted_keys(table.order[:train]), known)
    charge = Charge(train, mechanism.auc, mechanism.odds, described(mechanism))
    share = float(target.values[:train][target.known[:train]].mean()) if target.classes == 2 else None
    return sent, certify(mechanism, train, Summary("row", (), (charge,), train), share)


def _fitted(
    table: _Table,
    home: Home,
    released: Released,
    sent: NDArray[Any],
    certified: Certificate,
    head: Any,
    withheld: Any,
    device: str,
) -> Result:
    """The private models, and everything in the order in which rows were given."""
    target, test = table.target, slice(table.train, len(table.order))
    heads, scores = [], []
    for kind, codes in ((head, released.codes), ("network" if isinstance(head, nn.Module) else head, None)):
        what = "fitting the model" if codes is not None else "fitting it without the features"

        def told(_: str, done: int, total: int, what: str = what) -> None:
            home.progress(what, done, total)

        fitted = fit_head(
            kind, codes, table.own, target.values, classes=target.classes or None, train=table.train, seed=home.seed,
            threads=home.threads, device=device, progress=told,
        )  # fmt: skip
        heads.append(fitted)
        scores.append(fitted.predict(codes, table.own, threads=home.threads))
    back = np.argsort(table.order)
    whole = np.full(len(table.order), -1, np.int64)
    whole[table.order[: table.train]] = sent
    return Result(
        certified, released.audit, figures(target, test, scores[0][test]), figures(target, test, scores[1][test]),
        scores[0][back], released.codes[back], whole, np.sort(table.order[test]), released, heads[0], heads[1],
        table.readers, withheld, home.secret,
    )  # fmt: skip


# --- in words --------------------------------------------------------------------------------------------------------


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, _WIDE)


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
