"""`tacit doctor`: is everything in place for a run, and where not, what is to be done?

Every check is one small function under a name. Nothing is changed: a probe file for the disk is made and removed, a
port is taken and let go, and the peer sees a TLS handshake and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tacit.align.sources import check_columns
from tacit.company.doctor.finding import Finding, of_error, ok, problem, warning
from tacit.company.doctor.machine import clock, disk, extras, gpu, versions
from tacit.company.doctor.network import port, reach
from tacit.company.doctor.one_shot import exchange_checks
from tacit.company.folder import Folder
from tacit.config import Contract, OneShotContract, Party
from tacit.errors import TacitError
from tacit.views.status import read
from tacit.wire import certificates

__all__ = ["Finding", "examine"]

Progress = Callable[[str, int, int], None]
Check = Callable[[], Finding]
T = TypeVar("T")

_SOON = timedelta(days=30)  # before its end a certificate is worth a warning
_FOLLOWED = 64 * 2**20  # bytes of examples that are followed, at most
_SEGMENTS = 3  # of the journal, between two checkpoints each: the last two and a spare one


def examine(folder: str | Path | None = None, *, progress: Progress = lambda *_: None) -> list[Finding]:
    """Check this machine and, if one is named, a party's folder."""
    findings: list[Finding] = []
    for name, check in _checks(None if folder is None else Path(folder)):
        try:
            finding = check()
        except (TacitError, OSError) as error:
            finding = of_error(error)
        findings.append(replace(finding, name=name))
        progress(f"looked at {name}", len(findings), max(len(findings) + 1, 14 if folder else 5))
    return findings


def _checks(path: Path | None) -> Iterator[tuple[str, Check]]:
    yield "versions", versions
    yield "extras", extras
    yield "GPU", gpu
    yield "clock", clock
    if path is None:
        yield "disk", partial(disk, Path())
        return
    try:
        opened = Folder(path)
    except (TacitError, OSError) as error:
        yield "folder and keys", partial(of_error, error)
    else:
        yield from _party(opened)


def _party(opened: Folder) -> Iterator[tuple[str, Check]]:
    """Everything about a party's folder that can be opened; a check that needs what is broken is left out."""
    yield "keys", lambda: _keys(opened)
    yield "certificate", lambda: _dates(opened.identity.cert_pem, "make a new one in good time: tacit rotate")
    trusted = _or_none(lambda: opened.trusted) or {}
    if not trusted:
        yield "pinned peers", lambda: _nobody(opened)
    for name, pem in trusted.items():
        do = f"let {name} make a new one and send it: tacit trust --replace"
        yield f"pinned peer {name}", partial(_dates, pem, do)
    yield "party.toml", lambda: _settings(opened.config)
    yield "contract.toml", lambda: _contract(opened)
    config, contract = _or_none(lambda: opened.config), _or_none(lambda: opened.terms)
    counted = config is not None and isinstance(contract, Contract)
    yield "disk", lambda: disk(opened.path, _needed(opened, opened.contract) if counted else None)
    yield from _runs(opened)
    if config is None:
        return
    if config.data is not None:
        yield "data", lambda: _data(opened)
    if isinstance(contract, OneShotContract):
        yield from exchange_checks(opened, contract)
    if config.role == "label":
        yield "port", lambda: port(config.address, _alive(opened))
    elif contract is not None and contract.label_party in trusted:
        peer = contract.label_party
        yield f"the way to {peer}", lambda: reach(config.address, opened.identity, peer, trusted[peer])


def _or_none(ask: Callable[[], T]) -> T | None:
    """What can be read, or None: what is wrong with it is told by a check of its own."""
    try:
        return ask()
    except (TacitError, OSError):
        return None


# --- what a folder holds ---------------------------------------------------------------------------------------------


def _keys(opened: Folder) -> Finding:
    name, secret = opened.identity.name, opened.secret
    return ok(f"those of {name}, for their owner alone; the secret of the noise has {len(secret)} bytes")


def _nobody(opened: Folder) -> Finding:
    _ = opened.trusted  # an error says what is wrong with one
    do = "let the peers send their .crt file, then: tacit trust PEER.crt"
    return problem("no certificate of a peer is trusted yet", do)


def _dates(pem: bytes, do: str) -> Finding:
    certificate, now = certificates.read(pem, dates=False), datetime.now(UTC)
    valid = f"valid from {certificate.not_before:%Y-%m-%d} to {certificate.not_after:%Y-%m-%d}"
    if now < certificate.not_before:
        seen = f"{valid}, which has not begun: the clock here shows {now:%Y-%m-%d %H:%M} UTC"
        return problem(seen, "set the clock of this machine, or ask the peer about its own")
    if now > certificate.not_after:
        return problem(f"{valid}: it has expired", do)
    if now > certificate.not_after - _SOON:
        return warning(f"{valid}: {(certificate.not_after - now).days} days are left", do)
    return ok(f"{valid}, and the clock here lies within")


def _settings(config: Party) -> Finding:
    limit = "no limit is set" if config.limit is None else f"limit {config.limit:g}"
    return ok(f"{config.name}, role {config.role}, {config.address}, {limit}")


def _contract(opened: Folder) -> Finding:
    agreed = opened.terms
    opened.check_pair(agreed)
    return ok(f"run {agreed.run!r}, mode {agreed.mode}, digest {agreed.digest[:16]}…, which must be equal on all sides")


def _data(opened: Folder) -> Finding:
    table = opened.table
    wanted = list(dict.fromkeys((*table.ids, *table.columns)))
    if table.query is not None:
        from tacit.align.sql import check_query

        check_query(table.query, table.url_from, wanted)
        return ok(f"the query can be run, and has all {len(wanted)} columns that are named")
    path = opened.data
    check_columns(path, wanted)
    size = path.stat().st_size / 2**20
    return ok(f"{path}, {size:.1f} MiB, has all {len(wanted)} columns that are named")


def _needed(opened: Folder, agreed: Contract) -> int:
    """Bytes that a run may take: the journal, what is recorded for the attacks, and some models."""
    config = opened.config
    widths = agreed.cut.widths
    cuts = [widths[config.name]] if config.role == "features" and config.name in widths else widths.values()
    width = sum(map(math.prod, cuts))
    step = 2 * 4 * agreed.batch_size * width  # an embedding and its gradient
    return _SEGMENTS * config.training.checkpoint_every * step + config.record.last * step + 2 * _FOLLOWED


# --- what runs -------------------------------------------------------------------------------------------------------


def _runs(opened: Folder) -> Iterator[tuple[str, Check]]:
    for run in read(opened.path):
        yield f"run {run['run']}", partial(_run, run)
    left = sorted((opened.path / "runs").rglob("*.part"))
    if left and not _alive(opened):
        seen = f"a crash left {len(left)} unfinished files, as {left[0]}"
        yield "leftovers", partial(ok, seen, "nothing: they are written over when the run goes on")


def _run(run: dict[str, Any]) -> Finding:
    if run["problems"]:
        return warning("; ".join(run["problems"]), "see `tacit status`")
    if run["state"] == "paused":
        return warning("its limit paused it", "see `tacit status`, and `tacit explain set-a-limit`")
    if run["state"] == "finished" or run["alive"]:
        return ok(run["state"] + (f", process {run['pid']}" if run["alive"] else ""))
    return warning(f"stopped while {run['state']}", "`tacit train` goes on where it was")


def _alive(opened: Folder) -> list[int]:
    return [run["pid"] for run in read(opened.path) if run["alive"] and run["state"] != "finished"]
