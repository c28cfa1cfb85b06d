"""Channels that answer every request exactly once, whatever breaks: written down first, then sent.

As many requests may be open at once as the exchange's depth says, and they are answered in their order. Over each new
link all open ones come again; where there may be several, an answer goes only over the link that its request came over.

A party that starts again runs its steps anew from its checkpoint, over the same channel: what the journal has is read
from there and compared, and where the journal ends the peer is asked. There is no other code for recovery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch

from tacit.contracts import Message
from tacit.errors import ProtocolError, RefusedError, StorageError
from tacit.wire.codec import encoded
from tacit.wire.exchange import Exchange

Trace = Callable[[str], None]
"""Told of each point that a step passes, by name: for logs, and for trials that end a process just there."""

Judge = Callable[[Message], str | None]
"""What is wrong with a message that has the right kind and step, or None. It is asked before anything is written."""

_TOLERANCE = 1e-3  # of what a device other than the CPU computes twice


class Line(Protocol):
    """The way to one peer: it lasts, while links come and go."""

    def recv(self) -> Message:
        """The next message, however long it takes and over however many links."""

    def send(self, message: Message) -> None:
        """Hand a message over if there is a link; where there is none, the peer will ask again."""


class AskingLine(Line, Protocol):
    """The feature party's end of one."""

    def deliver(self, message: Message, seconds: float) -> bool:
        """Send a last message until the peer sends it back, for so long; whether it did."""


class AnsweringLine(Line, Protocol):
    """The label party's end of one."""

    @property
    def link(self) -> object:
        """What the peer is spoken with over now; another object after a break, and None while there is none."""

    def look(self, seconds: float = 0.5) -> Message | None:
        """The next message, or None where none comes in so many seconds."""

    def refuse(self, error: RefusedError) -> None:
        """Tell the peer that it is refused, and end the link; raise an alarm at home."""


L = TypeVar("L", bound=Line)

CONFIRMED = Message(1, "done", torch.empty(0, dtype=torch.uint8), b"")
"""What a feature party says when the last answer is durable; the label party says it back."""


class _Channel(Generic[L]):
    """What both ends share.

    Args:
        exchange: what was said so far.
        line: the way to the peer; a feature party's must send the open requests again over each new link.
        turn: where this party's model stands: the turns before it are neither asked nor computed again.
        trace: told of each point that a step passes.
        judge: looks at what comes before it is written down; where it finds something wrong, nothing has changed: a
            wrong answer ends the run, a wrong request is refused.
        leaving: called when a new message is durable, before it is sent.
    """

    def __init__(
        self,
        exchange: Exchange,
        line: L,
        *,
        turn: int,
        trace: Trace = lambda point: None,
        judge: Judge = lambda message: None,
        leaving: Callable[[], None] = lambda: None,
    ) -> None:
        self.exchange = exchange
        self.line = line
        self.turn = turn
        self._trace, self._judge, self._leaving = trace, judge, leaving


class AskingChannel(_Channel[AskingLine]):
    """The feature party's end: a few open requests at a time, each made durable before it is sent."""

    open = 0  # how many requests were made since the one whose answer is due

    def send(self, message: Message) -> None:
        """Write a request down and send it; one that was written down before must come out the same."""
        turn = self.turn + self.open
        stored = self.exchange.request(turn)
        if stored is None:
            self._trace("request computed")
            message = encoded(message)
            self.exchange.write_request(turn, message)
            self.exchange.journal.sync()
            self._leaving()
            self._trace("request written")
        else:
            check_same(stored, message)
            message = stored
        self.open += 1
        if self.exchange.complete <= turn:
            self.line.send(message)
            self._trace("request sent")

    def recv(self, kind: str, step: int) -> Message:
        """The answer to the first open request, from the journal or from the peer."""
        answer = self.exchange.answer(self.turn) or self._ask(kind, step)
        if (answer.kind, answer.step) != (kind, step):
            raise ProtocolError(_unexpected(answer, kind, step))
        self.turn += 1
        self.open -= 1
        return answer

    def confirm(self, seconds: float) -> bool:
        """Make everything durable, and tell the label party that it need not wait; whether it has heard that."""
        if not self.exchange.confirmed:
            self.exchange.journal.sync()
            if self.line.deliver(CONFIRMED, seconds):
                self.exchange.confirm()
        return self.exchange.confirmed

    def _ask(self, kind: str, step: int) -> Message:
        while True:
            answer = self.line.recv()
            if self.exchange.depth == 1 and self.exchange.is_last_answer(answer):  # the request had been sent twice
                continue
            if (answer.kind, answer.step) != (kind, step):
                raise ProtocolError(_unexpected(answer, kind, step))
            wrong = self._judge(answer)
            if wrong is not None:
                raise ProtocolError(f"{kind} of step {step}: {wrong}")
            self._trace("answer received")
            self.exchange.write_answer(self.turn, answer, soon=True)  # durable before the next request goes out
            self._trace("answer written")
            return answer


