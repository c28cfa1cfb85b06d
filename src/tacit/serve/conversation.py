"""What both sides of a prediction share: what may come, whom it tells, how one waits, and the record of what left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch

from tacit.align.control import decoded
from tacit.align.curve import Engine
from tacit.align.history import newest
from tacit.align.ids import Ids
from tacit.company import seals
from tacit.company.align import Found, Work
from tacit.company.departures import counted_predictions
from tacit.company.folder import Folder
from tacit.company.meeting import Purpose, alignment_limits
from tacit.company.run_files import PREDICTIONS
from tacit.company.verdict import now
from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.serve.job import Matched, rows_of_chunk
from tacit.serve.tokens import SIZE
from tacit.wire.codec import AtMost, Limit
from tacit.wire.line import Alarm, Waiting, refused_by

TOKENS = 1 << 18
"""Tokens of a message."""

_MONTH = timedelta(days=30)


@dataclass(frozen=True)
class Telling:
    """Whom a prediction tells how far it is."""

    # told what is being done, how much of it is done and how much there is
    progress: Callable[[str, int, int], None] = lambda *_: None
    waiting: Waiting = lambda *_: None  # told while a peer lets us wait
    alarm: Alarm = lambda *_: None  # told of everything that was refused: the peer, the field, the reason
    report: Callable[[str], None] = lambda _: None  # told what became of the rows of a table
    trace: Callable[[str], None] = lambda _: None  # told of each point that is passed


def label_limits(widths: Mapping[str, int]) -> dict[str, Limit]:
    """What may come to a label party. Of which width each feature party's rows are, is seen when they are taken."""
    width = 1 + max(widths.values())
    most = max(rows_of_chunk(1 + each) for each in widths.values())
    return {**alignment_limits(), "embedding": Limit(torch.uint8, (AtMost(most), AtMost(width)))}


def feature_limits() -> dict[str, Limit]:
    """What may come to a feature party."""
    return {**alignment_limits(), "tokens": Limit(torch.uint8, (AtMost(TOKENS), SIZE))}


def purpose(match: str, versions: Mapping[str, str]) -> Purpose:
    """What both sides say first, and what must be equal: before that nothing is sent. Versions are by peer."""
    return lambda peer: {"purpose": "predict", "match": match, "model": versions[peer]}


def following(link: Link, waiting: Waiting, why: str) -> Message:
    """The next message of a peer, however long that takes; a refusal is an error."""
    since = time.monotonic()
    while (message := link.recv(1.0)) is None:
        waiting(link.peer, time.monotonic() - since, why)
    if message.kind == "refusal":
        raise refused_by(message, link.peer)
    return message


def raise_if_refused(link: Link) -> None:
    """Raise the refusal that a peer sent before it hung up, which whoever was just sending has not read."""
    try:
        while (message := link.recv(0.0)) is not None:
            if message.kind == "refusal":
                raise refused_by(message, link.peer)
    except LinkError:
        pass


def heard(link: Link, kind: str, step: int, fields: dict[str, type], telling: Telling, why: str) -> dict[str, Any]:
    """The fields of the next message, which must be this one."""
    message = following(link, telling.waiting, why)
    if (message.kind, message.step) != (kind, step):
        raise RefusedError("message", f"a {message.kind} {message.step} came where a {kind} {step} must")
    try:
        return decoded(message, fields)
    except RefusedError:
        raise
    except ProtocolError as error:
        raise RefusedError("message", str(error)) from None


def record(where: Path, job: str, what: str, to: str, **facts: Any) -> None:
    """Put on record what is about to leave for a prediction; once, however often it is started."""
    said = {"job": job, "what": what, "to": to, **facts}
    if not any({**line, "time": ""} == {**said, "time": ""} for line in seals.read(where / PREDICTIONS)):
        seals.append(where / PREDICTIONS, {"time": now(), **said})


def check_keyed(folder: Folder, where: Path, job: str, peer: str, asked: Matched) -> None:
    """Refuse a label party that has asked for too many rows by key in 30 days, in all runs together.

    Rows that were answered in this prediction before are free.
    """
    lines = [line for path in where.parent.glob(f"*/{PREDICTIONS}") for line in seals.read(path)]
    keyed = [line for line in lines if line.get("match") == "keyed" and line["to"] == peer]
    keyed.sort(key=lambda line: str(line["time"]))
    if any((line["job"], line["asked"], line["what"]) == (job, asked.id, "embeddings") for line in keyed):
        return
    old = len(keyed) - newest([line["time"] for line in keyed], datetime.now(UTC), _MONTH)
    used = sum(line["rows"] for line in keyed[old:] if line["what"] == "embeddings")
    most = folder.config.align.keyed_rows_a_month
    if used + asked.count > most:
        with counted_predictions(folder):
            record(where, job, "nothing: refused", peer, rows=asked.count, match="keyed", asked=asked.id, on=now())
        raise RefusedError(
            "keyed_rows_a_month",
            f"{peer} asks for {asked.count:,} rows by key and was given {used:,} in 30 days, where {most:,} are "
            f"allowed: raise `[align] keyed_rows_a_month` in the party.toml of {folder.config.name}, or wait and ask "
            f"every week (a longer pause counts as {_MONTH.days / 4:g} days, for clocks jump)",
        )


def private_match(folder: Folder, ids: Ids, engine: Engine, links: Mapping[str, Link], telling: Telling) -> Found:
    """Which rows all parties have, found as `tacit align` finds them; it counts among the alignments."""
    work = Work.of(folder, ids, engine, telling.progress)
    try:
        return work.run(links)
    except LinkError as error:
        work.give_up(error, "the same `tacit predict`")
        raise
