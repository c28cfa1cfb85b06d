"""The two messages of one-shot training, and the words around them.

::

    feature party                                   label party
    hello                                     -->
                                              <--   hello, with the mechanism
    flips (asked for)                         -->
                                              <--   flips: what is sent of each training row's label
    (learns, attacks its own embedding, as long as it likes; the link may break and come back)
    embedding: ranks of all rows              -->
                                              <--   acknowledgement: a digest of the bytes, before they are opened
    done                                      -->
                                              <--   done

Every answer of the label party is a function of what was flipped once and of the bytes that came, so it may be asked
again as often as a peer likes. An embedding that differs from the one that is stored is refused.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit._version import __version__
from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.one_shot.mechanisms import Mechanism, outcomes, read_mechanism
from tacit.one_shot.parts import store_array
from tacit.wire.codec import CONTROL, AtMost, Limit, control, read_control
from tacit.wire.line import DeskLine, Dialer, refused_by

CHUNK = 1 << 28  # bytes of an embedding that are sent and acknowledged at a time
PROTOCOL = 1
_PATIENCE = 120.0  # seconds that a feature party waits for the label party's hello
_EQUAL = {
    "protocol": "install the same version of Tacit on both sides",
    "version": "install the same version of Tacit on both sides",
    "purpose": "give both sides the same command",
    "run": "compare `run` in contract.toml",
    "contract": "compare contract.toml with `tacit contract` on both sides: the digests must be equal",
    "alignment": "one side has aligned again since: run `tacit align --again` on all sides",
    "rows": "the aligned rows differ: run `tacit align --again` on all sides",
}


@dataclass(frozen=True)
class Greeting:
    """What each side says first on every link; nothing in it depends on a label."""

    run: str  # the run's name
    contract: str  # digest of the contract
    alignment: str  # name of the alignment
    rows: str  # keyed digest of the aligned rows, in their order
    party: str  # the party's name
    role: str  # "label" or "features"
    mechanism: dict[str, Any]  # parameters of what flips labels; a feature party says none
    protocol: int = PROTOCOL  # version of what crosses the wire
    version: str = __version__  # version of the code
    purpose: str = "one_shot"  # what this link is for

    def message(self) -> Message:
        """As it crosses the wire."""
        return control("hello", 0, asdict(self))

    def heard(self, message: Message | None, peer: str) -> Greeting:
        """A peer's words, if any came in time and fit ours; else a `RefusedError` that names the field."""
        if message is None:
            raise LinkError(f"{peer} says nothing after connecting")
        if message.kind == "refusal":
            raise refused_by(message, peer)
        if message.kind != "hello":
            raise ProtocolError(f"a {message.kind} came before any hello")
        said = read_control(message)
        for name, remedy in _EQUAL.items():
            here, there = getattr(self, name), said.get(name)
            if here != there:
                raise RefusedError(name, f"{name} is {here!r:.60} here and {there!r:.60} at {peer}: {remedy}")
        kinds = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        if set(said) != set(kinds) or any(type(said[name]) is not kind for name, kind in kinds.items()):
            raise ProtocolError("hello: fields are missing, unknown or of other types")
        theirs = Greeting(**said)
        if theirs.party != peer or {self.role, theirs.role} != {"features", "label"}:
            raise RefusedError("party", f"{peer} calls itself {theirs.party!r:.40}: its certificate says otherwise")
        return theirs


def packed(sent: NDArray[Any], classes: int) -> torch.Tensor:
    """What is sent of labels as bytes: a bit for each of two classes, else a byte or two."""
    if classes == 2:
        return torch.from_numpy(np.packbits(sent.astype(np.uint8), bitorder="little"))
    narrow = sent.astype(np.uint8 if classes <= 256 else "<u2")
    return torch.from_numpy(narrow.view(np.uint8).reshape(-1))


