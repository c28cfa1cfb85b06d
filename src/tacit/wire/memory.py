"""Channels and links between two parties in one process, and what these links share with those between machines.

That is a bounded queue with an end for each direction, and the codec between it and messages.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, TensorError
from tacit.wire.codec import Assembler, Limit, frames, wrong_numbers

SEND_SECONDS = 30.0
"""How long a peer may take nothing of what is sent before it counts as gone."""

_ROOM = 64  # messages that may wait to be taken, so that a fast sender waits and memory stays bounded

T = TypeVar("T")


@dataclass(frozen=True)
class MemoryChannel:
    """One end of a pair of queues."""

    outgoing: deque[Message]
    incoming: deque[Message]

    def send(self, message: Message) -> None:
        """Put a message into the other side's queue."""
        self.outgoing.append(message)

    def recv(self, kind: str, step: int) -> Message:
        """Take the next message; it must be of this kind and step. There is nobody to wait for in one process."""
        if not self.incoming:
            raise ProtocolError(f"step {step}: no {kind} was sent yet; in one process the sender must act first")
        message = self.incoming[0]
        if (message.kind, message.step) != (kind, step):
            raise ProtocolError(
                f"expected the {kind} of step {step}, got the {message.kind} of step {message.step}: "
                "the two parties are not at the same step"
            )
        self.incoming.popleft()
        if message.payload.device.type == "cpu" and wrong_numbers(message.payload):  # elsewhere looking would wait
            raise TensorError(
                f"step {step}: the {kind} is not finite; no label was touched, and the model was not changed: look at "
                "inputs, loss and learning rates"
            )
        return message


def pair() -> tuple[MemoryChannel, MemoryChannel]:
    """The two ends of a channel.

    >>> import torch
    >>> left, right = pair()
    >>> left.send(Message(0, "embedding", torch.zeros(2, 3), b""))
    >>> right.recv("embedding", 0).payload.shape
    torch.Size([2, 3])
    """
    one: deque[Message] = deque()
    two: deque[Message] = deque()
    return MemoryChannel(one, two), MemoryChannel(two, one)


# --- links ------------------------------------------------------------------------------------------------------------


