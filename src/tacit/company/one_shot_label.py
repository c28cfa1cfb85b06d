"""The label party's part of a one-shot training, from top to bottom: flip, wait, store, and learn in private."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.ids import Reading
from tacit.company import one_shot_common as common
from tacit.company.aligned import Aligned, pin
from tacit.company.folder import Folder
from tacit.company.meeting import server
from tacit.company.models import load_factory
from tacit.company.one_shot_common import ExchangeTelling
from tacit.company.split_history import told_beside
from tacit.config import OneShotContract
from tacit.contracts import Link, Message
from tacit.disk import write_json
from tacit.errors import UsageError
from tacit.one_shot.book import Book, Terms, open_book
from tacit.one_shot.certificate import Certificate, certify
from tacit.one_shot.exchange import Greeting, Received, answer_all, greet_feature_party, label_limits, packed
from tacit.one_shot.head import Head as Fitted
from tacit.one_shot.head import fit_head, load_head
from tacit.one_shot.mechanisms import Mechanism, agreed_mechanism, outcomes
from tacit.one_shot.numbers import NumberFlips
from tacit.one_shot.parts import guard, part
from tacit.one_shot.records import Rows
from tacit.one_shot.target import Target, figures, read_target
from tacit.wire.exactly_once import COINS, Tally
from tacit.wire.line import Desk

_LEFT = {
    "flips": "flipped labels",
    "acknowledgement": "acknowledgement of its bytes",
}
_FAREWELL = 20.0  # seconds in which a feature party that has sent everything may say that it has heard so


@dataclass(frozen=True)
class LabelOutcome:
    """What a label party has when it is over; nobody else sees any of it."""

    folder: Path  # of the run
    figures: dict[str, float]  # on the test rows, with what the feature parties sent
    alone: dict[str, float]  # the same of the model without them, which also scores rows that they do not have
    certificate: Certificate  # of what was sent of the labels
    received: int  # bytes of embeddings


def train_label(
    folder: Folder, telling: ExchangeTelling, restored: Callable[[str], None] | None = None
) -> LabelOutcome:
    """Train as the label party. Started again after whatever ended it, it goes on where it was."""
    contract = folder.one_shot
    where = folder.run_folder(contract)
    telling.part("preparing")
    telling.limited(folder.config.limit)
    common.check_at_home(folder)
    mechanism_of(folder, contract)  # limits that do not fit each other are told before anything is looked up
    answers = Answers.of(folder, pin(folder, telling.progress), restored)
    telling.gone(answers.rows)
    config = folder.config
    facts = {
        "version": __version__,
        "contract": contract.digest,
        "alignment": answers.rows.id,
        "mechanism": json.dumps(answers.mechanism.parameters(), sort_keys=True),
        "head": json.dumps(config.head.model_dump(), sort_keys=True),
        "seed": str(config.training.seed),
    }
    guard(where / "guard.json", facts)  # what must be the same whenever the run goes on
    answers.prepare()
    telling.unpaid(answers.unpaid)
    telling.trace("flips entered")
    received = Received(where / "received", answers.rows.count, contract.exchange.width, telling.trace)
    if not (where / "closed").exists():
        done = _meet(answers, received, telling)
        if done >= set(contract.feature_parties):  # else the door is opened again at the next start, for a while
            write_json(where / "closed", {"time": time.time()})
    certificate = answers.certificate()
    write_json(where / "certificate.json", certificate.as_dict())
    names = ("auc", "odds", "total_auc", "total_odds", "rows", "unit", "beside")
    brief = {name: getattr(certificate, name) for name in names}
    telling.status.update(certificate=brief, at_once=True)
    return _fit(answers, received, certificate, telling)


# --- what is said about labels ---------------------------------------------------------------------------------------


@dataclass
class Answers:
    """The answers of one run, from the party's book: entered, frozen and paid for before they leave."""

    folder: Folder  # of the label party
    rows: Aligned  # that are aligned
    train: int  # how many of them are trained on, and answered about
    target: Target  # the labels
    mechanism: Mechanism  # that is used
    # told what is missing where somebody answers for going on from an older copy of the folder
    restored: Callable[[str], None] | None = None

    @classmethod
    def of(cls, folder: Folder, rows: Aligned, restored: Callable[[str], None] | None = None) -> Answers:
        """Those of the run that a folder's contract is about: labels are read, none is flipped yet."""
        contract, label = folder.one_shot, folder.table.label
        assert label is not None  # a label party's settings were checked
        train = contract.train_count(rows.count)
        column = rows.table(folder.data, [label])[label]
        target = read_target(column, contract.exchange, rows.rows)
        return cls(folder, rows, train, target, mechanism_of(folder, contract), restored)

    @property
    def contract(self) -> OneShotContract:
        """What was agreed on."""
        return self.folder.one_shot

    def prepare(self) -> None:
        """At home: flip every label. What can't be paid for is an error now."""
        with self._book() as book:
            keys, units = _keys(self.folder, self.contract, self.rows, book)
            values = self.target.values
            cells = self.mechanism.cell_of(values) if isinstance(self.mechanism, NumberFlips) else values
            labels = np.where(self.target.known, cells, -1).astype(np.int64)
            self.asked = Rows(keys[: self.train], units[: self.train], labels[: self.train])
            run_id = common.run_id(self.contract, self.rows)
            self.sent = book.release(run_id, self.asked, self.mechanism, self._terms())
            self._flips = packed(self.sent, outcomes(self.mechanism))
            self.unpaid = book.unpaid(run_id)  # rows that no budget had room for

    def tell(self, message: Message) -> Message:
        """The answer to a feature party's question; the same as often as it asks."""
        return Message(message.step, "flips", self._flips, b"")

    def certificate(self) -> Certificate:
        """Of what was sent, with everything that was sent before."""
        known = self.target.values[self.target.known]
        share = float(known.mean()) if self.target.classes == 2 and len(known) else None
        with self._book() as book:
            return certify(self.mechanism, self.train, book.summary(), share, told_beside(self.folder, self.restored))

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


