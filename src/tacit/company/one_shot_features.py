"""A feature party's part of a one-shot training, from top to bottom: learn, narrow, attack oneself, and send once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.encoder import Inputs
from tacit.align.tables import inputs_digest
from tacit.company.align import Aligned, aligned
from tacit.company.departures import book_of, counted_book, go_on_predicting, row_keys
from tacit.company.folder import Folder
from tacit.company.hidden_groups import hidden_sums
from tacit.company.meeting import dial
from tacit.company.one_shot_common import (
    ExchangeTelling,
    check_at_home,
    columns_of,
    every_row,
    id_hashes,
    own_inputs,
    run_id,
    seed_of,
    threads_of,
)
from tacit.company.one_shot_workers import ALIGNED, ALL, LEARNING, learner_of, tell, told
from tacit.config import Learn, OneShotContract
from tacit.contracts import Link
from tacit.errors import ProtocolError
from tacit.one_shot.exchange import Asking, Greeting, feature_limits
from tacit.one_shot.forms import Form
from tacit.one_shot.forms import shown as without
from tacit.one_shot.grouping import Averages, averages, partitions
from tacit.one_shot.learn import Bottom, load_bottom
from tacit.one_shot.mechanisms import Flipping, check_agreed, shares
from tacit.one_shot.parts import discard, guard, part, store_array, store_json
from tacit.one_shot.records import Keys
from tacit.one_shot.release import check_enough
from tacit.one_shot.releasing import Home, above_floor, attack_groups, release
from tacit.one_shot.shipments import Shipment, version_of
from tacit.one_shot.sums import Sums
from tacit.one_shot.workers import ALONE, Workers
from tacit.wire.line import Dialer

_ODD = 6.0  # deviations of the share of a class from what the coin allows, before a label party's word is doubted


@dataclass(frozen=True)
class FeatureOutcome:
    """What a feature party has when it is over."""

    folder: Path  # of the run
    audit: dict[str, Any]  # what decoders read of what was sent, before it was sent
    form: dict[str, float]  # how many numbers of the learnt ones were sent, in how many ranks, under how much noise
    sent: int  # bytes of the embedding
    heard: bool  # whether the label party said that it has everything

    @property
    def history(self) -> list[dict[str, float]]:
        """Figures for the status: a feature party has none."""
        return []


@dataclass(frozen=True)
class _Side:
    """The feature party in one run: its rows, how many of them are trained on, its columns, and where it stands."""

    folder: Folder
    rows: Aligned
    train: int
    inputs: Inputs
    telling: ExchangeTelling
    workers: Workers  # the processes that learn, this one the first of them

    @property
    def contract(self) -> OneShotContract:
        return self.folder.one_shot

    @property
    def learn(self) -> Learn:
        return self.folder.config.learn or Learn()

    def part(self, name: str, make: Callable[[Path], None]) -> Path:
        """A part of the run: made once, then from the disk."""
        return part(self.folder.run_folder(self.contract), name, make, self.telling.trace)


def train_features(
    folder: Folder,
    telling: ExchangeTelling,
    restored: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
) -> FeatureOutcome:
    """Train as a feature party. Started again after whatever ended it, it goes on where it was."""
    contract, rows = folder.one_shot, aligned(folder)
    where, train = folder.run_folder(contract), contract.train_count(rows.count)
    telling.part("preparing")
    with counted_book(folder, restored):
        pass  # it knows of everything that left
    go_on_predicting(folder, where, restored)
    check_at_home(folder)
    check_enough(rows.count, (folder.config.learn or Learn()).known)
    inputs = own_inputs(folder, contract, rows, train)
    shown(folder, inputs)  # a wrong name is told before labels are paid for
    workers.check(train)
    side = _Side(folder, rows, train, inputs, telling, workers)
    guard(where / "guard.json", _facts(side))
    tell(folder, workers, ALIGNED, rows=len(inputs))  # who does not have them says so before labels are paid for
    asking = _asking(side)
    try:
        sent, mechanism = _answered(side, asking)
        codes, released = _released(side, sent, mechanism)
        form, audit = released["form"], released["audit"]
        shutil.rmtree(where / LEARNING, ignore_errors=True)
        telling.status.update(release={**form, "worst": audit["worst"]}, at_once=True)
        heard = _delivered(where, asking, codes, telling)
    finally:
        asking.line.close()
    return FeatureOutcome(where, audit, form, codes.nbytes, heard)


def _facts(side: _Side) -> dict[str, str]:
    config = side.folder.config
    return {
        "version": __version__,
        "contract": side.contract.digest,
        "alignment": side.rows.id,
        "data": inputs_digest(side.inputs).hex(),
        "learn": json.dumps(side.learn.model_dump(mode="json"), sort_keys=True),
        "limit": str(config.limit),
        "seed": str(config.training.seed),
    }


# --- what comes ------------------------------------------------------------------------------------------------------


def _asking(side: _Side) -> Asking:
    """The conversation with the label party; it connects when something is asked."""
    folder, contract, rows, telling = side.folder, side.contract, side.rows, side.telling
    limits = feature_limits(side.train, contract.exchange)

    def line(greet: Callable[[Link], None]) -> Dialer:
        def greeted(link: Link) -> None:
            greet(link)
            telling.log("connected", peer=link.peer)

        return Dialer(contract.label_party, lambda: dial(folder, contract, limits), greeted, waiting=telling.waiting)

    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "features", {})
    return Asking(line, greeting)


def _answered(side: _Side, asking: Asking) -> tuple[NDArray[Any], Flipping | Averages]:
    """What was told about the training rows' labels, and what it means; asked for once, then from the disk."""
    exchange, inputs = side.contract.exchange, side.inputs[: side.train]

    def ask(path: Path) -> None:
        if exchange.labels == "hidden_sums":
            seen = shown(side.folder, inputs)
            sent = hidden_sums(asking, side.folder, run_id(side.contract, side.rows), seen, side.telling, side.part)
        elif exchange.labels == "sums":
            groups = _grouped(side)
            side.telling.part("asking for sums")
            try:
                sent = averages(groups, asking.sums(groups))
            finally:
                if asking.mechanism is not None:  # it was greeted, and so it was asked
                    side.telling.left("groups", asking.line.peer, len(groups), groups.nbytes)
                    side.telling.trace("groups logged")
        else:
            side.telling.part("asking for flipped labels")
            sent = asking.flips(len(inputs))
        assert asking.mechanism is not None  # it was greeted with one
        check_agreed(asking.mechanism, exchange)
        if not isinstance(asking.mechanism, Sums):
            _check_shares(sent, asking.mechanism)
        store_array(path / "sent.npy", sent)
        store_json(path / "mechanism.json", asking.mechanism.parameters())

    return told(side.part("flips", ask))