class Pipe(Generic[T]):
    """Items in order between threads, at most `room` of them at a time.

    Once it has ended nothing more goes in; what is in it can still be taken out, and after that taking is a
    `LinkError` that says why it ended.

    Args:
        room: how many items may wait; whoever puts one more waits for a free place.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: deque[T] = deque()
        self._reason: str | None = None
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._freed = threading.Condition(lock)

    def put(self, item: T, timeout: float | None = None) -> None:
        """Wait for a free place and put an item into it; a `LinkError` where none gets free in so many seconds."""
        if not self.offer(item, timeout):
            raise LinkError(f"nothing was taken for {timeout:g} s")

    def offer(self, item: T, timeout: float | None) -> bool:
        """The same; whether there was a place."""
        with self._freed:
            free = self._freed.wait_for(lambda: self._reason is not None or len(self._items) < self._room, timeout)
            if self._reason is not None:
                raise LinkError(self._reason)
            if free:
                self._items.append(item)
                self._filled.notify()
            return free

    def get(self, timeout: float | None = None) -> T | None:
        """The next item, or None where none came in so many seconds."""
        with self._filled:
            if not self._filled.wait_for(lambda: self._items or self._reason is not None, timeout):
                return None
            if not self._items:
                raise LinkError(self._reason)
            self._freed.notify_all()
            return self._items.popleft()

    def widen(self, room: int) -> None:
        """Let so many items wait, if that is more than now."""
        with self._freed:
            self._room = max(room, self._room)
            self._freed.notify_all()

    def end(self, reason: str) -> None:
        """Let nothing more in. The first reason given stays."""
        with self._filled:
            if self._reason is None:
                self._reason = reason
            self._filled.notify_all()
            self._freed.notify_all()

    def cut(self, reason: str) -> None:
        """End it at once: what nobody took yet is gone."""
        with self._filled:
            self._items.clear()
        self.end(reason)


class FrameLink:
    """Messages as frames. Any thread may send; one at a time receives.

    Args:
        peer: the other end's name.
        limits: what may come from there.
        incoming: the frames that come from there.
    """

    def __init__(self, peer: str, limits: Mapping[str, Limit], incoming: Pipe[bytes]) -> None:
        self._peer = peer
        self.incoming = incoming
        self._assembler = Assembler(limits)
        self._one_message = threading.Lock()

    @property
    def peer(self) -> str:
        """The other end's name."""
        return self._peer

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What may come; frames are judged as `recv` takes them, so new limits hold from the next call on."""
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        self._assembler.limits = limits

    def send(self, message: Message) -> None:
        """Hand a message over; wait while the peer takes nothing, but not for ever: then it is gone.

        The tensor is copied and may be changed afterwards.
        """
        with self._one_message:
            for frame in frames(message):
                self.write_frame(frame)

    def write_frame(self, frame: bytes) -> None:
        """One frame. Nobody else writes meanwhile."""
        raise NotImplementedError

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message, or None where it was not complete in so many seconds; what came of it is kept."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            frame = self.incoming.get(left)
            if frame is None:
                return None
            message = self._assembler.feed(frame)
            if message is not None:
                return message


class MemoryLink(FrameLink):
    """One end of a connection between two threads of a process, through the codec; `links` makes both."""

    def __init__(self, peer: str, limits: Mapping[str, Limit], outgoing: Pipe[bytes], incoming: Pipe[bytes]) -> None:
        super().__init__(peer, limits, incoming)
        self.outgoing = outgoing

    def write_frame(self, frame: bytes) -> None:
        """One frame into the other end's pipe."""
        self.outgoing.put(frame, SEND_SECONDS)

    def close(self) -> None:
        """End both directions; what was sent can still be received at the other end."""
        self.outgoing.end(f"the link to {self.peer} is closed")
        self.incoming.cut(f"the link to {self.peer} is closed")


class _CopyLink:
    """The same without the codec: messages are handed over as copies."""

    def __init__(self, peer: str, outgoing: Pipe[Message], incoming: Pipe[Message]) -> None:
        self.peer = peer
        self._outgoing = outgoing
        self._incoming = incoming

    def send(self, message: Message) -> None:
        self._outgoing.put(replace(message, payload=message.payload.detach().clone()))

    def recv(self, timeout: float | None = None) -> Message | None:
        return self._incoming.get(timeout)

    def close(self) -> None:
        self._outgoing.end(f"the link to {self.peer} is closed")
        self._incoming.cut(f"the link to {self.peer} is closed")


def links(
    limits: Mapping[str, Limit] | None = None, *, names: tuple[str, str] = ("left", "right")
) -> tuple[Link, Link]:
    """The two ends of a link, to be used by two threads.

    Args:
        limits: what may come at either end; given, all messages go through the codec as bytes, as over a network
            (and `link.limits` may be replaced, as there); without, they are handed over as copies.
        names: of the two ends; each sees the other's as its `peer`.

    >>> import torch
    >>> left, right = links()
    >>> left.send(Message(0, "embedding", torch.zeros(2, 3), b""))
    >>> right.recv(timeout=1).payload.shape, right.recv(timeout=0)
    (torch.Size([2, 3]), None)
    """
    first, second = names
    if limits is None:
        over: Pipe[Message] = Pipe(_ROOM)
        back: Pipe[Message] = Pipe(_ROOM)
        return _CopyLink(second, over, back), _CopyLink(first, back, over)
    there: Pipe[bytes] = Pipe(_ROOM)
    here: Pipe[bytes] = Pipe(_ROOM)
    return MemoryLink(second, limits, there, here), MemoryLink(first, limits, here, there)
