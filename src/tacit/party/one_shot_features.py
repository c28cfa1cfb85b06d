"""A feature party's part of a one-shot training, from top to bottom: learn, narrow, attack oneself, and send once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.align.encoder import Inputs
from tacit.align.tables import inputs_digest
from tacit.config import Learn, OneShotContract
from tacit.contracts import Link
from tacit.errors import ProtocolError
from tacit.one_shot.exchange import Asking, Greeting, feature_limits
from tacit.one_shot.forms import Form
from tacit.one_shot.forms import shown as without
from tacit.one_shot.grouping import Averages, averages, partitions
from tacit.one_shot.learn import Bottom, Learner, learner, load_bottom
from tacit.one_shot.learn.own import own
from tacit.one_shot.mechanisms import Flipping, check_agreed, read_mechanism, shares
from tacit.one_shot.parts import guard, part, store_array, store_json
from tacit.one_shot.records import Keys, keyed
from tacit.one_shot.release import check_enough
from tacit.one_shot.releasing import Home, above_floor, release
from tacit.one_shot.shipments import Shipment, Shipments
from tacit.one_shot.sums import Sums
from tacit.party.aligning import Aligned, aligned
from tacit.party.folder import Folder
from tacit.party.meeting import dial
from tacit.party.models import load_factory
from tacit.party.one_shot_common import (
    Telling,
    columns_of,
    every_row,
    id_hashes,
    own_inputs,
    run_id,
    seed_of,
    threads_of,
)
from tacit.wire.line import Dialer

__all__ = ["FeatureOutcome", "sent_before", "shown", "train_features"]

_ODD = 6.0  # deviations of the share of a class from what the coin allows, before a label party's word is doubted


@dataclass(frozen=True)
class FeatureOutcome:
    """What a feature party has when it is over.

    Attributes:
        folder: of the run.
        audit: what decoders read of what was sent, before it was sent.
        form: how many numbers of the learnt ones were sent, in how many ranks, under how much noise.
        sent: bytes of the embedding.
        heard: whether the label party said that it has everything.
    """

    folder: Path
    audit: dict[str, Any]
    form: dict[str, float]
    sent: int
    heard: bool


def train_features(folder: Folder, telling: Telling) -> FeatureOutcome:
    """Train as a feature party. Started again after whatever ended it, it goes on where it was."""
    contract, rows = folder.one_shot, aligned(folder)
    where, train = folder.run_folder(contract), contract.train_count(rows.count)
    telling.part("preparing")
    check_enough(rows.count, (folder.config.learn or Learn()).known)
    inputs = own_inputs(folder, contract, rows, train)
    shown(folder, inputs)  # a wrong name is told before labels are paid for
    guard(where / "guard.json", _facts(folder, contract, rows, inputs))
    asking = _asking(folder, contract, rows, train, telling)
    try:
        sent, mechanism = _told(folder, contract, asking, inputs[:train], telling)
        bottom = _learnt(folder, contract, rows, inputs[:train], sent, mechanism, telling)
        codes, told = _released(folder, contract, rows, inputs, sent, mechanism, bottom, telling)
        telling.status.update(release={**told["form"], "worst": told["audit"]["worst"]}, at_once=True)
        _enter(folder, contract, rows, told, codes)
        heard = _delivered(where, asking, codes, telling)
    finally:
        asking.line.close()
    return FeatureOutcome(where, told["audit"], told["form"], codes.nbytes, heard)


def _facts(folder: Folder, contract: OneShotContract, rows: Aligned, inputs: Inputs) -> dict[str, str]:
    learn = folder.config.learn or Learn()
    return {
        "version": __version__,
        "contract": contract.digest,
        "alignment": rows.id,
        "data": inputs_digest(inputs).hex(),
        "learn": json.dumps(learn.model_dump(mode="json"), sort_keys=True),
        "limit": str(folder.config.limit),
        "seed": str(folder.config.training.seed),
    }


# --- what comes ------------------------------------------------------------------------------------------------------


def _asking(folder: Folder, contract: OneShotContract, rows: Aligned, train: int, telling: Telling) -> Asking:
    """The conversation with the label party; it connects when something is asked."""
    limits = feature_limits(train, contract.exchange)

    def line(greet: Callable[[Link], None]) -> Dialer:
        def greeted(link: Link) -> None:
            greet(link)
            telling.connected(link.peer)

        return Dialer(contract.label_party, lambda: dial(folder, contract, limits), greeted, waiting=telling.waiting)

    greeting = Greeting(contract.run, contract.digest, rows.id, rows.digest, folder.config.name, "features", {})
    return Asking(line, greeting)


def _told(
    folder: Folder, contract: OneShotContract, asking: Asking, inputs: Inputs, telling: Telling
) -> tuple[NDArray[Any], Flipping | Averages]:
    """What was told about the training rows' labels, and what it means; asked for once, then from the disk."""
    exchange = contract.exchange

    def ask(path: Path) -> None:
        if exchange.labels == "sums":
            telling.part("grouping rows that are alike")
            seen, seed = shown(folder, inputs), seed_of(folder)
            groups = partitions(seen, exchange.group_size, exchange.partitions, seed=seed)
            telling.part("asking for sums")
            sent = averages(groups, asking.sums(groups))
            store_array(path / "groups.npy", groups)
        else:
            telling.part("asking for flipped labels")
            sent = asking.flips(len(inputs))
        assert asking.mechanism is not None  # it was greeted with one
        check_agreed(asking.mechanism, exchange)
        if not isinstance(asking.mechanism, Sums):
            _check_shares(sent, asking.mechanism)
        store_array(path / "sent.npy", sent)
        store_json(path / "mechanism.json", asking.mechanism.parameters())

    path = part(folder.run_folder(contract), "flips", ask, telling.trace)
    mechanism = read_mechanism(json.loads((path / "mechanism.json").read_bytes()))
    return np.load(path / "sent.npy"), Averages() if isinstance(mechanism, Sums) else mechanism


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