def mechanism_of(folder: Folder, contract: OneShotContract) -> Mechanism:
    """What flips labels, at the owner's limit and odds."""
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
    values, units = words.unique().drop_nulls(), rows.placeholders().copy()  # of a row that is gone: it counts alone
    if len(values):
        hashes = b"".join(some for some, _ in Reading(values.to_frame("unit"), "unit").blocks())
        hashed = book.keys_of(np.frombuffer(hashes, np.uint8).reshape(len(values), -1), "unit")
        codes = pl.DataFrame({"unit": values, "code": np.arange(len(values))})
        places = words.to_frame("unit").join(codes, on="unit", how="left", maintain_order="left")["code"]
        there = places.is_not_null().to_numpy()
        units[there] = hashed[places.drop_nulls().to_numpy()]
    return keys, units


# --- the exchange ----------------------------------------------------------------------------------------------------


def _meet(answers: Answers, received: Received, telling: ExchangeTelling) -> set[str]:
    """Answer the feature parties until all embeddings are here; who has said that it has heard so.

    Nothing but answers and acknowledgements leaves.
    """
    folder, contract, rows = answers.folder, answers.contract, answers.rows
    names, mechanism = contract.feature_parties, answers.mechanism.parameters()
    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "label", mechanism)
    with ExitStack() as stack:
        limits = label_limits(rows.count, contract.exchange.width)
        door = stack.enter_context(server(folder, contract, limits))

        def greet(link: Link) -> None:
            greet_feature_party(link, greeting)
            telling.log("connected", peer=link.peer)

        desk = Desk(door.accept, greet, names, waiting=telling.waiting, alarm=telling.refused)
        stack.callback(desk.close)

        def leaving(name: str, answer: Message) -> None:
            telling.trace(f"{answer.kind} answered")
            what = _LEFT.get(answer.kind)
            if what is not None:
                count = 0 if answer.kind == "acknowledgement" else answers.train
                telling.left(what, name, count, answer.payload.nbytes)
                telling.trace(f"{answer.kind} logged")

        lines = {name: desk.line(name) for name in names}
        done = answer_all(
            lines, answers.tell, received, waiting=telling.missing, patience=_FAREWELL, leaving=leaving,
            trace=telling.trace,
        )  # fmt: skip
        for name in names:
            if name not in done:
                telling.log("unconfirmed", peer=name, reason="it did not say that it has the last answer")
        return done


# --- in private ------------------------------------------------------------------------------------------------------


def _fit(answers: Answers, received: Received, certificate: Certificate, telling: ExchangeTelling) -> LabelOutcome:
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
            device=folder.config.training.device,
            progress=lambda _, done, total: telling.part(what, done, total),
        )  # fmt: skip

    def judged(name: str, what: str, given: NDArray[np.uint8] | None) -> dict[str, float]:
        if head.factory:  # an object of the party's own is fitted at every start: only what needs no pickle is kept
            made = fitted(what, given)
        else:
            made = load_head(part(where, name, lambda path: fitted(what, given).save(path), telling.trace))
        test = slice(train, answers.rows.count)
        return figures(target, test, made.predict(None if given is None else given[test], own[test]))

    together = judged("head", "fitting the model", codes)
    alone = judged("fallback", "fitting it without partners", None)
    write_json(where / "figures.json", {"figures": together, "alone": alone})
    return LabelOutcome(where, together, alone, certificate, codes.nbytes)


def _learnt_from(known: NDArray[np.bool_], most: int | None, seed: int) -> NDArray[np.intp] | slice:
    """The training rows that the head learns from: all, or so many of those with a label, drawn at random."""
    if most is None or most >= known.sum():
        return slice(len(known))
    return np.sort(np.random.default_rng([seed, 4]).permutation(np.flatnonzero(known))[:most])
