"""`tacit doctor`: is everything in place for a run, and where not, what is to be done?

Every check is one small function under a name. Nothing is changed: a probe file for the disk is made and removed, a
port is taken and let go, and the peer sees a TLS handshake and no more.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tacit.align.ids import read_ids
from tacit.align.sources import check_columns
from tacit.company.doctor import machine
from tacit.company.doctor.machine import Finding, of_error, ok, problem, warning
from tacit.company.folder import Folder
from tacit.company.one_shot_common import check_at_home
from tacit.company.one_shot_label import mechanism_of
from tacit.config import Contract, OneShotContract
from tacit.errors import DataError, TacitError
from tacit.one_shot.book import Book
from tacit.one_shot.mechanisms import described
from tacit.views.progress import Show
from tacit.views.status import read
from tacit.wire import certificates

__all__ = ["Finding", "examine"]

Check = Callable[[], Finding]
T = TypeVar("T")

_SOON = timedelta(days=30)  # before its end a certificate is worth a warning
_FOLLOWED = 64 * 2**20  # bytes of examples that are followed, at most
_SEGMENTS = 3  # of the journal, between two checkpoints each: the last two and a spare one


def examine(folder: str | Path | None = None, *, progress: Show = lambda *_: None) -> list[Finding]:
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
    yield "versions", machine.versions
    yield "extras", machine.extras
    yield "GPU", machine.gpu
    yield "clock", machine.clock
    if path is None:
        yield "disk", partial(machine.disk, Path())
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
    yield "party.toml", lambda: _settings(opened)
    yield "contract.toml", lambda: _contract(opened)
    config, contract = _or_none(lambda: opened.config), _or_none(lambda: opened.terms)
    counted = config is not None and isinstance(contract, Contract)
    yield "disk", lambda: machine.disk(opened.path, _needed(opened, opened.contract) if counted else None)
    yield from _runs(opened)
    if config is None:
        return
    if config.data is not None:
        yield "data", lambda: _data(opened)
    if isinstance(contract, OneShotContract):
        yield from _exchange_checks(opened, contract)
    if config.role == "label":
        yield "port", lambda: machine.port(config.address, config.name, _alive(opened))
    elif contract is not None and contract.label_party in trusted:
        peer = contract.label_party
        way = config.address, opened.identity, peer, trusted[peer]
        yield f"the way to {peer}", lambda: machine.reach(*way)


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


def _settings(opened: Folder) -> Finding:
    config = opened.config
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
        return warning("its limit paused it", "see `tacit status`, and docs/howto-set-a-limit.md")
    if run["state"] == "finished" or run["alive"]:
        return ok(run["state"] + (f", process {run['pid']}" if run["alive"] else ""))
    return warning(f"stopped while {run['state']}", "`tacit train` goes on where it was")


def _alive(opened: Folder) -> list[int]:
    return [run["pid"] for run in read(opened.path) if run["alive"] and run["state"] != "finished"]


# --- one-shot training: learner, limit, coins, budget, and where is counted ------------------------------------------


def _exchange_checks(opened: Folder, agreed: OneShotContract) -> Iterator[tuple[str, Check]]:
    """Each check with its name; none changes anything but for a probe file that is removed."""
    yield "learner", lambda: _learner(opened)
    yield "limit", lambda: _limit(opened, agreed)
    yield "state outside the folder", lambda: _state(opened)
    if opened.config.role == "label":
        if opened.config.data is not None and opened.data.is_file():
            yield "coin_id", lambda: _coin_id(opened)
        yield "budget", lambda: _budget(opened)


def _learner(opened: Folder) -> Finding:
    check_at_home(opened)  # which says what is missing
    head, learn = opened.config.head, opened.config.learn
    kind, own = (head.kind, head.factory) if opened.config.role == "label" else (learn.learner, learn.factory)
    return ok(f"{kind}, and all that it needs is here" if own is None else f"your own: {own}")


def _limit(opened: Folder, agreed: OneShotContract) -> Finding:
    """What is certified of labels, or that a feature party has something to hold its embedding against."""
    limit = opened.config.limit
    if opened.config.role == "label":
        made = mechanism_of(opened, agreed)  # which says what is wrong
        why = getattr(made, "why", "")
        return ok(f"certified: {described(made)}" + (f"; {why}" if why else ""))
    if limit is None:
        seen = "none is set: the embedding is attacked before it leaves, and leaves whatever was read"
        return warning(seen, "write limit = 0.6, the most that may be read of a column, or another")
    return ok(f"at most {limit:g} may be read of any column, else nothing leaves")


def _state(opened: Folder) -> Finding:
    """Whether there is a place apart from the folder in which is counted what left."""
    where, named = opened.tally_path_of("coins").parent, bool(os.environ.get("TACIT_STATE"))
    above = next(one for one in (where, *where.parents) if one.exists())
    with tempfile.TemporaryFile(dir=above):  # an OSError where that can't be written
        pass
    if named:
        return ok(f"TACIT_STATE = {where}, which can be written")
    seen = f"{where}, which can be written; TACIT_STATE names no other place"
    return ok(seen, "in a container, let TACIT_STATE name a volume that lasts")


def _coin_id(opened: Folder) -> Finding:
    names = list(opened.table.coin_id or opened.table.ids)
    try:
        found = read_ids(opened.data, names, unique=True)
    except DataError as error:
        return problem(f"{names}: {error}", "name columns that tell every row from all others")
    return ok(f"{', '.join(names)}: {len(found.rows):,} rows, each its own")


def _budget(opened: Folder) -> Finding:
    path, budget, odds_budget = (
        opened.path / "coins" / "book.sqlite",
        opened.config.spendable,
        opened.config.odds_budget,
    )
    most = f"budget {'none' if budget is None else f'{budget:g}'}, odds_budget {odds_budget:g}"
    if not path.exists():
        return ok(f"nothing has left yet; {most}")
    with closing(Book(path, opened.secret)) as book:
        book.claim()
        spent = book.summary()
    seen = f"spent: leak AUC {spent.auc:.3f}, odds {spent.odds:.3g} in {len(spent.releases)} exchanges; {most}"
    if (budget is not None and spent.auc >= budget - 1e-9) or spent.odds >= odds_budget - 1e-9:
        do = "labels that left can be sent again at the same limit; new limits need another budget in party.toml"
        return warning(f"{seen}: nothing is left for the labels told most about", do)
    return ok(seen)
