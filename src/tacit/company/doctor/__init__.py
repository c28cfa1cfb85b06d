"""`tacit doctor`: is everything in place for a run, and where not, what is to be done?

Every check is one small function that gives a `Finding`. Nothing is changed: a probe file for the disk is made and
removed, a port is taken and let go, and the peer sees a TLS handshake and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import polars as pl

from tacit.align.sources import scan
from tacit.company.doctor.finding import Finding, of_error
from tacit.company.doctor.machine import clock, disk, extras, gpu, versions
from tacit.company.doctor.network import port, reach
from tacit.company.doctor.one_shot import exchange_checks
from tacit.company.folder import Folder
from tacit.config import Contract, OneShotContract
from tacit.errors import TacitError
from tacit.views.status import read
from tacit.wire import certificates

__all__ = ["Finding", "examine"]

Progress = Callable[[str, int, int], None]

_SOON = timedelta(days=30)  # before its end a certificate is worth a warning
_FOLLOWED = 64 * 2**20  # bytes of examples that are followed, at most
_SEGMENTS = 3  # of the journal, between two checkpoints each: the last two and a spare one


def examine(folder: str | Path | None = None, *, progress: Progress = lambda *_: None) -> list[Finding]:
    """Check this machine and, if one is named, a party's folder.

    Args:
        folder: the party's; None checks the machine alone.
        progress: told what is being looked at, how many checks are done, and how many there are at least.
    """
    found: list[Finding] = []
    for one in _checks(None if folder is None else Path(folder)):
        found.append(one)
        progress(f"looked at {one.name}", len(found), max(len(found) + 1, 14 if folder else 5))
    return found


def _checks(path: Path | None) -> Iterator[Finding]:
    yield versions()
    yield extras()
    yield gpu()
    yield clock()
    if path is None:
        yield disk(Path())
        return
    try:
        opened = Folder(path)
    except (TacitError, OSError) as error:
        yield _failed("folder and keys", error)
        return
    yield from _party(opened)


def _party(opened: Folder) -> Iterator[Finding]:
    """Everything about a party's folder that can be opened; a check that needs what is broken is left out."""
    yield _checked("keys", lambda: _keys(opened))
    yield _checked("certificate", lambda: _own_certificate(opened))
    yield from _pinned(opened)
    settings = _checked("party.toml", lambda: _settings(opened))
    yield settings
    agreed = _checked("contract.toml", lambda: _contract(opened))
    yield agreed
    contract = opened.terms if agreed.verdict != "problem" or _readable(opened) else None
    counted = isinstance(contract, Contract) and settings.verdict != "problem"
    yield disk(opened.path, _needed(opened, opened.contract) if counted else None)
    yield from _runs(opened)
    if settings.verdict == "problem":
        return
    if opened.config.data is not None:
        yield _checked("data", lambda: _data(opened))
    if isinstance(contract, OneShotContract):
        for name, check in exchange_checks(opened, contract):
            yield _checked(name, check)
    if opened.config.role == "label":
        yield port(opened.config.address, _alive(opened))
    elif contract is not None and contract.label_party in opened.trusted:
        peer = contract.label_party
        way = partial(reach, opened.config.address, opened.identity, peer, opened.trusted[peer])
        yield _checked(f"the way to {peer}", way)


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (TacitError, OSError) as error:
        return _failed(name, error)


def _failed(name: str, error: TacitError | OSError) -> Finding:
    if isinstance(error, TacitError):
        return of_error(name, error)
    return Finding(name, "problem", f"{error.filename}: {error.strerror or error}", "look at who owns it")


# --- what a folder holds ---------------------------------------------------------------------------------------------


def _keys(opened: Folder) -> Finding:
    """Keys that are there, are the owner's alone, and belong to the certificate."""
    name, secret = opened.identity.name, opened.secret
    return Finding(
        "keys", "ok", f"those of {name}, for their owner alone; the secret of the noise has {len(secret)} bytes"
    )


def _own_certificate(opened: Folder) -> Finding:
    own = certificates.read(opened.identity.cert_pem, dates=False)
    return _dates("certificate", own, "make a new one in good time: tacit rotate")


def _pinned(opened: Folder) -> Iterator[Finding]:
    """One finding for each peer whose certificate is pinned."""
    try:
        trusted = opened.trusted
    except (TacitError, OSError) as error:
        yield _failed("pinned peers", error)
        return
    if not trusted:
        do = "let the peers send their .crt file, then: tacit trust PEER.crt"
        yield Finding("pinned peers", "problem", "no certificate of a peer is trusted yet", do)
    for name, pem in trusted.items():
        found = certificates.read(pem, dates=False)
        yield _dates(f"pinned peer {name}", found, f"let {name} make a new one and send it: tacit trust --replace")


