"""One link over several connections: on a long line each carries no more than a send window in a round trip."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence

from torch import Tensor

from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire.codec import Assembler, Limit, pieces
from tacit.wire.network_link import ROOM, NetworkLink


class Lanes:
    """Connections to one peer that are one link: each frame goes over the next of them, and is read from there.

    So frames need no numbers to stay in order. Once one connection breaks nothing more passes, and all of them end.
    """

    def __init__(self, lanes: Sequence[NetworkLink]) -> None:
        self.peer, self._lanes = lanes[0].peer, tuple(lanes)
        self._assembler, self._one_message = Assembler(lanes[0].limits), threading.Lock()
        self._written = self._read = 0  # frames so far
        self.room = ROOM

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

    @property
    def over(self) -> threading.Event:
        """That a connection is gone: any of them."""
        return next((lane.over for lane in self._lanes if lane.over.is_set()), self._lanes[0].over)

    def send(self, message: Message) -> None:
        """Hand a message over, as over one connection."""
        with self._one_message:
            try:
                for head, content in pieces(message):
                    lane = self._lanes[self._written % len(self._lanes)]
                    with lane.one_message:
                        lane.write_frame(head, content)
                    self._written += 1
            except BaseException as error:  # an interrupt too: nothing can follow half a message
                self._give_up(error)
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
        try:
            frame = self._lanes[self._read % len(self._lanes)].next_frame(until)
        except LinkError as error:
            self._give_up(error)
            raise
        self._read += frame is not None
        return frame

    def _give_up(self, error: BaseException) -> None:
        reason = str(error) if isinstance(error, LinkError) else f"the link to {self.peer} broke within a message"
        for lane in self._lanes:
            lane.give_up(reason)

    def close(self, seconds: float | None = None) -> None:
        """End all connections at once, each as `NetworkLink.close` does."""
        for lane in self._lanes:
            lane.close(0.0)
        for lane in self._lanes:
            lane.close(seconds)
