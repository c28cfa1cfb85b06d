"""A channel, or a link, between two parties in one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.contracts import Link, Message
from tacit.errors import ProtocolError
from tacit.wire._link import FrameLink, Pipe
from tacit.wire.codec import Limit

__all__ = ["MemoryChannel", "MemoryLink", "links", "pair"]

_ROOM = 64  # messages that may wait to be taken, so that a fast sender waits and memory stays bounded


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
        return self.incoming.popleft()


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


class MemoryLink(FrameLink):
    """One end of a connection between two threads of a process, through the codec; `links` makes both."""

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
