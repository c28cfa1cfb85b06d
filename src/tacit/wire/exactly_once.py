"""Channels that answer every request exactly once, whatever breaks: written down first, counted, then sent.

One request is open at a time. Over each new link it comes again.

A party that starts again runs its steps anew from its checkpoint, over the same channel: what the journal has is read
from there and compared, and where the journal ends the peer is asked. There is no other code for recovery.

How much of a run has ever left is counted apart from the run's folder (`Tally`): an older copy of it is known by that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tacit.contracts import Message
from tacit.disk import locked, make_folder, sync_file, sync_folder, write_at
from tacit.errors import ProtocolError, RefusedError, StorageError
from tacit.wire.codec import encoded
from tacit.wire.exchange import Exchange
from tacit.wire.line import DeskLine, Dialer

Trace = Callable[[str], None]
"""Told of each point that a step passes, by name: for logs, and for trials that end a process just there."""

Judge = Callable[[Message], str | None]
"""What is wrong with a message that has the right kind and step, or None. It is asked before anything is written."""

Restored = Callable[[str], None]
"""Told what an older copy of a folder lacks, where somebody answers for going on from it."""

CONFIRMED = Message(1, "done", torch.empty(0, dtype=torch.uint8), b"")
"""What a feature party says when the last answer is durable; the label party says it back."""

_TOLERANCE = 1e-3  # of what a device other than the CPU computes twice
_PATIENCE = 600.0  # seconds in which another run of the same party is done with a book


class _Channel:
    """What both ends share."""

    line: Any  # the way to the peer

    def __init__(
        self,
        exchange: Exchange,  # what was said so far
        line: Any,
        *,
        turn: int,  # where this party's model stands: the turns before it are neither asked nor computed again
        trace: Trace = lambda point: None,
        judge: Judge = lambda message: None,  # a wrong answer ends the run, a wrong request is refused
        leaving: Callable[[], None] = lambda: None,  # called when a new message is durable, before it is sent
    ) -> None:
        self.exchange, self.line, self.turn = exchange, line, turn
        self._trace, self._judge, self._leaving = trace, judge, leaving

    def _once(
        self, what: str, message: Message, stored: Message | None, write: Callable[[int, Message], None]
    ) -> Message:
        """What is sent: a new message when it is durable, or what was written down before, if this is the same."""
        if stored is not None:
            check_same(stored, message)
            return stored
        self._trace(f"{what} computed")
        message = encoded(message)
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
            self.exchange.write_answer(self.turn, answer, soon=True)  # durable before the next request goes out
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
        self.exchange.write_request(self.turn, message, soon=True)  # durable before the answer goes out
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


# --- what has ever left ----------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """In the words of a refusal: what a tally counts, what an older copy has and what there was, what to do instead."""

    what: str
    behind: str
    remedy: str


MESSAGES = Counted(
    "what left in this run",
    "it knows of {} messages, and {} have left",
    "What was answered may not be answered again: bring back the newest copy, or start a new run under another name",
)
SPLIT_RUNS = Counted(
    "the split runs of this party",
    "its file of facts knows of {} split runs, and something left in {}",
    "What left in the others would count nowhere: bring back the newest copy, facts.sqlite in it",
)
COINS = Counted(
    "what this party ever sent of its labels",
    "its book has {} releases, and {} were made",
    "Frozen labels would thaw, and what was told would not be charged: bring back the newest copy, coins/ in it",
)


class Tally:
    """Counts the messages of a run that left, in a file outside its folder. One process uses it at a time.

    A message is counted before it leaves and after the journal has it on the disk, so a journal that is behind the
    count is an older copy; a kill in between leaves it ahead. The file is handed to the operating system at once, and
    so survives every end of the process; it is synced with each checkpoint, so a power cut may set it back by what left
    since then, and never forward. The entries of a party's books are counted likewise.

    Args:
        path: of the file; its folder is made where there is none.
        restored: told what is missing where somebody answers for going on all the same; without it that is refused.
        counted: what is counted.
    """

    def __init__(self, path: Path, restored: Restored | None = None, counted: Counted = MESSAGES) -> None:
        self.path = path
        self._restored, self._counted = restored, counted
        self._patience = 0.0
        self._value: int | None = None
        self._fd = -1

    def begin(self, *, begun: bool) -> None:
        """Open the file, or make it for a run that has not begun: of one that has, a missing file is missed."""
        if not begun or self.path.exists():
            self._open()
            if not begun and self._value is None:
                self.reach(0)
                self.sync()

    @contextmanager
    def around(self, entries: Callable[[], int]) -> Iterator[None]:
        """Hold a book against the count before it is used, and count what it has afterwards.

        Its entries are on the disk when they are counted. Another run of the same party waits for this one.
        """
        try:
            self._patience = _PATIENCE
            self.begin(begun=entries() > 0)
            self.check(entries(), entries())
            yield
            self.reach(entries())
        finally:
            self.close()

    def _open(self) -> None:
        folder = self.path.parent
        with suppress(StorageError):
            make_folder(folder)
        if not os.access(folder, os.W_OK):
            raise StorageError(
                f"{folder}: what left in a run is counted here, apart from the party's folder, and it can't be made or "
                "written: set TACIT_STATE to a folder that lasts and can"
            )
        self._fd = locked(self.path, patience=self._patience)
        sync_folder(folder)
        said = os.pread(self._fd, 32, 0).strip()
        self._value = int(said) if said.isdigit() else None

    def check(self, known: int, left: int) -> None:
        """Go on from what the folder knows of: a `StorageError` where more messages have left.

        Known are those that the journal has, or that follow from what it has, bit for bit; left are those it has.
        """
        problem = ""
        if self._value is None:
            problem = (
                f"it counts {self._counted.what}, and is gone or another one's, so that nobody can tell whether this "
                "folder is an older copy (TACIT_STATE says where it is kept; in a container, name a volume that lasts)"
            )
        elif known < self._value:
            problem = f"this folder is an older copy: {self._counted.behind.format(known, self._value)}"
        if problem and self._restored is None:
            raise StorageError(
                f"{self.path}: {problem}. {self._counted.remedy}; who answers for going on all the same says so with "
                "`tacit train --after-restore NAME --reason WHY`, which stays on record"
            )
        if problem and self._restored is not None:
            self._restored(problem)
            if self._fd < 0:
                self._open()
            self._value = 0
        self.reach(left)
        self.sync()

    def reach(self, left: int) -> None:
        """So many have left, with the one that is about to."""
        value = max(left, self._value or 0)
        write_at(self._fd, self.path, [f"{value:020d}\n".encode()], 0)
        self._value = value

    def sync(self) -> None:
        """Return once the disk has it."""
        sync_file(self._fd, self.path)

    def close(self) -> None:
        """Sync, and let another process count."""
        if self._fd >= 0:
            try:
                self.sync()
            finally:
                os.close(self._fd)
                self._fd = -1
