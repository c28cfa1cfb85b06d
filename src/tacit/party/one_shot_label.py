"""The label party's part of a one-shot training, from top to bottom: flip, wait, store, and learn in private."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.ids import read_ids
from tacit.config import ODDS_BUDGET, Head, OneShotContract
from tacit.contracts import Link, Message
from tacit.errors import DataError, UsageError
from tacit.one_shot.book import Book, open_book
from tacit.one_shot.certificate import Certificate, certify
from tacit.one_shot.exchange import Greeting, Received, answer_all, greet_feature_party, label_limits, packed
from tacit.one_shot.head import Head as Fitted
from tacit.one_shot.head import fit_head, load_head
from tacit.one_shot.mechanisms import Mechanism, agreed_mechanism, outcomes
from tacit.one_shot.numbers import NumberFlips
from tacit.one_shot.parts import guard, part, store_json
from tacit.one_shot.records import Rows
from tacit.one_shot.target import Target, figures, read_target
from tacit.party.aligning import Aligned, aligned
from tacit.party.folder import Folder
from tacit.party.meeting import server
from tacit.party.models import load_factory
from tacit.party.one_shot_common import Telling, own_inputs, run_id, seed_of, threads_of
from tacit.wire.line import Desk

__all__ = ["LabelOutcome", "mechanism_of", "read_labels", "released", "train_label"]

_FAREWELL = 20.0  # seconds in which a feature party that has sent everything may say that it has heard so


@dataclass(frozen=True)
class LabelOutcome:
    """What a label party has when it is over; nobody else sees any of it.

    Attributes:
        folder: of the run.
        figures: on the test rows, with what the feature parties sent.
        alone: the same of the model without them, which also scores rows that they do not have.
        certificate: of what was sent of the labels.
        received: bytes of embeddings.
    """

    folder: Path
    figures: dict[str, float]
    alone: dict[str, float]
    certificate: Certificate
    received: int


def train_label(folder: Folder, telling: Telling) -> LabelOutcome:
    """Train as the label party. Started again after whatever ended it, it goes on where it was."""
    contract, rows = folder.one_shot, aligned(folder)
    where, train = folder.run_folder(contract), contract.train_count(rows.count)
    telling.part("preparing")
    target = read_labels(folder, contract, rows, train)
    mechanism = mechanism_of(folder, contract)
    guard(where / "guard.json", _facts(folder, contract, rows, mechanism))
    sent, certificate = released(folder, contract, rows, train, target, mechanism)
    telling.trace("flips entered")
    store_json(where / "certificate.json", certificate.as_dict())
    telling.status.update(certificate=brief(certificate), at_once=True)
    received = Received(where / "received", rows.count, contract.exchange.width, telling.trace)
    if not (where / "closed").exists():
        _meet(folder, contract, rows, packed(sent, outcomes(mechanism)), received, mechanism, telling)
        store_json(where / "closed", {"time": time.time()})
    return _fit(folder, contract, rows, train, target, received, certificate, telling)


# --- at home, before anybody is met ----------------------------------------------------------------------------------


def brief(certificate: Certificate) -> dict[str, Any]:
    """A certificate in figures, for a status."""
    return {name: getattr(certificate, name) for name in ("auc", "odds", "total_auc", "total_odds", "rows", "unit")}


def read_labels(folder: Folder, contract: OneShotContract, rows: Aligned, train: int) -> Target:
    """The labels of all aligned rows, checked."""
    label = folder.table.label
    assert label is not None  # a label party's settings were checked
    column = rows.table(folder.data, [label])[label]
    return read_target(column, contract.exchange, train=train, rows=rows.rows)


def mechanism_of(folder: Folder, contract: OneShotContract) -> Mechanism:
    """What flips labels, at the owner's limit and odds."""
    limit, odds = folder.config.limit, folder.config.odds
    if limit is None:
        raise UsageError(
            f"{folder.path / 'party.toml'}: one-shot training takes a limit: write limit = 0.6, the leak AUC that "
            "nobody can pass for any label, or another one above 0.5"
        )
    return agreed_mechanism(contract.exchange, limit, odds)


def _facts(folder: Folder, contract: OneShotContract, rows: Aligned, mechanism: Mechanism) -> dict[str, str]:
    head = folder.config.head or Head()
    return {
        "version": __version__,
        "contract": contract.digest,
        "alignment": rows.id,
        "mechanism": json.dumps(mechanism.parameters(), sort_keys=True),
        "head": json.dumps(head.model_dump(), sort_keys=True),
        "seed": str(folder.config.training.seed),
    }


def released(
    folder: Folder, contract: OneShotContract, rows: Aligned, train: int, target: Target, mechanism: Mechanism
) -> tuple[NDArray[Any], Certificate]:
    """What is sent of the training rows' labels: in the book, and paid for, before anybody is met."""
    book = open_book(folder.path / "coins", folder.secret)
    try:
        keys, units = _keys(folder, contract, rows, book)
        labels = mechanism.cell_of(target.values) if isinstance(mechanism, NumberFlips) else target.values
        asked = Rows(keys[:train], units[:train], np.where(target.known, labels, -1).astype(np.int64)[:train])
        config = folder.config
        assert config.data is not None
        assert config.data.label is not None
        sent = book.release(
            run_id(contract, rows),
            asked,
            mechanism,
            run=contract.run,
            partners=contract.feature_parties,
            label=config.data.label,
            definition=target.definition,
            unit=contract.exchange.unit,
            budget=config.spendable,
            odds_budget=ODDS_BUDGET if config.odds_budget is None else config.odds_budget,
        )
        share = float(target.values[target.known].mean()) if target.classes == 2 else None
        return sent, certify(mechanism, train, book.summary(), share)
    finally:
        book.close()


