"""A feature party's part of a one-shot training, from top to bottom: learn, cut into cells, attack, and send once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.encoder import Inputs
from tacit.align.tables import inputs_digest
from tacit.company.aligned import Aligned, pin
from tacit.company.check import columns_of
from tacit.company.departures import book_of, column_digests, counted_book, go_on_predicting, row_keys
from tacit.company.factories import load_factory
from tacit.company.folder import Folder
from tacit.company.meeting import dial
from tacit.company.shipments import Before, Shipment, version_of
from tacit.config import Learn, OneShotContract
from tacit.contracts import Link
from tacit.disk import write_json
from tacit.errors import LimitError, ProtocolError, UsageError
from tacit.exchange import common as common
from tacit.exchange.cells import Target, received_target
from tacit.exchange.common import ExchangeTelling
from tacit.exchange.learn import Bottom, Learner, learner, load_bottom, pca
from tacit.exchange.learn.network import Network
from tacit.exchange.learn.own import own, own_unlabelled
from tacit.exchange.messages import Asking, Form, Greeting, feature_limits
from tacit.exchange.release import check_enough
from tacit.exchange.releasing import Home, release
from tacit.exchange.releasing import shown as without
from tacit.labels.mechanisms import Mechanism, check_agreed, read_mechanism, shares
from tacit.labels.records import Keys
from tacit.made_once import discard, guard, made_once, store_array
from tacit.progress import Progress
from tacit.wire.line import Dialer, gave_up

_ODD = 6.0  # deviations of the share of a class from what the coin allows, before a label party's word is doubted


@dataclass(frozen=True)
class FeatureOutcome:
    """What a feature party has when it is over."""

    folder: Path  # of the run
    audit: dict[str, Any]  # what decoders read of what was sent, before it was sent
    form: str  # what was sent of a row, in words
    sent: int  # bytes of the embedding
    heard: bool  # whether the label party said that it has everything


@dataclass(frozen=True)
class _Side:
    """The feature party in one run: its rows, how many of them are trained on, its columns, and where it stands."""

    folder: Folder
    rows: Aligned
    train: int
    inputs: Inputs
    telling: ExchangeTelling

    @property
    def contract(self) -> OneShotContract:
        return self.folder.one_shot

    @property
    def learn(self) -> Learn:
        return self.folder.config.learn

    @property
    def run(self) -> str:
        return common.run_id(self.contract, self.rows)

    def part(self, name: str, make: Callable[[Path], None]) -> Path:
        return made_once(self.folder.run_folder(self.contract), name, make, self.telling.trace)


def train_features(
    folder: Folder, telling: ExchangeTelling, restored: Callable[[str], None] | None = None
) -> FeatureOutcome:
    """Train as a feature party. Started again after whatever ended it, it resumes."""
    telling.part("preparing")
    telling.limited(folder.config.limit)
    contract, rows = folder.one_shot, pin(folder, telling.progress)
    where, train = folder.run_folder(contract), rows.train
    telling.gone(rows.missing)
    with counted_book(folder, restored):
        pass  # it knows of everything that left
    go_on_predicting(folder, where, restored)
    common.check_at_home(folder)
    check_enough(rows.count, folder.config.learn.known)
    inputs = common.own_inputs(folder, rows)
    shown(folder, inputs)  # a wrong name is told before labels are paid for
    side = _Side(folder, rows, train, inputs, telling)
    config = folder.config
    facts = {
        "version": __version__,
        "contract": contract.digest,
        "alignment": rows.id,
        "data": inputs_digest(inputs).hex(),
        "learn": json.dumps(config.learn.model_dump(mode="json", exclude={"withheld"}), sort_keys=True),
        "seed": str(config.training.seed),
    }
    guard(where / "guard.json", facts)  # what must be the same whenever the run goes on
    _check_release(side)
    asking, form = _asking(side), contract.exchange.form
    with asking.line:
        received = _answered(side, asking) if asking.labels else None
        codes, released = _released(side, received, asking.line)
        audit = released["audit"]
        telling.status.update(release={"form": form, "worst": audit["worst"]}, at_once=True)
        sent, heard = _delivered(side, asking, codes)
    return FeatureOutcome(where, audit, form, sent, heard)


def _check_release(side: _Side) -> None:
    """Another limit, or other withheld columns, are for what was not attacked and entered yet."""
    path = side.folder.run_folder(side.contract) / "release"
    if not path.exists():
        return
    under, now = json.loads((path / "release.json").read_bytes())["under"], _under(side)
    changed = [name for name in now if under[name] != now[name]]
    if changed:
        said = ", ".join(f"{name} = {json.dumps(under[name])}" for name in changed)
        raise UsageError(
            f"{side.folder.path / 'party.toml'}: what this run sends was attacked and written down under {said}: put "
            "that back, or agree on a new `run` in contract.toml"
        )


def _under(side: _Side) -> dict[str, Any]:
    """The owner's settings that what is sent was attacked under."""
    return {"limit": side.folder.config.limit, "withheld": list(side.learn.withheld)}