def _dates(what: str, found: certificates.Certificate, do: str) -> Finding:
    now = datetime.now(UTC)
    said = f"valid from {found.not_before:%Y-%m-%d} to {found.not_after:%Y-%m-%d}"
    if now < found.not_before:
        seen = f"{said}, which has not begun: the clock here shows {now:%Y-%m-%d %H:%M} UTC"
        return Finding(what, "problem", seen, "set the clock of this machine, or ask the peer about its own")
    if now > found.not_after:
        return Finding(what, "problem", f"{said}: it has expired", do)
    if now > found.not_after - _SOON:
        return Finding(what, "warning", f"{said}: {(found.not_after - now).days} days are left", do)
    return Finding(what, "ok", f"{said}, and the clock here lies within")


def _settings(opened: Folder) -> Finding:
    config = opened.config
    limit = "no limit is set" if config.limit is None else f"limit {config.limit:g}"
    return Finding("party.toml", "ok", f"{config.name}, role {config.role}, {config.address}, {limit}")


def _contract(opened: Folder) -> Finding:
    agreed = opened.terms
    opened.check_pair(agreed)
    seen = f"run {agreed.run!r}, mode {agreed.mode}, digest {agreed.digest[:16]}…, which must be equal on all sides"
    return Finding("contract.toml", "ok", seen)


def _readable(opened: Folder) -> bool:
    """Whether the contract can be read, even if this party is not ready for it."""
    try:
        return bool(opened.terms)
    except TacitError:
        return False


def _data(opened: Folder) -> Finding:
    """The party's table: there, a table, with the columns that party.toml names."""
    table, path = opened.table, opened.data
    if not path.is_file():
        return Finding("data", "problem", f"{path} is not there", "put it there, or correct [data] path in party.toml")
    frame = scan(path)
    if frame is None:
        return Finding("data", "problem", f"{path} is no table that can be read", "use a .parquet, .csv or .tsv file")
    try:
        names = frame.collect_schema().names()
    except (OSError, pl.exceptions.PolarsError) as error:
        cause = str(error).partition("\n")[0]
        return Finding("data", "problem", f"{path} can't be read ({cause})", "look at the file, or write it anew")
    wanted = list(dict.fromkeys((*table.ids, *table.columns)))
    missing = [name for name in wanted if name not in names]
    if missing:
        seen = f"{path} has no column {', '.join(map(repr, missing))}; it has {', '.join(names)}"
        return Finding("data", "problem", seen, "correct the names under [data] in party.toml")
    size = path.stat().st_size / 2**20
    return Finding("data", "ok", f"{path}, {size:.1f} MiB, has all {len(wanted)} columns that are named")


def _needed(opened: Folder, agreed: Contract) -> int:
    """Bytes that a run may take: the journal, what is recorded for the attacks, and some models."""
    config = opened.config
    widths = agreed.cut.widths
    cuts = [widths[config.name]] if config.role == "features" and config.name in widths else widths.values()
    width = sum(map(math.prod, cuts))
    step = 2 * 4 * agreed.batch_size * width  # an embedding and its gradient
    return _SEGMENTS * config.training.checkpoint_every * step + config.record.last * step + 2 * _FOLLOWED


# --- what runs -------------------------------------------------------------------------------------------------------


def _runs(opened: Folder) -> Iterator[Finding]:
    """One finding for each run, and one for what a crash left behind."""
    for one in read(opened.path):
        name, state = f"run {one['run']}", one["state"]
        if one["problems"]:
            yield Finding(name, "warning", "; ".join(one["problems"]), "see `tacit status`")
        elif state == "paused":
            yield Finding(name, "warning", "its limit paused it", "see `tacit status`, and `tacit explain set-a-limit`")
        elif state == "finished" or one["alive"]:
            yield Finding(name, "ok", state + (f", process {one['pid']}" if one["alive"] else ""))
        else:
            yield Finding(name, "warning", f"stopped while {state}", "`tacit train` goes on where it was")
    left = sorted((opened.path / "runs").rglob("*.part"))
    if left and not _alive(opened):
        seen = f"a crash left {len(left)} unfinished files, as {left[0]}"
        yield Finding("leftovers", "ok", seen, "nothing: they are written over when the run goes on")


def _alive(opened: Folder) -> list[int]:
    return [one["pid"] for one in read(opened.path) if one["alive"] and one["state"] != "finished"]