def _keys(
    folder: Folder, contract: OneShotContract, rows: Aligned, book: Book
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """By what each aligned row is known for good, and its unit."""
    names = list(folder.table.coin_id or folder.table.ids)
    try:
        found = read_ids(folder.data, names, duplicates="error")  # of the whole table: coins are for good
    except DataError as error:
        raise DataError(f"coin_id = {names}: {error}") from None
    place = np.full(found.report.total, -1, np.int64)
    place[found.rows] = np.arange(len(found.rows))
    wanted = place[np.asarray(rows.rows)]
    if (wanted < 0).any():
        row = int(np.asarray(rows.rows)[wanted < 0][0])
        raise DataError(f"coin_id = {names}: row {row} of {folder.data} has none: fill it in, or leave the row out")
    keys = book.keys_of(found.hashes[wanted], "row")
    unit = contract.exchange.unit
    if unit == "row":
        return keys, keys
    column = rows.table(folder.data, [unit])[unit]
    if column.null_count():
        row = int(np.asarray(rows.rows)[int(column.is_null().arg_max() or 0)])
        raise DataError(f"unit = {unit!r}: row {row} of {folder.data} has none: fill it in, or leave the row out")
    values = column.cast(pl.String).unique(maintain_order=True)
    hashed = book.keys_of(read_ids(values.to_frame("unit"), "unit", duplicates="error").hashes, "unit")
    codes = (
        column.cast(pl.String)
        .to_frame("unit")
        .join(pl.DataFrame({"unit": values, "code": np.arange(len(values))}), on="unit", maintain_order="left")["code"]
    )
    return keys, hashed[codes.to_numpy()]


# --- the exchange ----------------------------------------------------------------------------------------------------


def _meet(
    folder: Folder,
    contract: OneShotContract,
    rows: Aligned,
    flips: Any,
    received: Received,
    mechanism: Mechanism,
    telling: Telling,
) -> None:
    """Answer the feature parties until all embeddings are here. Nothing but flips and acknowledgements leaves."""
    names = contract.feature_parties
    greeting = Greeting(
        contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "label", mechanism.parameters()
    )
    with ExitStack() as stack:
        door = stack.enter_context(server(folder, contract, label_limits(rows.count, contract.exchange.width)))

        def greet(link: Link) -> None:
            greet_feature_party(link, greeting)
            telling.connected(link.peer)

        desk = Desk(door.accept, greet, names, waiting=telling.waiting, alarm=telling.refused)
        stack.callback(desk.close)
        until: list[float] = []

        def farewell() -> bool:
            until.append(time.monotonic() + _FAREWELL)
            return time.monotonic() < until[0]

        def sent(name: str, answer: Message) -> None:
            what = {"flips": "flipped labels", "acknowledgement": "acknowledgement of its bytes"}.get(answer.kind)
            if what is not None:
                count = contract.train_count(rows.count) if answer.kind == "flips" else 0
                telling.left(what, name, count, answer.payload.nbytes)

        lines = {name: desk.line(name) for name in names}
        done = answer_all(lines, flips, received, waiting=telling.missing, farewell=farewell, sent=sent)
        for name in names:
            if name not in done:
                telling.log("unconfirmed", peer=name, reason="it did not say that it has the last answer")


# --- in private ------------------------------------------------------------------------------------------------------


def _fit(
    folder: Folder,
    contract: OneShotContract,
    rows: Aligned,
    train: int,
    target: Target,
    received: Received,
    certificate: Certificate,
    telling: Telling,
) -> LabelOutcome:
    """Fit the head, and the one that does without the feature parties; say how good each is on the test rows."""
    where, config = folder.run_folder(contract), folder.config
    own = own_inputs(folder, contract, rows, train)
    codes = np.concatenate([received.codes(name) for name in contract.feature_parties], axis=1)
    head = config.head or Head()
    told: dict[str, dict[str, float]] = {}
    for name, what, given in (("head", "fitting the model", codes), ("fallback", "fitting it without partners", None)):

        def fitted(given: NDArray[np.uint8] | None = given, what: str = what) -> Fitted:
            telling.part(what)
            return fit_head(
                head.kind if head.factory is None else load_factory(folder.path, head.factory, "[head]")(),
                given,
                own,
                target.values,
                classes=target.classes or None,
                train=train,
                seed=seed_of(folder),
                threads=threads_of(folder),
                progress=lambda _, done, total: telling.part(what, done, total),
            )

        # An object of the party's own is fitted at every start: only what needs no pickle is kept.
        made = (
            fitted() if head.factory else load_head(part(where, name, lambda path: fitted().save(path), telling.trace))
        )
        test = slice(train, rows.count)
        scores = made.predict(None if given is None else given[test], own[test])
        told[name] = figures(target, test, scores)
    outcome = LabelOutcome(where, told["head"], told["fallback"], certificate, codes.nbytes)
    store_json(where / "figures.json", {"figures": outcome.figures, "alone": outcome.alone})
    return outcome