# --- what comes ------------------------------------------------------------------------------------------------------


def _asking(side: _Side) -> Asking:
    folder, contract, rows, telling = side.folder, side.contract, side.rows, side.telling
    limits = feature_limits(side.train)

    def line(greet: Callable[[Link], None]) -> Dialer:
        def greeted(link: Link) -> None:
            greet(link)
            telling.log("connected", peer=link.peer)

        return Dialer(
            contract.label_party, lambda: dial(folder, contract, limits), greeted, waiting=telling.waiting,
            wait=telling.patience,
        )  # fmt: skip

    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "features", {})
    return Asking(line, greeting, labels=contract.exchange.labels != "none")


@dataclass(frozen=True)
class _Received:
    """What was received of the training rows' labels."""

    sent: NDArray[Any]  # one for each row
    mechanism: Mechanism  # what it means

    @property
    def target(self) -> Target:
        return received_target(self.sent, self.mechanism)


def _answered(side: _Side, asking: Asking) -> _Received:
    """What is received of the training rows' labels: asked for once, then from the disk."""

    def ask(path: Path) -> None:
        side.telling.part("asking for randomized labels")
        sent = asking.flips(side.train)
        assert asking.mechanism is not None  # it was greeted with one
        check_agreed(asking.mechanism, side.contract.exchange)
        _check_shares(sent, asking.mechanism)
        store_array(path / "sent.npy", sent)
        write_json(path / "mechanism.json", asking.mechanism.parameters())

    path = side.part("flips", ask)
    return _Received(np.load(path / "sent.npy"), read_mechanism(json.loads((path / "mechanism.json").read_bytes())))


def _check_shares(sent: NDArray[Any], mechanism: Mechanism) -> None:
    """Refuse what the coin can't have given: whatever labels are, each outcome has a share between two others."""
    slack = _ODD * (0.25 / len(sent)) ** 0.5
    for outcome, (low, high) in enumerate(shares(mechanism)):
        share = float((sent == outcome).mean())
        if not low - slack <= share <= high + slack:
            raise ProtocolError(
                f"{share:.1%} of the labels came as {outcome}, where the label party's own mechanism gives {low:.1%} "
                f"to {high:.1%} whatever its labels are: these are no flipped labels"
            )


# --- at home ---------------------------------------------------------------------------------------------------------


def _learnt(side: _Side, received: _Received | None) -> Bottom:
    """What was learnt of one's own columns; columns that are withheld never reach the learner."""
    folder, learn = side.folder, side.learn

    def fitted() -> Bottom:
        unlabelled = received is not None and learn.factory is None and learn.learner == "network" and learn.pretrain
        every = common.every_row(folder, side.rows) if unlabelled else side.inputs[: side.train]
        return _fitted(side, shown(folder, every), received)

    def make(path: Path, made: Bottom) -> None:
        made.save(path)
        write_json(path / "withheld.json", list(learn.withheld))

    path = side.folder.run_folder(side.contract) / "learned"
    if path.exists() and json.loads((path / "withheld.json").read_bytes()) != list(learn.withheld):
        discard(path)  # before anything is sent, other columns may be withheld
    if learn.factory is None or path.exists():
        return load_bottom(side.part("learned", lambda fresh: make(fresh, fitted())))
    made = fitted()
    with suppress(UsageError):  # an object that can't be kept without pickle learns at every start
        side.part("learned", lambda fresh: make(fresh, made))
    return made


def _fitted(side: _Side, inputs: Inputs, received: _Received | None) -> Bottom:
    """Learn from some columns, and from what was received of labels, if anything was."""
    folder, numbers, seed = side.folder, side.contract.exchange.numbers, common.seed_of(side.folder)
    if received is not None:
        return _learner(folder).fit(
            inputs, received.sent, received.mechanism, numbers, seed=seed, threads=common.threads_of(folder),
            progress=side.telling.part,
        )  # fmt: skip
    if side.learn.factory is None:
        return pca.fit(inputs, numbers, seed=seed)
    return own_unlabelled(load_factory(folder.path, side.learn.factory, "[learn]")(), inputs, numbers)


