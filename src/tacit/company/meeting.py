"""How parties find each other: the label party listens, the feature parties come, and nobody gives up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing

import torch

from tacit._version import __version__
from tacit.align.psi import CHUNK, SHORT
from tacit.company.folder import Folder
from tacit.config import Contract, Terms
from tacit.contracts import Link
from tacit.errors import LinkError, RefusedError
from tacit.wire.codec import CONTROL, LARGEST, PROTOCOL, AtMost, Limit, control, read_control
from tacit.wire.line import Alarm, Desk, Dialer, Waiting, given_up, leave, refused_by
from tacit.wire.network import Server, connect, listen

Purpose = Callable[[str], Mapping[str, str]]
"""What this party wants of a peer, by its name, which that must want as well: fields of the hello, each with a word."""

_CONTROLS = ("hello", "refusal", "commitment", "reveal", "done")
_REMEDIES = {
    "match": "give --match the same word on both sides",
    "id columns": "both must name a row by as many columns, in the same order: correct [data] ids in party.toml",
    "model": "the two halves are not of one training: bring back the run's folder that belongs to the other half",
}


def aligning(columns: int) -> Purpose:
    """To align rows that are named by so many columns."""
    return lambda _: {"purpose": "align", "id columns": str(columns)}


def alignment_limits() -> dict[str, Limit]:
    """What may come while ids are aligned."""
    return {
        **dict.fromkeys(_CONTROLS, CONTROL),
        "points": Limit(torch.uint8, (AtMost(CHUNK), 32)),
        "matches": Limit(torch.uint8, (AtMost(CHUNK), SHORT)),
    }


def training_limits(contract: Contract, party: str) -> dict[str, Limit]:
    """What may come between the label party and this feature party while they train, to the exact shape."""
    cut = contract.cut.widths[party]
    return {
        **dict.fromkeys(("hello", "refusal", "done"), CONTROL),
        "embedding": Limit(torch.float32, (contract.batch_size, *cut), LARGEST),
        "gradient": Limit(torch.float32, (contract.batch_size, *cut), LARGEST),
        "evaluation": Limit(torch.float32, (AtMost(contract.batch_size), *cut), LARGEST),
        "figures": Limit(torch.float64, (AtMost(len(contract.share.metrics)),), LARGEST),
    }


def server(folder: Folder, contract: Terms, limits: Mapping[str, Limit]) -> closing[Server]:
    """The label party's open door, while this lasts: for the feature parties of the contract and nobody else."""
    trusted = {name: pem for name, pem in folder.trusted.items() if name in contract.feature_parties}
    return closing(listen(folder.config.address, folder.identity, trusted, limits))


def dial(folder: Folder, contract: Terms, limits: Mapping[str, Limit]) -> Link:
    """One attempt of a feature party to reach the label party."""
    name = contract.label_party
    return connect(folder.config.address, folder.identity, name, folder.trusted[name], limits)


def meet(
    folder: Folder,
    contract: Terms,
    door: Server | None,
    limits: Mapping[str, Limit],
    *,
    waiting: Waiting,
    alarm: Alarm,
    wait: float = math.inf,
    purpose: Purpose,
) -> dict[str, Link]:
    """Links to all parties that this one talks to, each of which has said that it means the same contract.

    A `GaveUpError` where one of them is not there after `wait` seconds.
    """

    def greet(link: Link) -> None:
        said_hello(link, folder, contract, purpose)

    if door is None:
        peer = contract.label_party
        return {peer: Dialer(peer, lambda: dial(folder, contract, limits), greet, waiting=waiting, wait=wait).reach()}
    desk, since = Desk(door.accept, greet, contract.feature_parties, alarm=alarm), time.monotonic()
    try:
        while True:
            desk.poll(1.0)
            missing = [name for name, link in desk.links.items() if link is None]
            if not missing:
                return {name: link for name, link in desk.links.items() if link is not None}
            waiting(", ".join(missing), time.monotonic() - since, door.missing)
            if time.monotonic() - since > wait:
                raise given_up(", ".join(missing), wait)
    except BaseException as error:  # those that are here need not wait
        leave([link for link in desk.links.values() if link is not None], error)
        raise


def said_hello(
    link: Link,
    folder: Folder,
    contract: Terms,
    purpose: Purpose | None = None,
    patience: float = 30.0,
) -> None:
    """Tell the peer what this party means to do, and refuse one that means something else."""
    mine = {
        "protocol": PROTOCOL,
        "version": __version__,
        **(purpose or aligning(1))(link.peer),
        "contract": contract.digest,
    }
    link.send(control("hello", 0, {**mine, "terms": contract.digests}))
    message = link.recv(patience)
    if message is None:
        raise LinkError(f"{link.peer} says nothing for {patience:.0f} s")
    if message.kind == "refusal":
        raise refused_by(message, link.peer)
    theirs = read_control(message) if message.kind == "hello" else {}
    if "purpose" not in theirs and "transcript" in theirs:  # the hello of a training
        raise RefusedError(
            "purpose",
            f"{link.peer} trains, {folder.config.name} aligns: run `tacit train` on all sides to use what is aligned, "
            "or stop, and run `tacit align --again` on all sides",
        )
    verb = mine["purpose"]
    for field, here in mine.items():
        if message.kind != "hello" or theirs.get(field) != here:
            there = repr(theirs.get(field, f"a {message.kind}"))[:70]
            if field == "contract" and (others := contract.other_than(theirs.get("terms"))):
                raise RefusedError(
                    field,
                    f"contract.toml differs between {folder.config.name} and {link.peer} in {', '.join(others)}: it "
                    "must be the same file on all sides (compare with `tacit contract`)",
                )
            if field == "id columns":
                raise RefusedError(
                    field,
                    f"{folder.config.name} names a row by {here} columns, and {link.peer} by {there[1:-1]}: "
                    f"{_REMEDIES[field]}",
                )
            remedy = _REMEDIES.get(
                field,
                f"both must run `tacit {verb}` with the same version and the same contract.toml (compare with "
                "`tacit contract`)",
            )
            raise RefusedError(field, f"{field} is {here!r} here and {there} at {link.peer}: {remedy}")
