"""The two streams of an intersection, each way at once: points go out, points come in, products go back.

Three threads share the work, so that no party ever waits with a full pipe for the other to read: one blinds and sends
this party's points, one multiplies the peer's and sends them back, and the calling one does nothing but receive.
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
from numpy.typing import NDArray

from tacit.align.control import receive
from tacit.align.curve import Engine, Points
from tacit.contracts import Link, Message
from tacit.errors import ProtocolError

CHUNK = 16_384
"""Rows of every message but the last one, so that each party knows what must come."""

SHORT = 16
"""Bytes that are kept of a product."""

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


@dataclass
class Exchange:
    """One intersection under way."""

    link: Link  # to the peer
    hashes: Points  # of this party's ids
    order: NDArray[np.int64]  # in which they are sent
    peer_count: int  # how many points the peer promised
    engine: Engine  # multiplies
    key: bytes = field(repr=False)  # this party's secret, for this run only
    progress: Callable[[int, int], None] | None  # called with the multiplications done and to do
    patience: float  # how many seconds the peer may be silent

    def __post_init__(self) -> None:
        self._own: Points = np.empty((len(self.hashes), SHORT), np.uint8)  # this party's points times both keys
        self._peer: Points = np.empty((self.peer_count, SHORT), np.uint8)  # the peer's points times both keys
        self._arrived: SimpleQueue[Points | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._sending = threading.Lock()
        self._done = 0

    def run(self) -> tuple[Points, Points]:
        """Shortened products of this party's points, in the order they were sent, and of the peer's."""
        threads = ThreadPoolExecutor(2, "tacit-alignment")
        try:
            working = [threads.submit(self._send_points), threads.submit(self._send_products)]
            self._receive(working)
            while wait_for(working, timeout=_PULSE).not_done:  # until everything has been sent
                _raise_failure(working)
            _raise_failure(working)
        finally:
            self._stopped.set()
            self._arrived.put(None)
            threads.shutdown(wait=False)
        return self._own, self._peer

    def _receive(self, working: list[Future[None]]) -> None:
        points = products = 0  # rows that have come
        missing = f"was silent for {self.patience:g} s in the middle of the alignment: align again"
        while points < len(self._peer) or products < len(self._own):
            message = receive(self.link, self.patience, missing, lambda: _raise_failure(working))
            if message.kind == "points":
                rows = self._checked(message, points, len(self._peer), _POINT)
                self._arrived.put(rows)
                points += len(rows)
            elif message.kind == "matches":
                rows = self._checked(message, products, len(self._own), SHORT)
                self._own[products : products + len(rows)] = rows
                products += len(rows)
            else:
                raise ProtocolError(
                    f"{self.link.peer} sent {message.kind} {message.step} in the middle of the alignment, expected "
                    "points or matches: start both anew"
                )
            if points == len(self._peer):
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
        for at in range(0, len(self.order), CHUNK):
            if self._stopped.is_set():
                return
            yield np.take(self.hashes, self.order[at : at + CHUNK], axis=0)

    def _peer_chunks(self) -> Iterator[Points]:
        while (chunk := self._arrived.get()) is not None:
            yield chunk

    def _send_products(self) -> None:
        chunks = self.engine.multiply_each(self._peer_chunks(), self.key)
        for step, chunk in enumerate(chunks):
            short = np.ascontiguousarray(chunk[:, :SHORT])
            self._peer[step * CHUNK : step * CHUNK + len(short)] = short
            self._send("matches", step, short)

    def _send(self, kind: str, step: int, rows: Points) -> None:
        with self._sending:
            self.link.send(Message(step, kind, torch.from_numpy(rows), b""))
            self._done += len(rows)
            if self.progress is not None:
                self.progress(self._done, len(self._own) + len(self._peer))


def _raise_failure(working: list[Future[None]]) -> None:
    for future in working:
        if future.done():
            future.result()