def _again(side: _Side, inputs: Inputs, received: _Received | None) -> Bottom:
    """Learn from fewer columns, to see what would be read then; nothing of it is kept."""
    return _fitted(side, inputs[: side.train], received)


def _learner(folder: Folder) -> Learner:
    """What learns, as party.toml has it."""
    learn = folder.config.learn
    if learn.factory is not None:
        made = own(load_factory(folder.path, learn.factory, "[learn]")())
    else:
        options: dict[str, Any] = {"network": {"pretraining": learn.pretrain}, "trees": {"sample": learn.sample}}
        made = learner(learn.learner, **options.get(learn.learner, {}))
    return replace(made, device=folder.config.training.device) if isinstance(made, Network) else made


def shown(folder: Folder, inputs: Inputs) -> Inputs:
    """The inputs without the columns that the owner withholds."""
    return without(inputs, columns_of(folder).encoded, folder.config.learn.withheld)


def _released(side: _Side, received: _Received | None, line: Dialer) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The embedding as it is sent: attacked first, and only where the limit holds."""

    def make(path: Path) -> None:
        home = home_of(side.folder, side.rows, side.inputs, side.telling.part)
        target = None if received is None else received.target
        learnt = _learnt(side, received)
        try:
            made = release(learnt, target, home, lambda inputs: _again(side, inputs, received))
        except LimitError:  # a link that was idle while one learnt at home may have broken
            line.part(gave_up("limit"))
            raise
        store_array(path / "codes.npy", made.codes)
        write_json(path / "release.json", {**made.as_dict(), "before": _versions(home), "under": _under(side)})

    def read(path: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        return np.load(path / "codes.npy"), json.loads((path / "release.json").read_bytes())

    def entered(path: Path) -> bool:
        codes, released = read(path)
        return _enter(side, codes, released["audit"]["worst"], released["before"])

    return read(_leaving(side, make, entered))


def home_of(folder: Folder, rows: Aligned, inputs: Inputs, progress: Progress) -> Home:
    """All that decoders attack with: the rows, and what has left of them before."""
    contract = folder.one_shot
    return Home(
        inputs, columns_of(folder).encoded, rows.train, contract.exchange,
        withheld=folder.config.learn.withheld, limit=folder.config.limit, known=folder.config.learn.known,
        seed=common.seed_of(folder), threads=common.threads_of(folder), progress=progress,
        before=before(folder, rows),
    )  # fmt: skip


# --- what leaves -----------------------------------------------------------------------------------------------------


def _row_keys(folder: Folder, rows: Aligned) -> Keys:
    return common.keys_of(folder, rows, folder.table.ids, partial(row_keys, folder))


def before(folder: Folder, rows: Aligned) -> Before:
    """What has left of these rows; where nothing ever left of any, no key is worked out."""
    book, run_id = book_of(folder), common.run_id(folder.one_shot, rows)
    return book.before(_row_keys(folder, rows), run_id) if book.all() else Before(run_id, {})


def _leaving(side: _Side, make: Callable[[Path], None], entered: Callable[[Path], bool]) -> Path:
    """The release: made and attacked again until nothing has left that its audit has not seen."""
    while not entered(path := side.part("release", make)):
        side.telling.log("again", reason="more has left of these rows since release was attacked")
        discard(path)
    side.telling.trace("release entered")
    return path


def _versions(home: Home) -> list[str]:
    assert home.before is not None
    return home.before.versions


def _enter(side: _Side, leaving: NDArray[np.uint8], worst: float, seen: list[str]) -> bool:
    """Write down what is about to be sent of which rows; whether the audit has seen all before it."""
    contract, version, keys = side.contract, version_of(side.run, leaving), _row_keys(side.folder, side.rows)
    shipment = Shipment(contract.run, contract.label_party, version, contract.exchange.form, len(leaving), worst)
    with counted_book(side.folder) as book:
        return book.enter(side.run, keys, shipment, leaving, seen, column_digests(side.folder, side.inputs))


def _delivered(side: _Side, asking: Asking, codes: NDArray[np.uint8]) -> tuple[int, bool]:
    """Send the embedding, once; how many bytes that were, and whether the label party has said goodbye."""
    exchange, telling = side.contract.exchange, side.telling
    path, form = side.folder.run_folder(side.contract) / "delivered", Form(exchange.bits, exchange.numbers)
    if not path.exists():
        what = "sending the embedding"
        telling.part(what)
        asking.deliver(codes, form, partial(telling.part, what))
        telling.left("embedding", asking.line.peer, len(codes), form.size(len(codes)))
        telling.trace("acknowledged")
        write_json(path, {"bytes": form.size(len(codes))})
    return form.size(len(codes)), asking.leave()
