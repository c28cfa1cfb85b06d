"""`tacit check`: what `contract`, `align` and `train` would refuse, asked of a party's folder before they are given.

Nothing is changed: a port is taken and let go, and the peer sees a TLS handshake and no more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from tacit.align.sources import check_columns
from tacit.company.check import doubts, problems, usable_ids
from tacit.company.folder import Folder
from tacit.company.ways import way_of
from tacit.errors import LinkError, TacitError
from tacit.report.status import read
from tacit.wire import certificates
from tacit.wire.network import bound, look

T = TypeVar("T")

_SOON = timedelta(days=30)  # before its end a certificate is worth a warning
_COPIES, _LEAST = 10, 1 << 30  # of a table, and bytes: what runs keep
_SECONDS = 5.0  # in which the peer answers
_TRIPS, _LONG = 3, 0.02  # round trips until it has; seconds of one from which on a step waits long


@dataclass(frozen=True)
class Check:
    """The outcome of one check."""

    name: str  # of what was checked
    # "ok"; "warning" where it works but should be looked at; "problem" where something will not work
    verdict: Literal["ok", "warning", "problem"]
    words: str  # what was found and, where it is not well, the next act


_Outcome = tuple[Literal["ok", "warning", "problem"], str]


def checks(path: str | Path) -> Iterator[Check]:
    """Check a party's folder; what needs something that is broken is left out."""
    try:
        opened = Folder(path)
    except (TacitError, OSError) as error:
        yield Check("folder and keys", "problem", _words(error))
        return
    for name, look_at in _checks(opened):
        try:
            yield Check(name, *look_at())
        except (TacitError, OSError) as error:
            yield Check(name, "problem", _words(error))


def _words(error: TacitError | OSError) -> str:
    if isinstance(error, TacitError):
        return "; ".join(line.strip() for line in str(error).splitlines()).replace(":; ", ": ")
    return f"{error.filename}: {error.strerror or error}: look at who owns it"


def _checks(opened: Folder) -> Iterator[tuple[str, Callable[[], _Outcome]]]:
    yield "keys", lambda: ("ok", f"those of {opened.identity.name}, for their owner alone")
    yield "certificate", lambda: _dates(opened.identity.cert_pem, "make a new one in good time: tacit rotate")
    trusted = _or_none(lambda: opened.trusted) or {}
    if not trusted:
        yield "pinned peers", lambda: _nobody(opened)
    for name, pem in trusted.items():
        do = f"let {name} make a new one and send it: tacit trust --replace"
        yield f"pinned peer {name}", partial(_dates, pem, do)
    yield "party.toml", lambda: _settings(opened)
    yield "contract.toml", lambda: _contract(opened)
    config, contract = _or_none(lambda: opened.config), _or_none(lambda: opened.terms)
    if config is None:
        return
    if config.data is not None:
        yield "data", lambda: _data(opened, agreed=contract is not None)
    if contract is not None:
        yield "plan", lambda: _plan(opened)
    if config.data is not None:
        yield "disk", lambda: _disk(opened)
    if config.role == "label":
        yield "port", lambda: _port(opened, config.address)
    elif contract is not None and contract.label_party in trusted:
        peer = contract.label_party
        yield f"the way to {peer}", lambda: reach(opened, config.address, peer, trusted[peer])


def _or_none(ask: Callable[[], T]) -> T | None:
    """What can be read, or None: what is wrong with it is told by a check of its own."""
    try:
        return ask()
    except (TacitError, OSError):
        return None


def _nobody(opened: Folder) -> _Outcome:
    _ = opened.trusted  # an error says what is wrong with one
    return (
        "problem",
        "no certificate of a peer is trusted yet: let the peers send their .crt file, then: tacit trust PEER.crt",
    )