def _grouped(side: _Side) -> NDArray[np.int64]:
    """Groups of training rows that are alike: attacked, and entered as leaving, before anybody is asked for sums."""

    def make(path: Path) -> None:
        exchange, inputs = side.contract.exchange, side.inputs
        side.telling.part("grouping rows that are alike")
        seen, seed = shown(side.folder, inputs[: side.train]), seed_of(side.folder)
        groups = partitions(seen, exchange.group_size, exchange.partitions, seed=seed)
        side.telling.trace("groups drawn")
        home = home_of(side.folder, side.rows, inputs, side.telling.part)
        audit = attack_groups(replace(home, groups=_for_all(groups, len(inputs))))
        store_array(path / "groups.npy", groups)
        store_json(path / "audit.json", {**audit.as_dict(), "before": _versions(home)})

    def entered(path: Path) -> bool:
        groups, audit = np.load(path / "groups.npy"), json.loads((path / "audit.json").read_bytes())
        words = f"groups of about {side.contract.exchange.group_size} rows, in {groups.shape[1]} partitions"
        return _enter(side, groups, words, audit["worst"], audit["before"], "groups")

    groups: NDArray[np.int64] = np.load(_leaving(side, "groups", make, entered) / "groups.npy")
    return groups


def _check_shares(sent: NDArray[Any], mechanism: Flipping) -> None:
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


def _learnt(side: _Side, sent: NDArray[Any], mechanism: Flipping | Averages) -> Bottom:
    """What was learnt of one's own columns; columns that are withheld never reach the learner."""
    folder = side.folder

    def fitted() -> Bottom:
        unlabelled = side.learn.factory is None and side.learn.learner == "network" and side.learn.pretrain
        every = every_row(folder, side.contract, side.rows, side.train) if unlabelled else side.inputs[: side.train]
        return learner_of(folder, side.workers, ALL if unlabelled else ALIGNED).fit(
            shown(folder, every), sent, mechanism, side.contract.exchange.width,
            seed=seed_of(folder), threads=threads_of(folder), progress=side.telling.part,
        )  # fmt: skip

    if side.learn.factory is not None:  # of an object of the party's own only what it sends is kept: no pickle
        return fitted()
    return load_bottom(side.part("learned", lambda path: fitted().save(path)))


