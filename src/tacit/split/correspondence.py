"""The requests and answers between two parties, turn by turn, as the journal has them.

A *turn* is one request of a feature party and the label party's one answer to it. Both write both down, and both chain
what was said into a *transcript*: equal hashes mean that both remember the same conversation. One request
is open at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.contracts import Message
from tacit.errors import ProtocolError, RefusedError, StorageError
from tacit.split.journal import Journal, Place, Record
from tacit.wire.codec import Limit, kept, read_kept

START = bytes(32)
"""The transcript before the first turn."""

_NAMES = {"features": ("sent", "received"), "label": ("received", "answered")}  # of requests and answers, in a journal
_CONFIRMED = b"confirmed"


@dataclass(frozen=True)
class _Turn:
    kind: str  # of the request
    step: int
    asked: bytes  # fingerprint of the request
    request: Place
    answered: bytes = b""  # fingerprint of the answer
    answer: Place | None = None


class Correspondence:
    """One peer's turns, from the last checkpoint on, and those before it that the journal still has."""

    def __init__(
        self,
        journal: Journal,  # where they are written; a label party's exchanges share one
        peer: str,  # the other side's name
        *,
        role: str,  # one's own, "features" or "label"
        limits: Mapping[str, Limit],  # what requests and answers may be, for reading them back
        turn: int = 0,  # how many turns the checkpoint knows of
        transcripts: Mapping[int, bytes] | None = None,  # what `recent` gave there
    ) -> None:
        self.journal, self.peer = journal, peer
        self.confirmed = False
        self._request_name, self._answer_name = _NAMES[role]
        self._limits = limits
        self._turns: dict[int, _Turn] = {}
        self._places: dict[tuple[str, int], int] = {}  # the turn of each request by kind and step
        self._transcripts = dict(transcripts or {0: START})
        self.complete = turn  # how many turns are complete: their answers are written down
        for place, record in journal.records():
            if record.peer != peer:
                continue
            if record.kind == self._request_name:
                message = self._decode(record)
                self._note_request(record.turn, _Turn(message.kind, message.step, record.digest, place))
            elif record.kind == self._answer_name:
                self._note_answer(record.turn, record.digest, place)
            elif record.parts == (_CONFIRMED,):
                self.confirmed = True

    @property
    def asked(self) -> int:
        """How many requests are written down: the answered ones, and the open one if there is one."""
        return self.complete + (self.complete in self._turns)

    def transcript(self, turn: int) -> bytes | None:
        """The hash of all that was said in the turns before this one, if it is remembered."""
        return self._transcripts.get(turn)

    def recent(self) -> dict[int, bytes]:
        """The newest two transcripts, for a checkpoint: a peer may be one turn behind."""
        turns = (self.complete - 1, self.complete)
        return {turn: self._transcripts[turn] for turn in turns if turn in self._transcripts}

    def request(self, turn: int) -> Message | None:
        """The request of a turn, read back from the journal; None where none is written down."""
        return self._read(self._turns[turn].request) if turn in self._turns else None

    def answer(self, turn: int) -> Message | None:
        """The same of its answer."""
        return self._read(self._turns[turn].answer) if turn in self._turns else None

    def turn_of(self, message: Message) -> int | None:
        """The turn that this request was made in, or None where it is a new one.

        A request that differs in any bit from the one that is written down for its kind and step is refused: a second
        answer to it would be a second look at the same labels.
        """
        turn = self._places.get((message.kind, message.step))
        if turn is not None and self._turns[turn].asked != message.fingerprint:
            raise RefusedError(
                "request",
                f"{self.peer} asked for the {message.kind} of step {message.step} before, with other content: a step "
                "has one request and one answer",
            )
        return turn

    def is_last_answer(self, message: Message) -> bool:
        """Whether this is the newest answer once more, as it comes where a request was sent twice."""
        last = self._turns.get(self.complete - 1)  # whose step tells at once that a new answer is another one
        return last is not None and last.step == message.step and last.answered == message.fingerprint

    def write_request(self, turn: int, message: Message) -> None:
        """Write the request of the next turn down; it is durable after the journal's next sync."""
        if turn != self.complete or turn in self._turns:
            raise ProtocolError(f"turn {turn} can't be asked: {self.asked} requests are written down")
        place = self._write(self._request_name, turn, message)
        self._note_request(turn, _Turn(message.kind, message.step, message.fingerprint, place))

    def write_answer(self, turn: int, message: Message) -> None:
        """Write an answer down, likewise."""
        if turn != self.complete or turn not in self._turns:
            raise ProtocolError(f"turn {turn} can't be answered: {self.asked} requests are written down")
        self._note_answer(turn, message.fingerprint, self._write(self._answer_name, turn, message))

    def confirm(self) -> None:
        """Remember that the peer has all answers, so that nobody waits for it when the run is looked at again."""
        self.journal.append(
            Record("note", self.complete, self.peer, hashlib.sha256(_CONFIRMED).digest(), (_CONFIRMED,))
        )
        self.journal.sync()
        self.confirmed = True

    def forget_before(self, turn: int) -> None:
        """Let go of the turns that the journal has dropped."""
        for old in [known for known in self._turns if known < turn]:
            gone = self._turns.pop(old)
            self._places.pop((gone.kind, gone.step), None)
        self._transcripts = {at: said for at, said in self._transcripts.items() if at >= turn}

    def _write(self, name: str, turn: int, message: Message) -> Place:
        return self.journal.append(Record(name, turn, self.peer, message.fingerprint, kept(message)))

    def _note_request(self, turn: int, known: _Turn) -> None:
        self._turns[turn] = known
        self._places[known.kind, known.step] = turn

    def _note_answer(self, turn: int, answered: bytes, place: Place) -> None:
        known = self._turns[turn] = replace(self._turns[turn], answered=answered, answer=place)
        before = self._transcripts.get(turn)
        if before is not None:  # of a turn before the checkpoint the checkpoint's transcript says it all
            self.complete = max(self.complete, turn + 1)
            self._transcripts[turn + 1] = hashlib.sha256(before + known.asked + answered).digest()

    def _read(self, place: Place | None) -> Message | None:
        return None if place is None else self._decode(self.journal.read(place))

    def _decode(self, record: Record) -> Message:
        try:
            return read_kept(record.parts, self._limits)
        except ProtocolError as error:
            raise StorageError(
                f"turn {record.turn}: the journal holds a message that was never agreed: {error}"
            ) from error
