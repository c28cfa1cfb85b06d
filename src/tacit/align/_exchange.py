"""The two streams of an intersection, each way at once: points go out, points come in, products go back.

Three threads share the work, so that no party ever waits with a full pipe for the other to read: one blinds and sends
this party's points, one multiplies the peer's and sends them back, and the calling one does nothing but receive. Points
go out a few chunks before their products come back, and not more, so that neither side's memory fills with the other's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
import torch

from tacit.align.control import receive
from tacit.align.curve import Engine, Points
from tacit.align.kept import CHUNK, SHORT, Held, OnDisk
from tacit.contracts import Link, Message
from tacit.errors import ProtocolError

WINDOW = 32
"""Chunks of points that may be on the way or wait at the peer: more than both sides' engines work at ahead of
themselves, and fewer than a link holds for a peer that still sorts its ids."""

DOMAIN = b"tacit psi point 1"
"""What the points of an intersection are for, so that they mean nothing elsewhere."""

_POINT = 32
_PULSE = 0.2  # seconds between two looks at whether another thread has failed


def rows_of(message: Message, expected: tuple[int, int], done: int, count: int) -> Points:
    """The rows of a chunk, which must be as many as are still to come, up to a full chunk; `expected` is its shape."""
    payload = message.payload
    if payload.dtype != torch.uint8 or tuple(payload.shape) != expected:
        raise ProtocolError(
            f"{message.kind} {message.step} is {payload.dtype} {tuple(payload.shape)}, expected uint8 {expected}: "
            f"{done} of {count} rows were there before it"
        )
    return payload.numpy()


@dataclass(frozen=True)
class Standing:
    """How far a party is in an intersection, by its own word: 0 and 0 where it begins."""

    count: int  # of its ids
    answered: int  # of the other's points that it has multiplied, from the first on
    received: int  # of its own points whose products it has, from the first on


@dataclass
class Exchange:
    """One intersection under way."""

    link: Link  # to the peer
    stock: Held | OnDisk  # of ids and products of this party
    peer: Standing  # of the peer, when the link was made
    engine: Engine  # multiplies
    key: bytes = field(repr=False)  # this party's secret, for this run only
    progress: Callable[[int, int], None] | None  # called with the multiplications done and to do
    patience: float  # how many seconds the peer may be silent

    def __post_init__(self) -> None:
        self._arrived: SimpleQueue[Points | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._news = threading.Condition()  # that products have come, or that it is over
        self._sending = threading.Lock()
        self._done = self.peer.answered + self.stock.answered

    def run(self) -> None:
        """Until the stock has the products of all points of both."""
        threads = ThreadPoolExecutor(2, "tacit-alignment")
        try:
            working = [threads.submit(self._send_points), threads.submit(self._send_products)]
            self._receive(working)
            while wait_for(working, timeout=_PULSE).not_done:  # until everything has been sent
                _raise_failure(working)
            _raise_failure(working)
        finally:
            self._stopped.set()
            with self._news:
                self._news.notify_all()
            self._arrived.put(None)
            self.stock.close()
            threads.shutdown(wait=False)

    def _receive(self, working: list[Future[None]]) -> None:
        points = self.stock.answered  # rows that have come
        missing = f"was silent for {self.patience:g} s in the middle of the alignment: align again"
        while points < self.peer.count or self.stock.received < self.stock.count:
            message = receive(self.link, self.patience, missing, lambda: _raise_failure(working))
            if message.kind == "points":
                rows = self._checked(message, points, self.peer.count, _POINT)
                self._arrived.put(rows)
                points += len(rows)
            elif message.kind == "matches":
                rows = self._checked(message, self.stock.received, self.stock.count, SHORT)
                with self._news:
                    self.stock.receive(rows)
                    self._news.notify_all()
            else:
                raise ProtocolError(
                    f"{self.link.peer} sent {message.kind} {message.step} in the middle of the alignment, expected "
                    "points or matches: start both anew"
                )
            if points - self.stock.answered > WINDOW * CHUNK:
                raise ProtocolError(
                    f"{self.link.peer} sent points {message.step} before it had products to wait for: at most {WINDOW} "
                    "chunks may be on the way"
                )
            if points == self.peer.count:
                self._arrived.put(None)
        self._arrived.put(None)  # a peer without ids sends nothing

    def _checked(self, message: Message, done: int, count: int, width: int) -> Points:
        if message.step != done // CHUNK or done == count:
            raise ProtocolError(
                f"{self.link.peer} sent {message.kind} {message.step} after {done} of {count} rows: chunks come in "
                "order and as many as were promised"
            )
        return rows_of(message, (min(CHUNK, count - done), width), done, count)

    def _send_points(self) -> None:
        chunks = self.engine.blind_each(self._own_chunks(), self.key, domain=DOMAIN)
        for step, chunk in enumerate(chunks, self.peer.answered // CHUNK):
            self._send("points", step, chunk)

    def _own_chunks(self) -> Iterator[Points]:
        sent = self.peer.answered
        for chunk in self.stock.hashes(sent):
            with self._news:
                self._news.wait_for(lambda: sent - self.stock.received < WINDOW * CHUNK or self._stopped.is_set())  # noqa: B023
            if self._stopped.is_set():
                return
            yield chunk
            sent += len(chunk)

    def _peer_chunks(self) -> Iterator[Points]:
        while (chunk := self._arrived.get()) is not None:
            yield chunk

    def _send_products(self) -> None:
        start = self.peer.received
        for step, chunk in enumerate(self.stock.answers(start), start // CHUNK):
            self._send("matches", step, chunk, again=True)
        chunks = self.engine.multiply_each(self._peer_chunks(), self.key)
        for step, chunk in enumerate(chunks, -(-self.stock.answered // CHUNK)):
            short = np.ascontiguousarray(chunk[:, :SHORT])
            self.stock.answer(short)  # before it leaves: no point is ever answered in two ways
            self._send("matches", step, short)

    def _send(self, kind: str, step: int, rows: Points, *, again: bool = False) -> None:
        with self._sending:
            self.link.send(Message(step, kind, torch.from_numpy(rows), b""))
            self._done += 0 if again else len(rows)
            if self.progress is not None:
                self.progress(self._done, self.stock.count + self.peer.count)


def _raise_failure(working: list[Future[None]]) -> None:
    for future in working:
        if future.done():
            future.result()
