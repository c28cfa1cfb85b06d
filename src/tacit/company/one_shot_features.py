"""A feature party's part of a one-shot training, from top to bottom: learn, narrow, attack oneself, and send once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.encoder import Inputs
from tacit.align.tables import inputs_digest
from tacit.company import one_shot_common as common
from tacit.company.aligned import Aligned, pin
from tacit.company.check import columns_of
from tacit.company.departures import book_of, counted_book, go_on_predicting, row_keys
from tacit.company.folder import Folder
from tacit.company.meeting import dial
from tacit.company.models import load_factory
from tacit.company.one_shot_common import ExchangeTelling
from tacit.config import Learn, OneShotContract
from tacit.contracts import Link
from tacit.disk import write_json
from tacit.errors import ProtocolError
from tacit.one_shot.exchange import Asking, Greeting, feature_limits
from tacit.one_shot.forms import Form
from tacit.one_shot.forms import shown as without
from tacit.one_shot.learn import Bottom, Learner, learner, load_bottom
from tacit.one_shot.learn.network import Network
from tacit.one_shot.learn.own import own
from tacit.one_shot.mechanisms import Mechanism, check_agreed, read_mechanism, shares
from tacit.one_shot.parts import discard, guard, part, store_array
from tacit.one_shot.records import Keys
from tacit.one_shot.release import check_enough
from tacit.one_shot.releasing import Home, above_floor, release
from tacit.one_shot.shipments import Before, Shipment, version_of
from tacit.views.progress import Show
from tacit.wire.line import Dialer

_LEARNING = "learning"  # the folder of a run that says, until something leaves, how far learning was
_ODD = 6.0  # deviations of the share of a class from what the coin allows, before a label party's word is doubted


@dataclass(frozen=True)
class FeatureOutcome:
    """What a feature party has when it is over."""

    folder: Path  # of the run
    audit: dict[str, Any]  # what decoders read of what was sent, before it was sent
    form: dict[str, float]  # how many numbers of the learnt ones were sent, in how many ranks, under how much noise
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
        return part(self.folder.run_folder(self.contract), name, make, self.telling.trace)


def train_features(
    folder: Folder, telling: ExchangeTelling, restored: Callable[[str], None] | None = None
) -> FeatureOutcome:
    """Train as a feature party. Started again after whatever ended it, it goes on where it was."""
    telling.part("preparing")
    telling.limited(folder.config.limit)
    contract, rows = folder.one_shot, pin(folder, telling.progress)
    where, train = folder.run_folder(contract), contract.train_count(rows.count)
    telling.gone(rows)
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
        "learn": json.dumps(config.learn.model_dump(mode="json"), sort_keys=True),
        "limit": str(config.limit),
        "seed": str(config.training.seed),
    }
    guard(where / "guard.json", facts)  # what must be the same whenever the run goes on
    asking = _asking(side)
    try:
        sent, mechanism = _answered(side, asking)
        codes, released = _released(side, sent, mechanism)
        form, audit = released["form"], released["audit"]
        shutil.rmtree(where / _LEARNING, ignore_errors=True)
        telling.status.update(release={**form, "worst": audit["worst"]}, at_once=True)
        heard = _delivered(where, asking, codes, telling)
    finally:
        asking.line.close()
    return FeatureOutcome(where, audit, form, codes.nbytes, heard)


# --- what comes ------------------------------------------------------------------------------------------------------


def _asking(side: _Side) -> Asking:
    folder, contract, rows, telling = side.folder, side.contract, side.rows, side.telling
    limits = feature_limits(side.train)

    def line(greet: Callable[[Link], None]) -> Dialer:
        def greeted(link: Link) -> None:
            greet(link)
            telling.log("connected", peer=link.peer)

        return Dialer(contract.label_party, lambda: dial(folder, contract, limits), greeted, waiting=telling.waiting)

    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "features", {})
    return Asking(line, greeting)


def _answered(side: _Side, asking: Asking) -> tuple[NDArray[Any], Mechanism]:
    """What was told about the training rows' labels, and what it means; asked for once, then from the disk."""

    def ask(path: Path) -> None:
        side.telling.part("asking for flipped labels")
        sent = asking.flips(side.train)
        assert asking.mechanism is not None  # it was greeted with one
        check_agreed(asking.mechanism, side.contract.exchange)
        _check_shares(sent, asking.mechanism)
        store_array(path / "sent.npy", sent)
        write_json(path / "mechanism.json", asking.mechanism.parameters())

    path = side.part("flips", ask)
    return np.load(path / "sent.npy"), read_mechanism(json.loads((path / "mechanism.json").read_bytes()))


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


