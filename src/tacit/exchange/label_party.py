"""The label party's part of a one-shot training, from top to bottom: flip, wait, store, and learn in private."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.ids import Reading
from tacit.company.aligned import Aligned, aligned, pin
from tacit.company.check import spelling_of
from tacit.company.factories import load_factory
from tacit.company.folder import Folder
from tacit.company.meeting import server
from tacit.company.split_history import told_beside
from tacit.config import OneShotContract
from tacit.contracts import Link, Message
from tacit.disk import write_json
from tacit.errors import UsageError
from tacit.exchange import common as common
from tacit.exchange.common import ExchangeTelling
from tacit.exchange.head import Head as Fitted
from tacit.exchange.head import fit_head, load_head
from tacit.exchange.judged import Tested
from tacit.exchange.messages import Form, Greeting, Received, answer_all, greet_feature_party, label_limits, packed
from tacit.labels.book import Book, Terms, open_book
from tacit.labels.label_bound import LabelBound
from tacit.labels.mechanisms import Mechanism, agreed_mechanism, outcomes
from tacit.labels.numbers import NumberFlips
from tacit.labels.records import Price, Rows, Summary
from tacit.labels.tally import COINS, Tally
from tacit.labels.target import Target, figures, read_target
from tacit.made_once import guard, made_once, store_array
from tacit.wire.line import Desk

_ANSWERS = "answers"  # what is sent of the labels, on the disk before anybody can ask for it
_LEFT = {
    "flips": "randomized labels",
    "acknowledgement": "acknowledgement of its bytes",
}
_FAREWELL = 20.0  # seconds in which a feature party that has sent everything may say that it has heard so


@dataclass(frozen=True)
class LabelOutcome:
    """What a label party has when it is over; nobody else sees any of it."""

    folder: Path  # of the run
    figures: dict[str, float]  # on the test rows, with what the feature parties sent
    alone: dict[str, float]  # the same of the model without them, which also scores rows that they do not have
    label_bound: LabelBound  # of what was sent of the labels
    received: int  # bytes of embeddings


def train_label(
    folder: Folder, telling: ExchangeTelling, restored: Callable[[str], None] | None = None
) -> LabelOutcome:
    """Train as the label party. Started again after whatever ended it, it resumes.

    What is to be sent is on the disk before anybody can ask for it, and until the last acknowledgement neither labels,
    units nor the book are opened: nothing that is wrong with them can be seen in what a partner gets, or when.
    """
    contract = folder.one_shot
    where = folder.run_folder(contract)
    telling.part("preparing")
    telling.limited(folder.config.limit)
    common.check_at_home(folder)
    mechanism = mechanism_of(folder, contract)  # limits that do not fit each other are named before anything is read
    rows = aligned(folder) if (where / _ANSWERS).exists() else pin(folder, telling.progress)
    config = folder.config
    facts = {
        "version": __version__,
        "contract": contract.digest,
        "alignment": rows.id,
        "mechanism": json.dumps(mechanism and mechanism.parameters(), sort_keys=True),
        "head": json.dumps(config.head.model_dump(), sort_keys=True),
        "seed": str(config.training.seed),
    }
    guard(where / "guard.json", facts)  # what must be the same whenever the run goes on
    prepared = made_once(
        where, _ANSWERS, lambda path: _prepare(Answers(folder, rows, mechanism, restored), telling, path), telling.trace
    )
    received = received_of(folder, rows, telling.trace)
    if not (where / "closed").exists():
        flips = None if mechanism is None else torch.from_numpy(np.load(prepared / "flips.npy"))
        done = _meet(folder, rows, mechanism, flips, received, telling)
        if done >= set(contract.feature_parties):  # else the door is opened again at the next start, for a while
            write_json(where / "closed", {"time": time.time()})
    telling.gone(rows.missing)
    answers = Answers(folder, rows, mechanism, restored)
    label_bound = answers.label_bound()
    write_json(where / "label_bound.json", label_bound.as_dict())
    names = ("auc", "odds", "total_auc", "total_odds", "rows", "unit", "beside")
    brief = {name: getattr(label_bound, name) for name in names}
    telling.status.update(label_bound=brief, at_once=True)
    return _fit(answers, received, label_bound, telling)


def received_of(folder: Folder, rows: Aligned, trace: Callable[[str], None] = lambda _: None) -> Received:
    """What came of the feature parties' rows."""
    exchange = folder.one_shot.exchange
    form = Form(exchange.bits, exchange.numbers)
    return Received(folder.run_folder(folder.one_shot) / "received", rows.count, form, trace)