def _dates(pem: bytes, do: str) -> _Outcome:
    certificate, now = certificates.read(pem, dates=False), datetime.now(UTC)
    valid = f"valid from {certificate.not_before:%Y-%m-%d} to {certificate.not_after:%Y-%m-%d}"
    if now < certificate.not_before:
        seen = f"{valid}, which has not begun: the clock here shows {now:%Y-%m-%d %H:%M} UTC"
        return "problem", f"{seen}: set the clock of this machine, or ask the peer about its own"
    if now > certificate.not_after:
        return "problem", f"{valid}, it has expired: {do}"
    if now > certificate.not_after - _SOON:
        return "warning", f"{valid}, {(certificate.not_after - now).days} days are left: {do}"
    return "ok", f"{valid}, and the clock here lies within"


def _settings(opened: Folder) -> _Outcome:
    config = opened.config
    limit = "no limit is set" if config.limit is None else f"limit {config.limit:g}"
    return "ok", f"{config.name}, role {config.role}, {config.address}, {limit}"


def _contract(opened: Folder) -> _Outcome:
    agreed = opened.terms
    opened.check_pair(agreed)
    digest = f"digest {agreed.digest[:16]}…, which must be equal on all sides"
    return "ok", f"run {agreed.run!r}, mode {agreed.mode}, {digest}"


def _data(opened: Folder, *, agreed: bool) -> _Outcome:
    """The own table, all of its rows where there is a contract for them."""
    table = opened.table
    wanted = list(dict.fromkeys((*table.ids, *table.columns, *opened.config.label.columns)))
    if table.query is not None:
        from tacit.align.sql import check_query

        check_query(table.query, table.url_from, wanted)
        return "ok", f"the query can be run, and has all {len(wanted)} columns that are named"
    path = opened.data
    check_columns(path, wanted)
    if not agreed:
        return "ok", f"{path} has all {len(wanted)} columns that are named"
    own = usable_ids(opened, path)
    if found := list(problems(opened, path, own)):
        return "problem", "\n".join(dict.fromkeys(map(str, found)))
    report = own.report
    seen = [
        f"{path}: {report.kept:,} of {report.total:,} rows can be aligned; ids are {report.spelling}",
        *report.hints,
    ]
    doubted = doubts(opened, path)
    return "warning" if doubted else "ok", "\n".join([*seen, *doubted])


def _plan(opened: Folder) -> _Outcome:
    """What would be sent."""
    found = way_of(opened.terms).plan(opened)
    if found.warnings:
        return "warning", "\n".join(found.warnings)
    return "ok", "\n".join(found.sent)


def _disk(opened: Folder) -> _Outcome:
    """Whether the disk of the folder has room for what a run may keep: a few copies of the table, or a little."""
    path = None if opened.table.query is not None else opened.data
    size = path.stat().st_size if path is not None and path.is_file() else 0
    free, needed = shutil.disk_usage(opened.path).free, max(_LEAST, _COPIES * size)
    seen = f"{free / 2**30:.1f} GiB are free where {opened.path} is"
    if free >= needed:
        return "ok", seen
    return "warning", f"{seen}, and a run may keep {needed / 2**30:.1f} GiB: make room before it begins"


def _port(opened: Folder, address: str) -> _Outcome:
    """Whether the label party can listen at its address."""
    try:
        bound(address, opened.config.name).close()
    except LinkError:
        own = [run["pid"] for run in read(opened.path) if run["alive"] and run["state"] != "finished"]
        if not own:
            raise
        return "ok", f"{address} is in use, by this party's own run (process {own[0]})"
    do = "let each feature party run `tacit check` while `tacit align` or train waits here"
    return "ok", f"{address} is free; whether the peers can reach it, only they can tell: {do}"


def reach(opened: Folder, address: str, peer: str, pinned: bytes, *, seconds: float = _SECONDS) -> _Outcome:
    """Try a TLS handshake with the label party, as a training does; nothing is sent beyond that."""
    began = time.monotonic()
    look(address, opened.identity, peer, pinned, seconds)  # an error says what is wrong
    trip = (time.monotonic() - began) / _TRIPS
    seen = f"{peer} at {address} shows the pinned certificate and takes ours"
    if trip < _LONG:
        return "ok", seen
    do = 'step by step each batch waits for one: mode = "one_shot" in contract.toml trains in one exchange'
    return "ok", f"{seen}; a round trip takes about {1000 * trip:.0f} ms: {do}"