def _learnt(side: _Side, sent: NDArray[Any], mechanism: Mechanism) -> Bottom:
    """What was learnt of one's own columns; columns that are withheld never reach the learner."""
    folder = side.folder

    def fitted() -> Bottom:
        unlabelled = side.learn.factory is None and side.learn.learner == "network" and side.learn.pretrain
        every = common.every_row(folder, side.rows) if unlabelled else side.inputs[: side.train]
        return _learner(folder).fit(
            shown(folder, every), sent, mechanism, side.contract.exchange.width,
            seed=common.seed_of(folder), threads=common.threads_of(folder), progress=side.telling.part,
        )  # fmt: skip

    if side.learn.factory is not None:  # of an object of the party's own only what it sends is kept: no pickle
        return fitted()
    return load_bottom(side.part("learned", lambda path: fitted().save(path)))


def _learner(folder: Folder) -> Learner:
    """What learns, as party.toml has it; a network goes on from the last epoch when it was killed."""
    learn = folder.config.learn
    if learn.factory is not None:
        made = own(load_factory(folder.path, learn.factory, "[learn]")())
    else:
        options: dict[str, Any] = {"network": {"pretraining": learn.pretrain}, "trees": {"sample": learn.sample}}
        made = learner(learn.learner, **options.get(learn.learner, {}))
    if not isinstance(made, Network):
        return made
    keep = folder.run_folder(folder.one_shot) / _LEARNING
    return replace(made, keep=keep, device=folder.config.training.device)


def shown(folder: Folder, inputs: Inputs) -> Inputs:
    """The inputs without the columns that the owner withholds."""
    return without(inputs, columns_of(folder), folder.config.learn.withheld)


def _released(side: _Side, sent: NDArray[Any], mechanism: Mechanism) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The embedding as it is sent: attacked first, and only in a form in which the limit is held."""
    learn, width = side.learn, side.contract.exchange.width

    def make(path: Path) -> None:
        home = home_of(side.folder, side.rows, side.inputs, side.telling.part)
        made = release(_learnt(side, sent, mechanism), Form(width, learn.ranks, learn.noise), home)
        if learn.floor:
            made = above_floor(made, _learner(side.folder), sent, mechanism, home)
        if made.why:
            made.bottom.save(path / "floor")
        store_array(path / "codes.npy", made.codes)
        write_json(path / "release.json", {**made.as_dict(), "before": _versions(home)})

    def read(path: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        return np.load(path / "codes.npy"), json.loads((path / "release.json").read_bytes())

    def entered(path: Path) -> bool:
        codes, released = read(path)
        form = Form(**released["form"])
        worst, before = released["audit"]["worst"], released["before"]
        return _enter(side, codes[:, : form.width], str(form), worst, before)

    return read(_leaving(side, make, entered))


def home_of(folder: Folder, rows: Aligned, inputs: Inputs, progress: Show) -> Home:
    """All that decoders attack with: the rows, and what has left of them before."""
    contract = folder.one_shot
    return Home(
        shown(folder, inputs), inputs, columns_of(folder), contract.train_count(rows.count), contract.exchange.width,
        folder.secret, limit=folder.config.limit, known=folder.config.learn.known, seed=common.seed_of(folder),
        threads=common.threads_of(folder), progress=progress, before=_before(folder, rows),
    )  # fmt: skip


# --- what leaves -----------------------------------------------------------------------------------------------------


def _row_keys(folder: Folder, rows: Aligned) -> Keys:
    return common.keys_of(folder, rows, folder.table.ids, partial(row_keys, folder))


def _before(folder: Folder, rows: Aligned) -> Before:
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


def _enter(side: _Side, leaving: NDArray[np.uint8], form: str, worst: float, seen: list[str]) -> bool:
    """Write down what is about to be sent of which rows; whether the audit has seen all before it."""
    contract, version, keys = side.contract, version_of(side.run, leaving), _row_keys(side.folder, side.rows)
    shipment = Shipment(contract.run, contract.label_party, version, form, len(leaving), worst)
    with counted_book(side.folder) as book:
        return book.enter(side.run, keys, shipment, leaving, seen)


def _delivered(where: Path, asking: Asking, codes: NDArray[np.uint8], telling: ExchangeTelling) -> bool:
    """Send the embedding, once; whether the label party has said goodbye."""
    if not (where / "delivered").exists():
        what = "sending the embedding"
        telling.part(what)
        asking.deliver(codes, partial(telling.part, what))
        telling.left("embedding", asking.line.peer, len(codes), codes.nbytes)
        telling.trace("acknowledged")
        write_json(where / "delivered", {"bytes": codes.nbytes})
    return asking.leave()