def _prepare(answers: Answers, telling: ExchangeTelling, path: Path) -> None:
    """Write down what is to be sent of the labels, if anything is."""
    telling.gone(answers.rows.missing)
    if answers.mechanism is None:
        return
    answers.prepare()
    telling.unpaid(answers.unpaid)
    telling.trace("flips entered")
    store_array(path / "flips.npy", packed(answers.sent, outcomes(answers.mechanism)).numpy())


# --- what is said about labels ---------------------------------------------------------------------------------------


@dataclass
class Answers:
    """The answers of one run, from the party's book: entered, frozen and paid for before they leave."""

    folder: Folder  # of the label party
    rows: Aligned  # that are aligned
    mechanism: Mechanism | None  # that randomizes labels; None where none is sent
    # told what is missing where somebody answers for going on from an older copy of the folder
    restored: Callable[[str], None] | None = None

    @property
    def contract(self) -> OneShotContract:
        """What was agreed on."""
        return self.folder.one_shot

    @property
    def train(self) -> int:
        """How many of the rows are trained on, and answered about."""
        return self.rows.train

    @cached_property
    def target(self) -> Target:
        """The labels."""
        label = self.folder.table.label
        assert label is not None  # a label party's settings were checked
        column = self.rows.table(self.folder.data, [label])[label]
        return read_target(column, self.contract.exchange, self.rows.rows, spelling_of(self.folder))

    def prepare(self) -> None:
        """Randomize every label; a row that can't be paid for has what was paid for it before, or no label."""
        assert self.mechanism is not None  # else none is sent
        with self._book() as book:
            self.asked = self._rows(book)
            run_id = common.run_id(self.contract, self.rows)
            self.sent = book.release(run_id, self.asked, self.mechanism, self._terms())
            self.unpaid = book.unpaid(run_id)  # rows that no budget had room for

    def price(self) -> Price:
        """What that would cost; nothing is entered."""
        assert self.mechanism is not None
        kept = self.folder.path / "coins"
        with (
            TemporaryDirectory() as empty,
            closing(open_book(kept if kept.exists() else Path(empty), self.folder.secret)) as book,
        ):
            return book.price(self._rows(book), self.mechanism, self._terms())

    def _rows(self, book: Book) -> Rows:
        """What is asked about: the training rows, with their labels as they are now."""
        keys, units = _keys(self.folder, self.contract, self.rows, book)
        values = self.target.values
        cells = self.mechanism.cell_of(values) if isinstance(self.mechanism, NumberFlips) else values
        labels = np.where(self.target.known, cells, -1).astype(np.int64)
        return Rows(keys[: self.train], units[: self.train], labels[: self.train])

    def units(self, at: NDArray[np.intp]) -> NDArray[np.int64] | None:
        """A number for the unit of each of some rows; None where each row is one."""
        if self.contract.exchange.unit == "row":
            return None
        with self._book() as book:
            _, units = _keys(self.folder, self.contract, self.rows, book)
        return np.unique(units[at], axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def label_bound(self) -> LabelBound:
        """Of what was sent, with everything that was sent before."""
        known = self.target.values[self.target.known]
        share = float(known.mean()) if self.target.classes == 2 and len(known) else None
        if self.mechanism is None and not (self.folder.path / "coins").exists():
            return LabelBound.of(None, 0, Summary("row", (), (), 0), None, told_beside(self.folder, self.restored))
        with self._book() as book:
            return LabelBound.of(
                self.mechanism, self.train, book.summary(), share, told_beside(self.folder, self.restored)
            )

    @contextmanager
    def _book(self) -> Iterator[Book]:
        """The party's book; how many releases it has is counted apart from the folder, before anything leaves."""
        tally = Tally(self.folder.tally_path_of("coins"), self.restored, COINS)
        with (
            closing(open_book(self.folder.path / "coins", self.folder.secret)) as book,
            tally.around(lambda: book.releases),
        ):
            yield book

    def _terms(self) -> Terms:
        config, table = self.folder.config, self.folder.table
        assert table.label is not None  # a label party's settings were checked
        return Terms(
            run=self.contract.run, partners=self.contract.feature_parties, label=table.label,
            definition=self.target.definition, unit=self.contract.exchange.unit, coin_id=table.coin_id or table.ids,
            budget=config.spendable, odds_budget=config.odds_budget, epoch=table.coin_epoch,
        )  # fmt: skip


def mechanism_of(folder: Folder, contract: OneShotContract) -> Mechanism | None:
    """What flips labels, at the owner's limit and odds; None where the contract says that none is sent."""
    if contract.exchange.labels == "none":
        return None
    if folder.config.limit is None:
        raise UsageError(
            f"{folder.path / 'party.toml'}: one-shot training takes a limit: write limit = 0.6, the leak AUC that "
            "nobody can pass for any label, or another one above 0.5"
        )
    if contract.exchange.classes > 2 and folder.config.odds is None:
        raise UsageError(
            f"{folder.path / 'party.toml'}: with {contract.exchange.classes} classes odds must be set beside limit: "
            "write odds = 3.0, the factor that the odds of a label change by at most, or another one up to 20"
        )
    made = agreed_mechanism(contract.exchange, folder.config.limit, folder.config.odds)
    budget, odds_budget = folder.config.spendable, folder.config.odds_budget
    for name, told, most in (("budget", made.auc, budget), ("odds_budget", made.odds, odds_budget)):
        if most is not None and told > most + 1e-9:
            raise UsageError(
                f"{folder.path / 'party.toml'}: {name} = {most:g}, and one release tells {told:.4g} of each label: "
                f"lower limit or odds, or raise {name}"
            )
    return made


def _keys(
    folder: Folder, contract: OneShotContract, rows: Aligned, book: Book
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    names = list(folder.table.coin_id or folder.table.ids)
    keys, unit = common.keys_of(folder, rows, names, partial(book.keys_of, what="row")), contract.exchange.unit
    if unit == "row":
        return keys, keys
    words = rows.table(folder.data, [unit])[unit].cast(pl.String)
    values, units = words.unique().drop_nulls(), rows.keys.copy()  # of a row that is gone: it counts alone
    if len(values):
        hashes = b"".join(some for some, _ in Reading(values.to_frame("unit"), "unit").blocks())
        hashed = book.keys_of(np.frombuffer(hashes, np.uint8).reshape(len(values), -1), "unit")
        codes = pl.DataFrame({"unit": values, "code": np.arange(len(values))})
        places = words.to_frame("unit").join(codes, on="unit", how="left", maintain_order="left")["code"]
        there = places.is_not_null().to_numpy()
        units[there] = hashed[places.drop_nulls().to_numpy()]
    return keys, units


# --- the exchange ----------------------------------------------------------------------------------------------------


def _meet(
    folder: Folder, rows: Aligned, mechanism: Mechanism | None, flips: torch.Tensor | None, received: Received,
    telling: ExchangeTelling,
) -> set[str]:  # fmt: skip
    """Answer the feature parties until all embeddings are here; who has said that it has heard so.

    Nothing but answers and acknowledgements leaves, and no labels are in memory meanwhile.
    """
    contract = folder.one_shot
    names = contract.feature_parties
    said = {} if mechanism is None else mechanism.parameters()
    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "label", said)
    with ExitStack() as stack:
        limits = label_limits(rows.count, Form(contract.exchange.bits, contract.exchange.numbers))
        door = stack.enter_context(server(folder, contract, limits))

        def greet(link: Link) -> None:
            greet_feature_party(link, greeting)
            telling.log("connected", peer=link.peer)

        desk = stack.enter_context(
            Desk(
                door.accept,
                greet,
                names,
                waiting=telling.waiting,
                wait=telling.patience,
                alarm=telling.refused,
                missing=lambda: door.missing,
            )
        )

        def leaving(name: str, answer: Message) -> None:
            telling.trace(f"{answer.kind} answered")
            what = _LEFT.get(answer.kind)
            if what is not None:
                count = 0 if answer.kind == "acknowledgement" else rows.train
                telling.left(what, name, count, answer.payload.nbytes)
                telling.trace(f"{answer.kind} logged")

        lines = {name: desk.line(name) for name in names}

        def missing(name: str) -> None:
            telling.missing(name, door.missing if lines[name].link is None else "it learns at home, and attacks that")

        done = answer_all(
            lines, flips, received, waiting=missing, patience=_FAREWELL, leaving=leaving,
            trace=telling.trace,
        )  # fmt: skip
        for name in names:
            if name not in done:
                telling.log("unconfirmed", peer=name, reason="it did not say that it has the last answer")
        return done


# --- in private ------------------------------------------------------------------------------------------------------


def _fit(answers: Answers, received: Received, label_bound: LabelBound, telling: ExchangeTelling) -> LabelOutcome:
    """Fit the head, and the one that does without the feature parties; say how good each is on the test rows."""
    folder, contract, train, target = answers.folder, answers.contract, answers.train, answers.target
    where, head = folder.run_folder(contract), folder.config.head
    own = common.own_inputs(folder, answers.rows)
    codes = np.concatenate([received.codes(name) for name in contract.feature_parties], axis=1)

    learnt = _learnt_from(target.known[:train], head.sample, common.seed_of(folder))
    labels = target.values[learnt]
    if not target.known[:train].any():  # a model that tells nothing: the partner has picked rows without labels
        labels = np.zeros_like(labels)

    def fitted(what: str, given: NDArray[np.uint8] | None) -> Fitted:
        telling.part(what)
        return fit_head(
            head.kind if head.factory is None else load_factory(folder.path, head.factory, "[head]")(),
            None if given is None else given[learnt],
            own[learnt if isinstance(learnt, slice) else torch.from_numpy(learnt)], labels,
            classes=target.classes or None, seed=common.seed_of(folder), threads=common.threads_of(folder),
            device=folder.config.training.device, blank=codes.shape[1],
            progress=lambda _, done, total: telling.part(what, done, total),
        )  # fmt: skip

    def scored(name: str, what: str, given: NDArray[np.uint8] | None) -> NDArray[np.float64]:
        if head.factory is None or (where / name).exists():
            made = load_head(made_once(where, name, lambda path: fitted(what, given).save(path), telling.trace))
        else:
            made = fitted(what, given)
            with suppress(UsageError):  # an object that can't be kept without pickle is fitted at every start
                made_once(where, name, made.save, telling.trace)
        return made.predict(None if given is None else given[test], own[test])

    test = slice(train, answers.rows.count)
    scores = scored("head", "fitting the model", codes)
    scores_alone = scored("fallback", "fitting it without partners", None)
    together, alone = figures(target, test, scores), figures(target, test, scores_alone)
    at = train + np.flatnonzero(target.known[test])
    truth, mine = target.values[at].astype(np.float64), own[torch.from_numpy(at)]
    tested = Tested(at, truth, scores[at - train], scores_alone[at - train], codes[at], mine, target.classes)
    told = {"worth": [], "calibration": []} if tested.few else _told(tested, answers.units(at))
    write_json(where / "figures.json", {"figures": together, "alone": alone, **told})
    size = Form(contract.exchange.bits, contract.exchange.numbers).size(len(codes)) * len(contract.feature_parties)
    return LabelOutcome(where, together, alone, label_bound, size)


def _told(tested: Tested, units: NDArray[np.int64] | None) -> dict[str, list[dict[str, Any]]]:
    """What the partner is worth on the test rows, and how well probabilities are calibrated on them."""
    calibration = tested.calibration().rename({"share of ones": "share"}).to_dicts() if tested.classes == 2 else []
    names = {"with the partner": "together", "without": "alone"}
    return {"worth": tested.worth(units).rename(names).to_dicts(), "calibration": calibration}


def _learnt_from(known: NDArray[np.bool_], most: int | None, seed: int) -> NDArray[np.intp] | slice:
    """The training rows that the head learns from: all, or so many of those with a label, drawn at random."""
    if most is None or most >= known.sum():
        return slice(len(known))
    return np.sort(np.random.default_rng([seed, 4]).permutation(np.flatnonzero(known))[:most])