class AnsweringChannel(_Channel[AnsweringLine]):
    """The label party's end: a repeated request gets the stored bytes, a changed one is refused.

    Where several requests may be open, those that came while one was answered are read ahead, in memory alone: whether
    there are too many can't be seen otherwise. Each is judged and written down when its turn has come.
    """

    _over: object = None  # the link that the request in hand came over
    _link: object = None  # the link that the last message came over
    _open = 0  # messages that came over it and have no answer there

    def __init__(self, exchange: Exchange, line: AnsweringLine, **more: Any) -> None:
        super().__init__(exchange, line, **more)
        self._ahead: deque[Message] = deque()  # messages that came over it and wait for their turn

    def recv(self, kind: str, step: int) -> Message:
        """The request of this turn, from the journal or from the peer; older ones are answered on the way."""
        stored = self.exchange.request(self.turn)
        if stored is not None:
            if (stored.kind, stored.step) != (kind, step):
                raise ProtocolError(_unexpected(stored, kind, step))
            self._over = None  # it was another process's
            return stored
        while True:
            try:
                message = self._next()
                if self._is_new(message, kind, step):
                    break
            except RefusedError as error:
                self.line.refuse(error)
        self._over = self._link
        self._trace("request received")
        self.exchange.write_request(self.turn, message, soon=True)  # durable before the answer goes out
        self._trace("request written")
        return message

    def send(self, message: Message) -> None:
        """Write the answer down, make it durable, and only then send it."""
        stored = self.exchange.answer(self.turn)
        if stored is None:
            self._trace("answer computed")
            message = encoded(message)
            self.exchange.write_answer(self.turn, message)
            self.exchange.journal.sync()
            self._leaving()
            self._trace("answer written")
        else:
            check_same(stored, message)
            message = stored
        self.turn += 1
        if self.turn == self.exchange.complete:
            self._read_ahead()
            self._answer(message, self._over)
            self._trace("answer sent")

    def linger(self) -> bool:
        """Serve, for a moment, a peer that may not have the last answer yet; whether it has said that it has all."""
        message = None if self.exchange.confirmed else self.line.look()
        if message is None:
            return self.exchange.confirmed
        if message.fingerprint == CONFIRMED.fingerprint:
            self.exchange.confirm()
            self.line.send(CONFIRMED)
            return True
        try:
            self._count(message)
            self._is_new(message, "", -1)
        except RefusedError as error:
            self.line.refuse(error)
        return False

    def _next(self) -> Message:
        """The next message; what was read ahead over a link that broke comes again over the new one."""
        if self._ahead and self._link is self.line.link:
            return self._ahead.popleft()
        return self._count(self.line.recv())

    def _read_ahead(self) -> None:
        """Take what has come, before an answer makes room for one request more."""
        try:
            while self.exchange.depth > 1 and (message := self.line.look(0.0)) is not None:
                self._ahead.append(self._count(message))
        except RefusedError as error:
            self.line.refuse(error)

    def _count(self, message: Message) -> Message:
        """The message that has just come, if it is not one too many without an answer."""
        if self.exchange.depth > 1:
            if self._link is not self.line.link:
                self._link, self._open = self.line.link, 0
                self._ahead.clear()
            self._open += 1
            if self._open > self.exchange.depth:
                raise RefusedError(
                    "request",
                    f"{self._open} requests came and none of them has an answer yet: the contract's depth is "
                    f"{self.exchange.depth}",
                )
        return message

    def _answer(self, message: Message, over: object) -> None:
        """Send an answer over the link that its request came over, if that is there: elsewhere others are due first."""
        if self.exchange.depth == 1:
            self.line.send(message)
        elif over is self.line.link:
            self._open -= 1
            self.line.send(message)

    def _is_new(self, message: Message, kind: str, step: int) -> bool:
        """Whether this is the request that is due; a known one is answered from the journal."""
        turn = self.exchange.turn_of(message)
        if turn is not None:
            answer = self.exchange.answer(turn)
            if answer is not None:
                self._answer(answer, self._link)
            return False
        if (message.kind, message.step) != (kind, step):
            raise RefusedError("request", _unexpected(message, kind, step))
        wrong = self._judge(message)
        if wrong is not None:
            raise RefusedError("request", f"{kind} of step {step}: {wrong}")
        return True


def _unexpected(message: Message, kind: str, step: int) -> str:
    due = f"expected the {kind} of step {step}" if kind else "the run is over"
    return f"{due}, got the {message.kind} of step {message.step}: the two parties are not at the same step"


def check_same(stored: Message, computed: Message) -> None:
    """Refuse to go on where a step that is computed again does not give what was said then.

    On a CPU every bit must be the same. Other devices may add up in another order; what was said stays what was said.
    There a gradient can't be compared, for its noise is bound to its last bit.
    """
    if stored.fingerprint == computed.fingerprint:
        return
    said, now = stored.payload, computed.payload.detach()
    alike = (stored.kind, stored.step, stored.rows, said.shape, said.dtype) == (
        computed.kind, computed.step, computed.rows, now.shape, now.dtype,
    )  # fmt: skip
    if alike and now.device.type != "cpu":
        if stored.kind == "gradient":
            return
        scale = float(said.abs().max()) if said.numel() else 0.0
        if torch.allclose(now.cpu(), said, rtol=_TOLERANCE, atol=_TOLERANCE * scale):
            return
    raise StorageError(
        f"{stored.kind} of step {stored.step}: computed again it is not what was sent before: the code, the data, the "
        "settings or the number of threads changed since then. Go on with what the run began with, or start a new run"
    )
