"""A channel over any link: it waits, and it takes only the message that is due."""

from __future__ import annotations

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError

__all__ = ["LinkChannel"]


class LinkChannel:
    """The `Channel` contract over a live connection.

    Args:
        link: the connection.
        timeout: how many seconds `recv` waits for a message; None waits as long as the link lives.
    """

    def __init__(self, link: Link, timeout: float | None = None) -> None:
        self.link = link
        self.timeout = timeout
        self._next: Message | None = None

    def send(self, message: Message) -> None:
        """Hand a message over; a `LinkError` where the connection is gone."""
        self.link.send(message)

    def recv(self, kind: str, step: int) -> Message:
        """Wait for the next message; it must be of this kind and step, and stays where it is if it is not."""
        if self._next is None:
            self._next = self.link.recv(self.timeout)
        message = self._next
        if message is None:
            raise LinkError(
                f"step {step}: no {kind} came from {self.link.peer} in {self.timeout} s: see whether it still runs"
            )
        if (message.kind, message.step) != (kind, step):
            raise ProtocolError(
                f"expected the {kind} of step {step}, got the {message.kind} of step {message.step}: "
                "the two parties are not at the same step"
            )
        self._next = None
        return message
