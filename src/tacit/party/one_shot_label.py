"""The label party's part of a one-shot training, from top to bottom: flip, wait, store, and learn in private."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.config import Head, OneShotContract
from tacit.contracts import Link, Message
from tacit.errors import UsageError
from tacit.one_shot.certificate import Certificate
from tacit.one_shot.exchange import Greeting, Received, answer_all, greet_feature_party, label_limits
from tacit.one_shot.head import Head as Fitted
from tacit.one_shot.head import fit_head, load_head
from tacit.one_shot.mechanisms import Mechanism, agreed_mechanism
from tacit.one_shot.parts import guard, part, store_json
from tacit.one_shot.target import Target, figures, read_target
from tacit.party.align import Aligned, aligned
from tacit.party.folder import Folder
from tacit.party.meeting import server
from tacit.party.models import load_factory
from tacit.party.one_shot_answers import Answers
from tacit.party.one_shot_common import Telling, own_inputs, seed_of, threads_of
from tacit.wire.line import Desk

__all__ = ["LabelOutcome", "mechanism_of", "read_labels", "train_label"]

_LEFT = {"flips": "flipped labels", "sums": "sums of labels", "acknowledgement": "acknowledgement of its bytes"}
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


def train_label(folder: Folder, telling: Telling, restored: Callable[[str], None] | None = None) -> LabelOutcome:
    """Train as the label party. Started again after whatever ended it, it goes on where it was.

    Args:
        folder: of the party.
        telling: where the run stands.
        restored: told what is missing where somebody answers for going on from an older copy of the folder.
    """
    contract, rows = folder.one_shot, aligned(folder)
    where, train = folder.run_folder(contract), contract.train_count(rows.count)
    telling.part("preparing")
    target = read_labels(folder, contract, rows, train)
    mechanism = mechanism_of(folder, contract)
    guard(where / "guard.json", _facts(folder, contract, rows, mechanism))
    answers = Answers(folder, contract, rows, train, target, mechanism, restored)
    answers.prepare()
    telling.trace("flips entered")
    received = Received(where / "received", rows.count, contract.exchange.width, telling.trace)
    if not (where / "closed").exists():
        done = _meet(folder, contract, rows, train, answers, received, telling)
        if done >= set(contract.feature_parties):  # else the door is opened again at the next start, for a while
            store_json(where / "closed", {"time": time.time()})
    certificate = answers.certificate()
    store_json(where / "certificate.json", certificate.as_dict())
    telling.status.update(certificate=brief(certificate), at_once=True)
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
    return agreed_mechanism(contract.exchange, limit, odds, folder.config.delta)


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


# --- the exchange ----------------------------------------------------------------------------------------------------


def _meet(
    folder: Folder,
    contract: OneShotContract,
    rows: Aligned,
    train: int,
    answers: Answers,
    received: Received,
    telling: Telling,
) -> set[str]:
    """Answer the feature parties until all embeddings are here; who has said that it has heard so.

    Nothing but answers and acknowledgements leaves.
    """
    names, mechanism = contract.feature_parties, answers.mechanism.parameters()
    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "label", mechanism)
    with ExitStack() as stack:
        door = stack.enter_context(server(folder, contract, label_limits(rows.count, train, contract.exchange)))

        def greet(link: Link) -> None:
            greet_feature_party(link, greeting)
            telling.connected(link.peer)

        desk = Desk(door.accept, greet, names, waiting=telling.waiting, alarm=telling.refused)
        stack.callback(desk.close)

        def sent(name: str, answer: Message) -> None:
            what = _LEFT.get(answer.kind)
            if what is not None:
                count = 0 if answer.kind == "acknowledgement" else train
                telling.left(what, name, count, answer.payload.nbytes)

        lines = {name: desk.line(name) for name in names}
        done = answer_all(lines, answers.tell, received, waiting=telling.missing, patience=_FAREWELL, sent=sent)
        for name in names:
            if name not in done:
                telling.log("unconfirmed", peer=name, reason="it did not say that it has the last answer")
        return done


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