def shown(folder: Folder, inputs: Inputs) -> Inputs:
    """The inputs without the columns that the owner withholds."""
    return without(inputs, columns_of(folder), (folder.config.learn or Learn()).withheld)


def _released(
    side: _Side, sent: NDArray[Any], mechanism: Flipping | Averages
) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The embedding as it is sent: attacked first, and only in a form in which the limit is held."""
    learn, width = side.learn, side.contract.exchange.width

    def make(path: Path) -> None:
        home = home_of(side.folder, side.rows, side.inputs, side.telling.part)
        made = release(_learnt(side, sent, mechanism), Form(width, learn.ranks, learn.noise), home)
        if learn.floor:
            made = above_floor(made, learner_of(side.folder, side.workers), sent, mechanism, home)
        if made.why:
            made.bottom.save(path / "floor")
        store_array(path / "codes.npy", made.codes)
        store_json(path / "release.json", {**made.as_dict(), "before": _versions(home)})

    def read(path: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        return np.load(path / "codes.npy"), json.loads((path / "release.json").read_bytes())

    def entered(path: Path) -> bool:
        codes, released = read(path)
        form = Form(**released["form"])
        worst, before = released["audit"]["worst"], released["before"]
        return _enter(side, codes[:, : form.width], str(form), worst, before, "embedding")

    return read(_leaving(side, "release", make, entered))


def home_of(folder: Folder, rows: Aligned, inputs: Inputs, progress: Callable[[str, int, int], None]) -> Home:
    """All that decoders attack with: the rows, what has left of them before, and groups where sums are asked for."""
    contract, learn, book = folder.one_shot, folder.config.learn or Learn(), book_of(folder)
    seen = folder.run_folder(contract) / "groups" / "groups.npy"  # by the label party: they tell who is alike
    return Home(
        shown(folder, inputs), inputs, columns_of(folder), contract.train_count(rows.count), contract.exchange.width,
        folder.secret, limit=folder.config.limit, known=learn.known, seed=seed_of(folder), threads=threads_of(folder),
        progress=progress, groups=_for_all(np.load(seen), len(inputs)) if seen.exists() else None,
        before=book.before(_row_keys(folder, rows), run_id(contract, rows)),
        notes=tuple(f"besides, {one.form} (run {one.run})" for one in book.all() if one.kind == "hidden sums"),
    )  # fmt: skip


def _for_all(groups: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Groups of the training rows and of all others: these are in one of their own."""
    return np.concatenate([groups, np.full((count - len(groups), groups.shape[1]), -1)])


# --- what leaves -----------------------------------------------------------------------------------------------------


def _row_keys(folder: Folder, rows: Aligned) -> Keys:
    return row_keys(folder, id_hashes(folder, rows, folder.table.ids, duplicates="drop"))


def _leaving(side: _Side, name: str, make: Callable[[Path], None], entered: Callable[[Path], bool]) -> Path:
    """A part that may leave: made and attacked again until nothing has left that its audit has not seen."""
    while not entered(path := side.part(name, make)):
        side.telling.log("again", reason=f"more has left of these rows since {name} was attacked")
        discard(path)
    side.telling.trace(f"{name} entered")
    return path


def _versions(home: Home) -> list[str]:
    assert home.before is not None
    return home.before.versions


def _enter(
    side: _Side, leaving: NDArray[Any], form: str, worst: float, seen: list[str], kind: Literal["embedding", "groups"]
) -> bool:
    """Write down what is about to be sent of which rows, the first ones; whether the audit has seen all before it."""
    folder, contract, rows = side.folder, side.contract, side.rows
    run, count = run_id(contract, rows), len(leaving)
    version, keys = version_of(run, leaving), _row_keys(folder, rows)[:count]
    shipment = Shipment(contract.run, contract.label_party, version, form, count, worst, kind=kind)
    with counted_book(folder) as book:
        return book.enter(run, keys, shipment, leaving, seen)


def _delivered(where: Path, asking: Asking, codes: NDArray[np.uint8], telling: ExchangeTelling) -> bool:
    """Send the embedding, once; whether the label party has said goodbye."""
    if not (where / "delivered").exists():
        what = "sending the embedding"
        telling.part(what)
        asking.deliver(codes, partial(telling.part, what))
        telling.left("embedding", asking.line.peer, len(codes), codes.nbytes)
        telling.trace("acknowledged")
        store_json(where / "delivered", {"bytes": codes.nbytes})
    return asking.leave()