def packed_size(count: int, classes: int) -> int:
    """How many bytes `packed` gives for so many rows."""
    return -(-count // 8) if classes == 2 else count * (1 if classes <= 256 else 2)


def unpacked(payload: torch.Tensor, count: int, classes: int) -> NDArray[Any]:
    """What `packed` was given; a `ProtocolError` where that can't be, or a row has no class that there is."""
    raw = payload.numpy()
    if len(raw) != packed_size(count, classes):
        raise ProtocolError(f"flips: {len(raw)} bytes for {count} rows of {classes} classes")
    if classes == 2:
        return np.unpackbits(raw, count=count, bitorder="little")
    found = raw.view(np.uint8 if classes <= 256 else "<u2")
    if int(found.max(initial=0)) >= classes:  # before they become signed: large ones would pass as negative
        raise ProtocolError(f"flips: a class above {classes - 1} for one of {count} rows")
    return found.astype(np.int16)


def feature_limits(train: int) -> dict[str, Limit]:
    """What may come to a feature party."""
    common = dict.fromkeys(("hello", "refusal", "acknowledgement", "done"), CONTROL)
    return {**common, "flips": Limit(torch.uint8, (AtMost(2 * train),))}  # how many they are, the mechanism says


def label_limits(count: int, width: int) -> dict[str, Limit]:
    """What may come to a label party, to the exact shape."""
    return {
        **dict.fromkeys(("hello", "refusal", "done"), CONTROL),
        "flips": Limit(torch.uint8, (0,)),
        "embedding": Limit(torch.uint8, (AtMost(min(count, rows_of_chunk(width))), width)),
    }


def rows_of_chunk(width: int) -> int:
    """Rows that are sent at a time."""
    return max(1, CHUNK // width)


# --- the feature party -----------------------------------------------------------------------------------------------


class Asking:
    """A feature party's side of the conversation, over a line that lasts."""

    def __init__(self, line: Callable[[Callable[[Link], None]], Dialer], greeting: Greeting) -> None:
        self._greeting = greeting
        self._open: Message | None = None
        self.mechanism: Mechanism | None = None
        self.line = line(self._greet)

    def _greet(self, link: Link) -> None:
        link.send(self._greeting.message())
        theirs = self._greeting.heard(link.recv(_PATIENCE), link.peer)
        try:
            mechanism = read_mechanism(theirs.mechanism)
        except ProtocolError as error:
            raise RefusedError(
                "mechanism", f"{link.peer} flips labels by no mechanism that there is: {error}"
            ) from None
        if self.mechanism is not None and mechanism.parameters() != self.mechanism.parameters():
            raise RefusedError("mechanism", f"{link.peer} says another mechanism than before")
        self.mechanism = mechanism
        if self._open is not None:
            link.send(self._open)

    def ask(self, request: Message, kind: str) -> Message:
        """The answer to a request, over however many links; another one than of this kind is refused."""
        self._open = request
        self.line.send(request)
        answer = self.line.recv()
        if answer.kind != kind or answer.step != request.step:
            raise ProtocolError(
                f"{self.line.peer} answered a {request.kind} with a {answer.kind} of step {answer.step}"
            )
        self._open = None
        return answer

    def flips(self, count: int) -> NDArray[Any]:
        """What is sent of the labels of so many rows."""
        answer = self.ask(Message(0, "flips", torch.empty(0, dtype=torch.uint8), b""), "flips")
        assert self.mechanism is not None  # it was greeted with one
        return unpacked(answer.payload, count, outcomes(self.mechanism))

    def deliver(self, codes: NDArray[np.uint8], progress: Callable[[int, int], None] = lambda *_: None) -> None:
        """Send an embedding, and see that what arrived is what was sent."""
        size = rows_of_chunk(codes.shape[1])
        for place, start in enumerate(range(0, len(codes), size)):
            part = np.ascontiguousarray(codes[start : start + size])
            answer = self.ask(Message(place, "embedding", torch.from_numpy(part), b""), "acknowledgement")
            if read_control(answer) != {"sha256": digest_of(part)}:
                raise ProtocolError(f"{self.line.peer} acknowledged other bytes than were sent")
            progress(min(start + size, len(codes)), len(codes))

    def leave(self, seconds: float = 20.0) -> bool:
        """Say that nothing more comes; whether the label party has heard it."""
        self._open = None
        try:
            return self.line.deliver(control("done", 0, {}), seconds)
        except (RefusedError, ProtocolError):  # it has everything, and means something else by now
            return False


# --- the label party -------------------------------------------------------------------------------------------------


def greet_feature_party(link: Link, greeting: Greeting, *, patience: float = 10.0) -> None:
    """Hear a feature party's hello, and answer it if nothing speaks against it."""
    greeting.heard(link.recv(patience), link.peer)
    link.send(greeting.message())


def answer_all(
    lines: Mapping[str, DeskLine],
    tell: Callable[[Message], Message],
    received: Received,
    *,
    waiting: Callable[[str], None] = lambda _: None,
    patience: float = 20.0,
    leaving: Callable[[str, Message], None] = lambda *_: None,
    trace: Callable[[str], None] = lambda _: None,
) -> set[str]:
    """Answer all feature parties until each has sent its embedding and said that it is done; who has said so.

    `tell` gives the one answer about labels to a party's question; those who have sent everything may take `patience`
    seconds to say that they are done; `leaving` hears to whom which answer is about to go: what a kill leaves unsaid
    may have left.
    """
    done: set[str] = set()
    until = math.inf
    while True:
        missing = [name for name in lines if not received.whole(name)]
        if not missing:
            until = min(until, time.monotonic() + patience)
            if done >= set(lines) or time.monotonic() > until:
                return done
        for name, line in lines.items():
            message = line.look()
            if message is None:
                if name in missing:
                    waiting(name)
                continue
            try:
                answer = _answer(name, message, tell, received)
                leaving(name, answer)
                line.send(answer)
                trace(f"{answer.kind} sent")
            except RefusedError as error:
                line.refuse(error)
                continue
            if message.kind == "done" and received.whole(name):
                done.add(name)


def _answer(name: str, message: Message, tell: Callable[[Message], Message], received: Received) -> Message:
    if message.kind == "flips":
        return tell(message)
    if message.kind == "embedding":
        said = received.take(name, message.step, message.payload.numpy())
        return control("acknowledgement", message.step, {"sha256": said})
    if message.kind == "done":
        return control("done", 0, {})
    raise RefusedError("message", f"a {message.kind} has no place here")


class Received:
    """Embeddings as they came, in files that are on the disk before they are acknowledged."""

    def __init__(self, folder: Path, count: int, width: int, trace: Callable[[str], None] = lambda _: None) -> None:
        self._folder, self._count, self._width, self._trace = folder, count, width, trace

    def take(self, name: str, place: int, part: NDArray[np.uint8]) -> str:
        """Keep a part, and say its digest; another one than was kept before is refused: it is sent once."""
        size = rows_of_chunk(self._width)
        expected = min(size, self._count - place * size)
        if expected < 1 or len(part) != expected:
            raise RefusedError("embedding", f"part {place} has {len(part)} rows, where {max(0, expected)} are missing")
        path, said = self._paths(name)[place], digest_of(part)
        if path.exists():
            if digest_of(np.load(path)) != said:
                raise RefusedError("embedding", f"part {place} came before with other content: a row is sent once")
        else:
            store_array(path, part)
            self._trace("embedding stored")
        return said

    def whole(self, name: str) -> bool:
        """Whether all of a party's embedding is here."""
        return all(path.exists() for path in self._paths(name))

    def codes(self, name: str) -> NDArray[np.uint8]:
        """A party's embedding.  (rows, width)"""
        parts: list[NDArray[np.uint8]] = [np.load(path) for path in self._paths(name)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _paths(self, name: str) -> list[Path]:
        return [self._folder / f"{name}-{place}.npy" for place in range(-(-self._count // rows_of_chunk(self._width)))]


def digest_of(part: NDArray[np.uint8]) -> str:
    """Of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(part).data).hexdigest()
