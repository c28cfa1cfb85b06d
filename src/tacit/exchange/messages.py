"""The messages of one-shot training, and the words around them.

::

    feature party                                   label party
    hello                                     -->
                                              <--   hello, with the mechanism
    flips (asked for)                         -->
                                              <--   flips: what is sent of each training row's label
    (learns, attacks its own embedding, as long as it likes; the link may break and come back)
    embedding: cells of all rows              -->
                                              <--   acknowledgement: a digest of the bytes, before they are opened
    done                                      -->
                                              <--   done

Where no label is sent, the embedding is the first message. Every answer of the label party is a function of what was
flipped once and of the bytes that came, so it may be asked again as often as a peer likes. An embedding that differs
from the one that is stored is refused.
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
from tacit.labels.mechanisms import Mechanism, outcomes, read_mechanism
from tacit.made_once import store_array
from tacit.progress import Count
from tacit.wire.codec import CONTROL, PROTOCOL, AtMost, Limit, control, read_control
from tacit.wire.line import DeskLine, Dialer, refused_by

CHUNK = 1 << 25  # numbers of an embedding that are sent and acknowledged at a time
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
    mechanism: dict[str, Any]  # parameters of what flips labels; empty where nothing does, and from a feature party
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


def label_limits(count: int, form: Form) -> dict[str, Limit]:
    """What may come to a label party."""
    return {
        **dict.fromkeys(("hello", "refusal", "done"), CONTROL),
        "flips": Limit(torch.uint8, (0,)),
        "embedding": Limit(torch.uint8, (AtMost(form.size(min(count, form.rows_at_a_time))),)),
    }


@dataclass(frozen=True)
class Form:
    """How an embedding crosses the wire: each number in so many bits, nothing between them.

    >>> form = Form(3, 1)
    >>> form.unpacked(form.packed(np.array([[7], [0], [5]], np.uint8)), 3).ravel().tolist()
    [7, 0, 5]
    """

    bits: int  # of a number
    numbers: int  # of a row

    @property
    def rows_at_a_time(self) -> int:
        """Rows of a message."""
        return max(1, CHUNK // self.numbers)

    def size(self, rows: int) -> int:
        """The bytes of so many rows."""
        return -(-rows * self.numbers * self.bits // 8)

    def packed(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Cells (rows, numbers) as bytes."""
        apart = codes.reshape(-1, 1) >> np.arange(self.bits, dtype=np.uint8) & 1
        return np.packbits(apart, bitorder="little")

    def unpacked(self, raw: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
        """The cells of so many rows, which have `size(rows)` bytes.  (rows, numbers)"""
        apart = np.unpackbits(raw, count=rows * self.numbers * self.bits, bitorder="little")
        weights = np.uint8(1) << np.arange(self.bits, dtype=np.uint8)
        cells = (apart.reshape(-1, self.bits) * weights).sum(1, dtype=np.uint8)
        return np.asarray(cells.reshape(rows, self.numbers), np.uint8)


# --- the feature party -----------------------------------------------------------------------------------------------


class Asking:
    """A feature party's side of the conversation, over a line that lasts."""

    def __init__(
        self, line: Callable[[Callable[[Link], None]], Dialer], greeting: Greeting, *, labels: bool = True
    ) -> None:
        self._greeting = greeting
        self.labels = labels  # whether any are sent
        self._open: Message | None = None
        self.mechanism: Mechanism | None = None
        self.line = line(self._greet)

    def _greet(self, link: Link) -> None:
        link.send(self._greeting.message())
        theirs = self._greeting.heard(link.recv(_PATIENCE), link.peer)
        if not self.labels and not theirs.mechanism:
            if self._open is not None:
                link.send(self._open)
            return
        try:
            if not self.labels:
                raise ProtocolError("the contract says that no label is sent")
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

    def deliver(self, codes: NDArray[np.uint8], form: Form, progress: Count = lambda *_: None) -> None:
        """Send an embedding, and see that what arrived is what was sent."""
        size = form.rows_at_a_time
        for place, start in enumerate(range(0, len(codes), size)):
            part = form.packed(codes[start : start + size])
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
    flips: torch.Tensor | None,
    received: Received,
    *,
    waiting: Callable[[str], None] = lambda _: None,
    patience: float = 20.0,
    leaving: Callable[[str, Message], None] = lambda *_: None,
    trace: Callable[[str], None] = lambda _: None,
) -> set[str]:
    """Answer all feature parties until each has sent its embedding and said that it is done; who has said so.

    `flips` are the one answer to a party's question about labels, None where none is sent; those who have sent
    everything may take `patience` seconds to say that they are done; `leaving` hears to whom which answer is about to
    go: what a kill leaves unsaid may have left.
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
                    line.there()
                continue
            try:
                answer = _answer(name, message, flips, received)
                leaving(name, answer)
                line.send(answer)
                trace(f"{answer.kind} sent")
            except RefusedError as error:
                line.refuse(error)
                continue
            if message.kind == "done" and received.whole(name):
                done.add(name)


def _answer(name: str, message: Message, flips: torch.Tensor | None, received: Received) -> Message:
    if message.kind == "flips" and flips is not None:
        return Message(message.step, "flips", flips, b"")
    if message.kind == "embedding":
        said = received.take(name, message.step, message.payload.numpy())
        return control("acknowledgement", message.step, {"sha256": said})
    if message.kind == "done":
        return control("done", 0, {})
    raise RefusedError("message", f"a {message.kind} has no place here")


class Received:
    """Embeddings as they came, in files that are on the disk before they are acknowledged."""

    def __init__(self, folder: Path, count: int, form: Form, trace: Callable[[str], None] = lambda _: None) -> None:
        self._folder, self._count, self._form, self._trace = folder, count, form, trace

    def take(self, name: str, place: int, part: NDArray[np.uint8]) -> str:
        """Keep a part, and say its digest; another one than was kept before is refused: it is sent once."""
        rows = self._rows(place)
        if rows < 1 or len(part) != self._form.size(rows):
            raise RefusedError(
                "embedding", f"part {place} has {len(part)} bytes, where {self._form.size(max(0, rows))} are missing"
            )
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
        paths = enumerate(self._paths(name))
        parts = [self._form.unpacked(np.load(path), self._rows(place)) for place, path in paths]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _rows(self, place: int) -> int:
        """Rows of a part."""
        size = self._form.rows_at_a_time
        return min(size, self._count - place * size)

    def _paths(self, name: str) -> list[Path]:
        parts = -(-self._count // self._form.rows_at_a_time)
        return [self._folder / f"{name}-{place}.npy" for place in range(parts)]


def digest_of(part: NDArray[np.uint8]) -> str:
    """Of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(part).data).hexdigest()
