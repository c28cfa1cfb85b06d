"""One link over several connections: on a long line each carries no more than a send window in a round trip."""

from __future__ import annotations

import math
import queue
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire.codec import Assembler, Limit, pieces
from tacit.wire.network_link import FLUSH_SECONDS, ROOM, NetworkLink, Secured

LANES = 16
"""Connections of one link, at most."""

LANE = struct.Struct("<16sBB")
"""What a connection says about itself: what all of its link share, which one it is, and of how many."""


class Lanes:
    """Connections to one peer that are one link: each frame goes over the next of them, and is read from there.

    So frames need no numbers to stay in order. Where one connection breaks all of them end, and where the other side
    has closed one, soon: what it said before that may still be on its way over others.
    """

    def __init__(
        self,
        peer: str,
        limits: Mapping[str, Limit],
        lanes: Sequence[Secured],  # after their handshakes
        release: Callable[[Lanes], None] = lambda link: None,  # called when all are over
    ) -> None:
        self.peer, self._release = peer, release
        self._assembler, self._one_message = Assembler(limits), threading.Lock()
        self._lanes = tuple(NetworkLink(peer, limits, lane, self._left) for lane in lanes)
        self._written = self._read = 0  # frames so far
        self.room, self._closing, self._counting, self._gone = ROOM, False, threading.Lock(), 0
        self.over = threading.Event()  # any of them

    def start(self) -> None:
        """Read from now on; where that can't be, all are closed."""
        for number, lane in enumerate(self._lanes):
            try:
                lane.start()
            except BaseException:
                for other in self._lanes[number:]:
                    other.plain.close()
                self.end(f"the link to {self.peer} could not be started")
                raise

    @property
    def connections(self) -> int:
        """How many they are."""
        return len(self._lanes)

    @property
    def room(self) -> int:
        """How many frames are read ahead, over all connections."""
        return sum(lane.room for lane in self._lanes)

    @room.setter
    def room(self, frames: int) -> None:
        for lane in self._lanes:
            lane.room = -(-frames // len(self._lanes))

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What may come; new limits hold from the next `recv` on."""
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        self._assembler.limits = limits

    def send(self, message: Message) -> None:
        """Hand a message over, as over one connection."""
        with self._one_message:
            begun = self._written
            try:
                for head, content in pieces(message):
                    lane = self._lanes[self._written % len(self._lanes)]
                    with lane.one_message:
                        lane.write_frame(head, content)
                    self._written += 1
            except LinkError:
                raise
            except BaseException:
                if self._written > begun:  # an interrupt: nothing can follow half a message
                    self.end(f"the link to {self.peer} broke: a message was interrupted")
                raise

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message, or None where it was not complete in so many seconds; what came of it is kept."""
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while (frame := self._next(until)) is not None:
            message = self._assembler.feed(frame)
            if message is not None:
                return message
        return None

    def _next(self, until: float) -> Tensor | None:
        frame = self._lanes[self._read % len(self._lanes)].next_frame(until)
        self._read += frame is not None
        return frame

    def _left(self, lane: NetworkLink) -> None:
        """One is over. Its own thread, which has nothing else to do, sees to the others."""
        self.over.set()
        with self._counting:
            self._gone += 1
            last = self._gone == len(self._lanes)
        if last:
            self._release(self)
        until = time.monotonic() + (FLUSH_SECONDS if lane.parted else 0.0)
        for other in () if self._closing else self._lanes:
            other.over.wait(max(until - time.monotonic(), 0.0))
            other.give_up(lane.reason)

    def end(self, reason: str) -> None:
        """Nothing goes over any of them any more."""
        for lane in self._lanes:
            lane.end(reason)

    def close(self, seconds: float | None = None) -> None:
        """End all connections at once, each as `NetworkLink.close` does."""
        self._closing = True
        for lane in self._lanes:
            lane.close(0.0)
        until = time.monotonic() + (2 * FLUSH_SECONDS if seconds is None else seconds)
        for lane in self._lanes:
            lane.close(max(until - time.monotonic(), 0.0))


def all_at_once(makers: Sequence[Callable[[], Secured]]) -> list[Secured]:
    """Connections that are made together; where one can't be, nobody waits for the others."""
    made: queue.SimpleQueue[tuple[int, Secured | BaseException]] = queue.SimpleQueue()
    failed = threading.Event()

    def make(number: int) -> None:
        found: Secured | BaseException
        try:
            found = makers[number]()
        except BaseException as error:  # which is raised below
            found = error
        made.put((number, found))
        if failed.is_set() and isinstance(found, Secured):
            found.plain.close()

    for number in range(len(makers)):
        threading.Thread(target=make, args=(number,), name="tacit-connects", daemon=True).start()
    found: dict[int, Secured] = {}
    try:
        while len(found) < len(makers):
            number, what = made.get()
            if isinstance(what, BaseException):
                raise what
            found[number] = what
    except BaseException:
        failed.set()
        while not made.empty():
            found.update({number: what for number, what in [made.get()] if isinstance(what, Secured)})
        for each in found.values():
            each.plain.close()
        raise
    return [found[number] for number in range(len(makers))]
