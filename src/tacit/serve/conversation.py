"""What two companies say to each other over a finished run, and how.

`tacit predict`, for a file::

    feature party                                      label party
    hello, with the version of the model        <-->   hello, with the version of the model
                                                <--    hello 1: which prediction it is, what is matched
    hello 1: what is matched here, its half     -->
                                                <--    hello 2: whether ids are matched (again)
    (private: the protocol of `tacit align`)    <-->   (by key: tokens of all rows of the file; hello 3)
    embeddings of these rows, in parts          -->
                                                <--    done
    done                                        -->

`tacit serve`, row by row::

    hello, with the version of the model        <-->   hello, with the version of the model
    hello 1: its half                           -->
                                                <--    tokens n
    embedding n, or refusal n                   -->

A service's requests are numbered from 1 on over each link, and several may be on their way. A refusal with the number
of a request is about that alone; one with the number 0 ends the link. Of each row that was asked for an embedding has a
byte that says whether the feature party knows it, and its numbers; those of an unknown row are zeros.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit.align.control import decoded
from tacit.align.curve import Engine
from tacit.align.ids import Ids
from tacit.company.align import Found, Work
from tacit.company.folder import Folder
from tacit.company.meeting import Purpose
from tacit.contracts import Link, Message
from tacit.errors import DataError, GaveUpError, LinkError, ProtocolError, RefusedError
from tacit.progress import Progress
from tacit.serve.halves import pin
from tacit.serve.tokens import SIZE
from tacit.wire.codec import CONTROL, AtMost, Limit
from tacit.wire.line import Alarm, Waiting, leave, leaving, refused_by

ROWS = 4096
"""Rows of a message, at most."""

PATIENCE = 60.0
"""Seconds for which a peer is looked for that may have all it wanted, and be gone."""

_CONTROLS = dict.fromkeys(("hello", "refusal"), CONTROL)


@dataclass(frozen=True)
class Telling:
    """Whom a prediction tells how far it is."""

    # told what is being done, how much of it is done and how much there is
    progress: Progress = lambda *_: None
    waiting: Waiting = lambda *_: None  # told while a peer lets us wait
    wait: float = math.inf  # seconds for which a peer may be missing; then it is a `GaveUpError`
    alarm: Alarm = lambda *_: None  # told of everything that was refused: the peer, the field, the reason
    report: Callable[[str], None] = lambda _: None  # told what became of the rows of a table
    trace: Callable[[str], None] = lambda _: None  # told of each point that is passed


def label_limits(widths: Mapping[str, int]) -> dict[str, Limit]:
    """What may come to a label party. Of which width each feature party's rows are, is seen when they are taken."""
    return {**_CONTROLS, "embedding": Limit(torch.uint8, (AtMost(ROWS), AtMost(1 + max(widths.values()))))}


def feature_limits() -> dict[str, Limit]:
    """What may come to a feature party."""
    return {**_CONTROLS, "tokens": Limit(torch.uint8, (AtMost(ROWS), SIZE))}


def purpose(verb: str, versions: Mapping[str, str], **words: str) -> Purpose:
    """What both sides say first, and what must be equal: before that nothing is sent. Versions are by peer."""
    return lambda peer: {"purpose": verb, **words, "model": versions[peer]}


def check_half(where: Path, peer: str, digest: str) -> None:
    """Refuse a peer's half that is another one than when it was first used."""
    try:
        pin(where, peer, digest)
    except DataError as error:
        raise RefusedError("half", str(error)) from None


def following(link: Link, waiting: Waiting, why: str) -> Message:
    """The next message of a peer, however long that takes; a refusal is an error."""
    since = time.monotonic()
    while (message := link.recv(1.0)) is None:
        waiting(link.peer, time.monotonic() - since, why)
    if message.kind == "refusal":
        raise refused_by(message, link.peer)
    return message


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


# --- a prediction's links --------------------------------------------------------------------------------------------


class _GoneError(Exception):
    """A peer can't be found, and may have all it wanted."""


def converse(
    meet: Callable[[Waiting], dict[str, Link]],
    session: Callable[[Mapping[str, Link]], bool],
    telling: Telling,
    over: Callable[[], bool],
) -> bool:
    """Talk over however many links until a session says that it was the last: whether peers said farewell.

    Args:
        meet: gives links to all peers, and tells while it waits for them.
        session: what is done over one set of links.
        telling: told why there are others.
        over: whether nothing but farewells is missing: then peers are looked for a minute long.
    """

    def waiting(peer: str, seconds: float, why: str) -> None:
        if over() and seconds > PATIENCE:
            raise _GoneError
        telling.waiting(peer, seconds, f"all was sent; {why}" if over() else why)

    while True:
        try:
            links = meet(waiting)
        except _GoneError:
            return False
        except GaveUpError:
            if over():
                return False
            raise
        try:
            with leaving(links.values()):
                last = session(links)
        except LinkError as error:
            telling.waiting(", ".join(links), 0.0, str(error))
        else:
            leave(links.values(), None)
            if last:
                return True


def raise_if_refused(link: Link) -> None:
    """Raise the refusal that a peer sent before it hung up, which whoever was just sending has not read."""
    try:
        while (message := link.recv(0.0)) is not None:
            if message.kind == "refusal":
                raise refused_by(message, link.peer)
    except LinkError:
        pass


def private_match(folder: Folder, ids: Ids, engine: Engine, links: Mapping[str, Link], telling: Telling) -> Found:
    """Which rows all parties have, found as `tacit align` finds them; it counts among the alignments.

    Where a link breaks once a peer has been answered, the command ends: that peer would else be answered again and
    again, about other rows.
    """
    work = Work.of(folder, ids, engine, telling.progress)
    try:
        return work.run(links)
    except LinkError as error:
        if not work.answered:
            raise
        raise RefusedError("job", work.after_answers(error, "the same `tacit predict`")) from error
