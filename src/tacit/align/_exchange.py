"""The two streams of an intersection, each way at once: points go out, points come in, products go back.

Three threads share the work, so that no party ever waits with a full pipe for the other to read: one blinds and sends
this party's points, one multiplies the peer's and sends them back, and the calling one does nothing but receive. Points
go out a few chunks before their products come back, and not more, so that neither side's memory fills with the other's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.control import receive
from tacit.align.curve import Engine, Points, byte_order
from tacit.contracts import Link, Message
from tacit.errors import ProtocolError, RefusedError
from tacit.progress import Count

CHUNK = 16_384
"""Rows of every message but the last one, so that each party knows what must come."""

SHORT = 16
"""Bytes that are kept of a product."""

WINDOW = 32
"""Chunks of points that may be on the way or wait at the peer: more than both sides' engines work at ahead of
themselves, and fewer than a link holds for a peer that still sorts its ids."""

DOMAIN = b"tacit psi point 1"
"""Name of an intersection's points, so that they mean nothing elsewhere."""

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


class Held:
    """Memory of one side of an intersection: its ids in the order they are sent, and the products of both sides."""

    def __init__(self, hashes: Points, order: NDArray[np.int64], peer_count: int) -> None:
        self.count = len(hashes)
        self.peer_count = peer_count
        self.answered = 0  # points of the peer that were multiplied, from its first one on
        self.received = 0  # this party's points whose products have come back, from its first one on
        self._hashes, self._order = hashes, order
        self._own: Points = np.empty((len(hashes), SHORT), np.uint8)  # this party's points times both keys
        self._peer: Points = np.empty((peer_count, SHORT), np.uint8)  # the peer's points times both keys

    def hashes(self) -> Iterator[Points]:
        """This party's ids in the order in which they are sent, in chunks."""
        for at in range(0, self.count, CHUNK):
            yield np.take(self._hashes, self._order[at : at + CHUNK], axis=0)

    def answer(self, products: Points) -> None:
        """Keep what the peer is about to be answered."""
        self._peer[self.answered : self.answered + len(products)] = products
        self.answered += len(products)

    def receive(self, products: Points) -> None:
        """Keep what has come back."""
        self._own[self.received : self.received + len(products)] = products
        self.received += len(products)

    def matches(self, peer: str) -> NDArray[np.int64]:
        """The places of all ids that the peer has as well, in the order of their hashes' bytes."""
        places: NDArray[np.int64] = self._order[equal(peer, self._own, self._peer)]
        return places[byte_order(np.take(self._hashes, places, axis=0))]


def equal(peer_name: str, own: Points, peer: Points) -> NDArray[np.int64]:
    """Places in `own` of the products that are in `peer` too."""
    both = np.concatenate([own, peer])
    order = byte_order(both)  # stable: of two that are equal, this party's own comes first
    words = np.take(both, order, axis=0).view(np.uint64)  # many times as fast as both[order]
    again = np.flatnonzero((words[1:] == words[:-1]).all(axis=1))
    first, second = order[again], order[again + 1]
    if (wrong := first >= len(own)).any():
        raise RefusedError(
            "points",
            f"{peer_name} sent {int(wrong.sum())} points twice: its ids are not distinct, or it is not honest",
        )
    if (wrong := second < len(own)).any():
        raise RefusedError(
            "matches",
            f"{peer_name} returned one product for {int(wrong.sum())} pairs of different points: this party's hashes "
            "are not distinct, or the peer does not multiply",
        )
    return first


@dataclass
class Exchange:
    """Intersection under way."""

    link: Link  # to the peer
    stock: Held  # of ids and products of this party
    engine: Engine  # multiplies
    key: bytes = field(repr=False)  # this party's secret, for this run only
    progress: Count | None  # called with the multiplications done and to do
    patience: float  # how many seconds the peer may be silent

    def __post_init__(self) -> None:
        self._arrived: SimpleQueue[Points | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._news = threading.Condition()  # that products have come, or that it is over
        self._sending = threading.Lock()
        self._done = 0

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
            threads.shutdown(wait=False)

    def _receive(self, working: list[Future[None]]) -> None:
        points = 0  # rows that have come
        missing = f"was silent for {self.patience:g} s in the middle of the alignment: align again"
        while points < self.stock.peer_count or self.stock.received < self.stock.count:
            message = receive(self.link, self.patience, missing, lambda: _raise_failure(working))
            if message.kind == "points":
                rows = self._checked(message, points, self.stock.peer_count, _POINT)
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
            if points == self.stock.peer_count:
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
        for step, chunk in enumerate(chunks):
            self._send("points", step, chunk)

    def _own_chunks(self) -> Iterator[Points]:
        sent = 0
        for chunk in self.stock.hashes():
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
        chunks = self.engine.multiply_each(self._peer_chunks(), self.key)
        for step, chunk in enumerate(chunks):
            short = np.ascontiguousarray(chunk[:, :SHORT])
            self.stock.answer(short)
            self._send("matches", step, short)

    def _send(self, kind: str, step: int, rows: Points) -> None:
        with self._sending:
            self.link.send(Message(step, kind, torch.from_numpy(rows), b""))
            self._done += len(rows)
            if self.progress is not None:
                self.progress(self._done, self.stock.count + self.stock.peer_count)


def _raise_failure(working: list[Future[None]]) -> None:
    for future in working:
        if future.done():
            future.result()