def _learnt(
    folder: Folder,
    contract: OneShotContract,
    rows: Aligned,
    inputs: Inputs,
    sent: NDArray[Any],
    mechanism: Flipping | Averages,
    telling: Telling,
) -> Bottom:
    """What was learnt of one's own columns; columns that are withheld never reach the learner."""

    def make(path: Path) -> None:
        learn = folder.config.learn or Learn()
        unlabelled = learn.factory is None and learn.learner == "network" and learn.pretrain
        seen = every_row(folder, contract, rows, len(inputs)) if unlabelled else inputs
        _learner(folder).fit(
            shown(folder, seen), sent, mechanism, contract.exchange.width,
            seed=seed_of(folder), threads=threads_of(folder), progress=telling.part,
        ).save(path)  # fmt: skip

    return load_bottom(part(folder.run_folder(contract), "learned", make, telling.trace))


def _learner(folder: Folder) -> Learner:
    learn = folder.config.learn or Learn()
    if learn.factory is not None:
        return own(load_factory(folder.path, learn.factory, "[learn]")())
    return learner(learn.learner, **({"pretraining": learn.pretrain} if learn.learner == "network" else {}))


def shown(folder: Folder, inputs: Inputs) -> Inputs:
    """The inputs without the columns that the owner withholds."""
    return without(inputs, columns_of(folder), (folder.config.learn or Learn()).withheld)


def _released(
    folder: Folder,
    contract: OneShotContract,
    rows: Aligned,
    inputs: Inputs,
    sent: NDArray[Any],
    mechanism: Flipping | Averages,
    bottom: Bottom,
    telling: Telling,
) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The embedding as it is sent: attacked first, and only in a form in which the limit is held."""
    learn, width = folder.config.learn or Learn(), contract.exchange.width

    def make(path: Path) -> None:
        home = Home(
            shown(folder, inputs), inputs, columns_of(folder), len(sent), width, folder.secret,
            limit=folder.config.limit, known=learn.known, seed=seed_of(folder), threads=threads_of(folder),
            progress=telling.part, groups=_groups(folder.run_folder(contract), len(inputs)),
            before=sent_before(folder, contract, rows),
        )  # fmt: skip
        found = release(bottom, Form(width, learn.ranks, learn.noise), home)
        if learn.floor:
            found = above_floor(found, _learner(folder), sent, mechanism, home)
        if found.why:
            found.bottom.save(path / "floor")
        store_array(path / "codes.npy", found.codes)
        store_json(path / "release.json", found.as_dict())

    path = part(folder.run_folder(contract), "release", make, telling.trace)
    return np.load(path / "codes.npy"), json.loads((path / "release.json").read_bytes())


def _groups(where: Path, count: int) -> NDArray[np.int64] | None:
    """The groups that the label party has seen, which tell who is alike; rows for testing are in one of their own."""
    if not (where / "flips" / "groups.npy").exists():
        return None
    groups: NDArray[np.int64] = np.load(where / "flips" / "groups.npy")
    rest = np.tile(groups.max(axis=0) + 1, (count - len(groups), 1))
    return np.concatenate([groups, rest])


# --- what leaves -----------------------------------------------------------------------------------------------------


def sent_before(folder: Folder, contract: OneShotContract, rows: Aligned) -> NDArray[np.uint8] | None:
    """What has left of these rows in other runs."""
    return Shipments(folder.path / "embeddings").before(_row_keys(folder, rows), run_id(contract, rows))


def _row_keys(folder: Folder, rows: Aligned) -> Keys:
    """What the book of embeddings calls each row, in every run."""
    secret = hmac.digest(folder.secret, b"tacit embeddings 1", "sha256")
    return keyed(secret, id_hashes(folder, rows, folder.table.ids, duplicates="drop"), "row")


def _enter(
    folder: Folder, contract: OneShotContract, rows: Aligned, told: dict[str, Any], codes: NDArray[np.uint8]
) -> None:
    """Write down which rows are about to be sent, in which version, before they are."""
    form, version = told["form"], hashlib.sha256(told["version"].encode()).hexdigest()[:32]
    words = f"{form['width']} numbers in {form['ranks']} ranks, noise {form['noise']:g}"
    shipment = Shipment(contract.run, contract.label_party, version, words, rows.count, told["audit"]["worst"])
    Shipments(folder.path / "embeddings").enter(
        run_id(contract, rows), _row_keys(folder, rows), shipment, codes[:, : form["width"]]
    )


def _delivered(where: Path, asking: Asking, codes: NDArray[np.uint8], telling: Telling) -> bool:
    """Send the embedding, once; whether the label party has said goodbye."""
    if not (where / "delivered").exists():
        asking.deliver(codes, telling.bar("sending the embedding"))
        telling.left("embedding", asking.line.peer, len(codes), codes.nbytes)
        telling.trace("acknowledged")
        store_json(where / "delivered", {"bytes": codes.nbytes})
    return asking.leave()
