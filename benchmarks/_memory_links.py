"""The two ends of a link between two threads, as tests speak over it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.contracts import Link, Message
from tacit.errors import LinkError
from tacit.wire.codec import Assembler, Limit, encode

ROOM = 64
SECONDS = 30.0  # for which nobody may take anything


class Pipe:
    """Items in order between threads, at most `room` of them at a time.

    Whoever puts one more waits for a free place. Once it has ended nothing more goes in; what is in it can still be
    taken out, and after that taking is a `LinkError` that says why it ended.
    """

    def __init__(self, room: int) -> None:
        self._room, self._reason = room, ""
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()

    def put(self, item: object) -> None:
        with self._changed:
            free = self._changed.wait_for(lambda: self._reason or len(self._items) < self._room, SECONDS)
            if self._reason or not free:
                raise LinkError(self._reason or f"nothing was taken for {SECONDS:g} s")
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._reason, timeout):
                return None
            if not self._items:
                raise LinkError(self._reason)
            self._changed.notify_all()
            return self._items.popleft()

    def end(self, reason: str, *, now: bool = False) -> None:
        with self._changed:
            self._reason = self._reason or reason
            if now:
                self._items.clear()
            self._changed.notify_all()


class CopyLink:
    """Without the codec: messages are handed over as copies."""

    def __init__(self, peer: str, outgoing: Pipe, incoming: Pipe) -> None:
        self.peer, self.outgoing, self.incoming = peer, outgoing, incoming

    def send(self, message: Message) -> None:
        self.outgoing.put(replace(message, payload=message.payload.detach().clone()))

    def recv(self, timeout: float | None = None) -> Message | None:
        found: Message | None = self.incoming.get(timeout)
        return found

    def close(self) -> None:
        self.outgoing.end(f"the link to {self.peer} is closed")
        self.incoming.end(f"the link to {self.peer} is closed", now=True)


class MemoryLink(CopyLink):
    """With it: messages go as frames, as over a network."""

    def __init__(self, peer: str, limits: Mapping[str, Limit], outgoing: Pipe, incoming: Pipe) -> None:
        super().__init__(peer, outgoing, incoming)
        self._assembler, self._one_message = Assembler(limits), threading.Lock()

    @property
    def limits(self) -> Mapping[str, Limit]:
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        self._assembler.limits = limits

    def send(self, message: Message) -> None:
        with self._one_message:
            for frame in encode(message):
                self.outgoing.put(bytes(frame))

    def recv(self, timeout: float | None = None) -> Message | None:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            frame = self.incoming.get(None if until is None else max(until - time.monotonic(), 0.0))
            message = None if frame is None else self._assembler.feed(frame)
            if frame is None or message is not None:
                return message


def links(
    limits: Mapping[str, Limit] | None = None, *, names: tuple[str, str] = ("left", "right")
) -> tuple[Link, Link]:
    """The two ends; with limits messages go through the codec as bytes, as over a network, without as copies."""
    there, back = Pipe(ROOM), Pipe(ROOM)
    if limits is None:
        return CopyLink(names[1], there, back), CopyLink(names[0], back, there)
    return MemoryLink(names[1], limits, there, back), MemoryLink(names[0], limits, back, there)
