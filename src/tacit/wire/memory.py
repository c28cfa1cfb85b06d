"""A channel between two parties in one process."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tacit.contracts import Message
from tacit.errors import ProtocolError

__all__ = ["MemoryChannel", "pair"]


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
