"""Channels that answer every request exactly once, whatever breaks: written down first, counted, then sent.

One request is open at a time. Over each new link it comes again.

A party that starts again runs its steps anew from its checkpoint, over the same channel: what the journal has is read
from there and compared, and where the journal ends the peer is asked. There is no other code for recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tacit.contracts import Message
from tacit.contracts.sent import moved
from tacit.errors import ProtocolError, RefusedError, StorageError, TensorError
from tacit.progress import Trace
from tacit.split.correspondence import Correspondence
from tacit.wire.codec import wrong_numbers
from tacit.wire.line import DeskLine, Dialer

Judge = Callable[[Message], str | None]
"""What is wrong with a message that has the right kind and step, or None. It is asked before anything is written."""

CONFIRMED = Message(1, "done", torch.empty(0, dtype=torch.uint8), b"")
"""What a feature party says when the last answer is durable; the label party says it back."""

_CPU = torch.device("cpu")


class _Channel:
    """What both ends share."""

    line: Any  # the way to the peer

    def __init__(
        self,
        exchange: Correspondence,  # what was said so far
        line: Any,
        *,
        turn: int,  # where this party's model stands: the turns before it are neither asked nor computed again
        trace: Trace = lambda point: None,
        judge: Judge = lambda message: None,  # a wrong answer ends the run, a wrong request is refused
        leaving: Callable[[], None] = lambda: None,  # called when a new message is durable, before it is sent
        on_device: bool = False,  # whether the party computes on another device than the CPU
    ) -> None:
        self.exchange, self.line, self.turn = exchange, line, turn
        self._trace, self._judge, self._leaving = trace, judge, leaving
        self._on_device = on_device

    def _once(
        self, what: str, message: Message, stored: Message | None, write: Callable[[int, Message], None]
    ) -> Message:
        """What is sent: a new message when it is durable, or what was written down before, if this is the same."""
        if stored is not None:
            check_same(stored, message, on_device=self._on_device)
            return stored
        if message.payload.device.type != "cpu":
            message = replace(message, payload=moved(message.payload, _CPU))
            wrong = wrong_numbers(message.payload)  # on a device nobody has looked
            if wrong:
                raise TensorError(f"{message.kind} of step {message.step}: {wrong}; nothing was sent: look at inputs")
        self._trace(f"{what} computed")
        write(self.turn, message)
        self.exchange.journal.sync()
        self._leaving()
        self._trace(f"{what} written")
        return message


class AskingChannel(_Channel):
    """The feature party's end: one open request at a time, made durable before it is sent."""

    line: Dialer

    def send(self, message: Message) -> None:
        """Write a request down and send it; one that was written down before must come out the same."""
        message = self._once("request", message, self.exchange.request(self.turn), self.exchange.write_request)
        if self.exchange.complete == self.turn:
            self.line.send(message)
            self._trace("request sent")

    def recv(self, kind: str, step: int) -> Message:
        """The answer to the open request, from the journal or from the peer."""
        stored = self.exchange.answer(self.turn)
        answer = stored or self._heard()
        expect(answer, kind, step, None if stored else self._judge)
        if stored is None:
            self._trace("answer received")
            self.exchange.write_answer(self.turn, answer)  # durable before the next request goes out
            self._trace("answer written")
        self.turn += 1
        return answer

    def confirm(self, seconds: float) -> bool:
        """Make everything durable, and tell the label party that it need not wait; whether it has heard that."""
        if not self.exchange.confirmed:
            self.exchange.journal.sync()
            if self.line.deliver(CONFIRMED, seconds):
                self.exchange.confirm()
        return self.exchange.confirmed

    def _heard(self) -> Message:
        """The next answer; one that comes once more was asked for twice."""
        while True:
            answer = self.line.recv()
            if not self.exchange.is_last_answer(answer):
                return answer


class AnsweringChannel(_Channel):
    """The label party's end: a repeated request gets the stored bytes, a changed one is refused."""

    line: DeskLine

    def recv(self, kind: str, step: int) -> Message:
        """The request of this turn, from the journal or from the peer; older ones are answered on the way."""
        stored = self.exchange.request(self.turn)
        if stored is not None:
            expect(stored, kind, step)
            return stored
        while True:
            message = self.line.recv()
            try:
                if self._is_new(message, kind, step):
                    break
            except RefusedError as error:
                self.line.refuse(error)
        self._trace("request received")
        self.exchange.write_request(self.turn, message)  # durable before the answer goes out
        self._trace("request written")
        return message

    def send(self, message: Message) -> None:
        """Write the answer down, make it durable, and only then send it."""
        stored = self.exchange.answer(self.turn)
        message = self._once("answer", message, stored, self.exchange.write_answer)
        self.turn += 1
        if self.turn == self.exchange.complete:
            self.line.send(message)
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
            self._is_new(message, "", -1)
        except RefusedError as error:
            self.line.refuse(error)
        return False

    def _is_new(self, message: Message, kind: str, step: int) -> bool:
        """Whether this is the request that is due; a known one is answered from the journal."""
        turn = self.exchange.turn_of(message)
        if turn is not None:
            answer = self.exchange.answer(turn)
            if answer is not None:
                self.exchange.journal.sync()
                self.line.send(answer)
            return False
        try:
            expect(message, kind, step, self._judge)
        except ProtocolError as error:
            raise RefusedError("request", str(error)) from None
        return True


def expect(message: Message, kind: str, step: int, judge: Judge | None = None) -> None:
    """A `ProtocolError` where a message is not of this kind and step, or something is wrong with it."""
    if (message.kind, message.step) != (kind, step):
        due = f"expected the {kind} of step {step}" if kind else "the run is over"
        raise ProtocolError(
            f"{due}, got the {message.kind} of step {message.step}: the two parties are not at the same step"
        )
    wrong = judge(message) if judge else None
    if wrong is not None:
        raise ProtocolError(f"{kind} of step {step}: {wrong}")


def check_same(stored: Message, computed: Message, *, on_device: bool = False) -> None:
    """Refuse to go on where a step that is computed again does not give what was said then.

    On a CPU every bit must be the same. Other devices may add up in another order, and noise is bound to the last bit:
    there what was said stays what was said, and its numbers are not compared.
    """
    if on_device:
        said, now = stored.payload, computed.payload
        if (stored.kind, stored.step, stored.rows, said.shape, said.dtype) == (
            computed.kind, computed.step, computed.rows, now.shape, now.dtype,
        ):  # fmt: skip
            return
    elif stored.fingerprint == computed.fingerprint:
        return
    raise StorageError(
        f"{stored.kind} of step {stored.step}: computed again it is not what was sent before: the code, the data, the "
        "settings or the number of threads changed since then. Go on with what the run began with, or start a new run"
    )
