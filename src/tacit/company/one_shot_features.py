"""A feature party's part of a one-shot training, from top to bottom: learn, narrow, attack oneself, and send once."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.cache import Facts, file_facts
from tacit.align.encoder import Inputs
from tacit.align.tables import inputs_digest
from tacit.company import one_shot_common as common
from tacit.company.align import Aligned, aligned, columns_of
from tacit.company.departures import book_of, counted_book, go_on_predicting, row_keys
from tacit.company.folder import Folder
from tacit.company.meeting import dial
from tacit.company.one_shot_common import ExchangeTelling
from tacit.company.one_shot_workers import ALIGNED, ALL, LEARNING, learner_of, tell, told
from tacit.config import Learn, OneShotContract
from tacit.contracts import Link
from tacit.disk import write_json
from tacit.errors import DataError, ProtocolError
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.points import base
from tacit.one_shot.exchange import Asking, Greeting, feature_limits
from tacit.one_shot.forms import Form
from tacit.one_shot.forms import shown as without
from tacit.one_shot.grouping import Averages, averages, partitions
from tacit.one_shot.hiding import agreement, bits_shown, check_enough_rows, hidden_answers
from tacit.one_shot.learn import Bottom, load_bottom
from tacit.one_shot.mechanisms import Flipping, check_agreed, shares
from tacit.one_shot.parts import discard, guard, part, store_array
from tacit.one_shot.records import Keys
from tacit.one_shot.release import check_enough
from tacit.one_shot.releasing import Home, above_floor, attack_groups, release
from tacit.one_shot.shipments import Before, Shipment, Shipments, version_of
from tacit.one_shot.sums import Sums
from tacit.one_shot.workers import ALONE, Workers
from tacit.views.progress import Show
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


@dataclass(frozen=True)
class _Side:
    """The feature party in one run: its rows, how many of them are trained on, its columns, and where it stands."""

    folder: Folder
    rows: Aligned
    train: int
    inputs: Inputs
    table: Facts  # of the file that these were made of
    telling: ExchangeTelling
    workers: Workers  # the processes that learn, this one the first of them

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
    folder: Folder,
    telling: ExchangeTelling,
    restored: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
) -> FeatureOutcome:
    """Train as a feature party. Started again after whatever ended it, it goes on where it was."""
    contract, rows = folder.one_shot, aligned(folder)
    where, train = folder.run_folder(contract), contract.train_count(rows.count)
    telling.part("preparing")
    telling.limited(folder.config.limit)
    with counted_book(folder, restored):
        pass  # it knows of everything that left
    go_on_predicting(folder, where, restored)
    common.check_at_home(folder)
    check_enough(rows.count, folder.config.learn.known)
    table = file_facts(folder.data)
    inputs = common.own_inputs(folder, rows)
    shown(folder, inputs)  # a wrong name is told before labels are paid for
    workers.check(train)
    side = _Side(folder, rows, train, inputs, table, telling, workers)
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


# --- what comes ------------------------------------------------------------------------------------------------------


def _asking(side: _Side) -> Asking:
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
            sent = _hidden_sums(side, asking)
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
        write_json(path / "mechanism.json", asking.mechanism.parameters())

    return told(side.part("flips", ask))


def _grouped(side: _Side) -> NDArray[np.int64]:
    """Groups of training rows that are alike: attacked, and entered as leaving, before anybody is asked for sums."""

    def make(path: Path) -> None:
        exchange, inputs = side.contract.exchange, side.inputs
        side.telling.part("grouping rows that are alike")
        seen, seed = shown(side.folder, inputs[: side.train]), common.seed_of(side.folder)
        groups = partitions(seen, exchange.group_size, exchange.partitions, seed=seed)
        side.telling.trace("groups drawn")
        home = home_of(side.folder, side.rows, inputs, side.telling.part)
        audit = attack_groups(replace(home, groups=_for_all(groups, len(inputs))))
        store_array(path / "groups.npy", groups)
        write_json(path / "audit.json", {**audit.as_dict(), "before": _versions(home)})

    def entered(path: Path) -> bool:
        groups, audit = np.load(path / "groups.npy"), json.loads((path / "audit.json").read_bytes())
        words = f"groups of about {side.contract.exchange.group_size} rows, in {groups.shape[1]} partitions"
        return _enter(side, groups, words, audit["worst"], audit["before"], "groups")

    groups: NDArray[np.int64] = np.load(_leaving(side, "groups", make, entered) / "groups.npy")
    return groups


def _hidden_sums(side: _Side, asking: Asking) -> NDArray[np.float64]:
    """What sums over groups that nobody sees tell about each training row.  (rows,)"""
    folder, contract, exchange, telling = side.folder, side.contract, side.contract.exchange, side.telling
    seen = shown(folder, side.inputs[: side.train])
    base()  # the library is there, or its absence is told before anybody is asked
    check_enough_rows(exchange.group_size, len(seen), "rows")

    def mine(mechanism: Sums) -> FeatureSide:
        check_agreed(mechanism, exchange)
        units = exchange.unit != "row"
        agreed = agreement(mechanism, contract.digest, f"{side.run} {folder.config.name}", len(seen), units=units)
        return FeatureSide(folder.run_folder(contract) / "hidden", folder.secret, agreed, trace=telling.trace)

    def grouped(taking_part: NDArray[np.bool_]) -> NDArray[np.int64]:
        def make(path: Path) -> None:
            telling.part("grouping rows that are alike")
            size, count, seed = exchange.group_size, exchange.partitions, common.seed_of(folder)
            store_array(path / "groups.npy", partitions(seen, size, count, seed=seed, taking_part=taking_part))

        groups: NDArray[np.int64] = np.load(side.part("hidden groups", make) / "groups.npy")
        telling.part("asking for sums of hidden groups")
        return groups

    def leaving(groups: NDArray[np.int64], labels: bytes, size: int) -> None:
        _enter_sums(side, groups, labels)
        telling.trace("sums entered")
        telling.left("shuffled ciphertexts", asking.line.peer, len(seen), size)

    telling.part("asking for encrypted labels")
    return averages(*hidden_answers(asking, mine, grouped, leaving))


def _enter_sums(side: _Side, groups: NDArray[np.int64], labels: bytes) -> None:
    """Write down, before a batch leaves, what its sums can show; once for the labels that were encrypted."""
    contract, count = side.contract, int(groups[:, 0].max() + 1)
    size, partitions_of = contract.exchange.group_size, contract.exchange.partitions
    bits = math.ceil(bits_shown(count * size, size, partitions_of))
    shipment = Shipment(
        contract.run, contract.label_party, version_of(side.run, np.frombuffer(labels, np.uint8)),
        f"sums of {count:,} hidden groups in {partitions_of} partitions: of all rows together {bits:,} bits at most",
        len(groups), 0.0, kind="hidden sums",
    )  # fmt: skip
    with counted_book(side.folder) as book:
        book.enter(side.run, np.zeros((0, 16), np.uint8), shipment, groups[:0])


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
        every = common.every_row(folder, side.rows) if unlabelled else side.inputs[: side.train]
        return learner_of(folder, side.workers, ALL if unlabelled else ALIGNED).fit(
            shown(folder, every), sent, mechanism, side.contract.exchange.width,
            seed=common.seed_of(folder), threads=common.threads_of(folder), progress=side.telling.part,
        )  # fmt: skip

    if side.learn.factory is not None:  # of an object of the party's own only what it sends is kept: no pickle
        return fitted()
    return load_bottom(side.part("learned", lambda path: fitted().save(path)))


def shown(folder: Folder, inputs: Inputs) -> Inputs:
    """The inputs without the columns that the owner withholds."""
    return without(inputs, columns_of(folder), folder.config.learn.withheld)


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
        write_json(path / "release.json", {**made.as_dict(), "before": _versions(home)})

    def read(path: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        return np.load(path / "codes.npy"), json.loads((path / "release.json").read_bytes())

    def entered(path: Path) -> bool:
        codes, released = read(path)
        form = Form(**released["form"])
        worst, before = released["audit"]["worst"], released["before"]
        return _enter(side, codes[:, : form.width], str(form), worst, before, "embedding")

    return read(_leaving(side, "release", make, entered))


def home_of(folder: Folder, rows: Aligned, inputs: Inputs, progress: Show) -> Home:
    """All that decoders attack with: the rows, what has left of them before, and groups where sums are asked for."""
    contract, book = folder.one_shot, book_of(folder)
    seen = folder.run_folder(contract) / "groups" / "groups.npy"  # by the label party: they tell who is alike
    return Home(
        shown(folder, inputs), inputs, columns_of(folder), contract.train_count(rows.count), contract.exchange.width,
        folder.secret, limit=folder.config.limit, known=folder.config.learn.known, seed=common.seed_of(folder),
        threads=common.threads_of(folder), progress=progress,
        groups=_for_all(np.load(seen), len(inputs)) if seen.exists() else None,
        before=_before(book, folder, rows),
        notes=tuple(f"besides, {one.form} (run {one.run})" for one in book.all() if one.kind == "hidden sums"),
    )  # fmt: skip


def _for_all(groups: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.concatenate([groups, np.full((count - len(groups), groups.shape[1]), -1)])


# --- what leaves -----------------------------------------------------------------------------------------------------


def _row_keys(folder: Folder, rows: Aligned) -> Keys:
    return common.keys_of(folder, rows, folder.table.ids, partial(row_keys, folder), unique=False)


def _before(book: Shipments, folder: Folder, rows: Aligned) -> Before:
    """What has left of these rows; where nothing ever left of any, no key is worked out."""
    run_id = common.run_id(folder.one_shot, rows)
    return book.before(_row_keys(folder, rows), run_id) if book.all() else Before(run_id, {}, {})


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
    contract, count = side.contract, len(leaving)
    version, keys = version_of(side.run, leaving), _row_keys(side.folder, side.rows)[:count]
    if file_facts(side.folder.data) != side.table:  # the book would know these rows by the names of others
        raise DataError(
            f"{side.folder.data} was changed while this run learnt from it, so nothing of it was sent: put it back as "
            "it was, and run `tacit train` again"
        )
    shipment = Shipment(contract.run, contract.label_party, version, form, count, worst, kind=kind)
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
