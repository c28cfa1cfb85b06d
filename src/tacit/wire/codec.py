"""Messages as bytes: one fixed form for everything that crosses a wire, with exact lengths and no types of the peer's.

A message is one frame or several. A frame is a header of 64 bytes and a piece of the tensor's own bytes:

    magic and version 4, kind 1, dtype 1, dimensions 1, length of rows 1, step 8, rows 16, shape 4 x 4, bytes in all 8,
    offset of this piece 8        (little endian; what is not used is 0)

Whoever receives says beforehand what each kind may be (`Limit`), and nothing is allocated before a header fits that.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import Message, raw_bytes
from tacit.disk import Buffer
from tacit.errors import ProtocolError, TensorError, UsageError

if sys.byteorder != "little":
    raise ImportError("tacit.wire.codec sends tensors as they lie in memory, least byte first: this machine's are not")

PROTOCOL = 2
"""The version of what crosses the wire."""

LARGEST = 1e6
"""No number that a peer sends may be larger: one that is finite and huge can wreck a model as well."""

MAGIC = b"TAC\x02"
LAYOUT = struct.Struct("<4sBBBBQ16sIIIIQQ")

HEADER = LAYOUT.size
"""Length of a frame's header in bytes."""

FRAME = 4 * 1024 * 1024
"""Length of the longest frame, its header included."""

CHUNK = FRAME - HEADER
Frame = Buffer | Tensor  # what a frame may lie in; a tensor is of single bytes
_SAME = HEADER - 8  # up to here the headers of a message's frames are equal; after it comes the offset
_ROWS = 16


# --- what may cross a wire at all, and what a receiver allows of it --------------------------------------------------


KINDS = (
    "hello", "refusal", "commitment", "reveal", "points", "matches", "embedding", "gradient", "evaluation", "figures",
    "done", "flips", "acknowledgement", "tokens",
)  # fmt: skip
"""The kinds of messages. The number on the wire is the place here, so new ones are added at the end."""

DTYPES = (torch.float32, torch.float64, torch.uint8)
"""The dtypes that may cross a wire; the number on the wire is the place here."""

DIMENSIONS = 4
"""The most dimensions that a tensor on the wire may have."""


@dataclass(frozen=True)
class AtMost:
    """A dimension that may be anything up to `count`."""

    count: int


@dataclass(frozen=True)
class Limit:
    """What a message of a kind may be."""

    dtype: torch.dtype  # its one dtype
    shape: tuple[int | AtMost, ...]  # its dimensions, each an exact number or `AtMost(n)`
    largest: float = math.inf  # no number in it may lie further from 0; all must be finite in any case

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or len(self.shape) > DIMENSIONS:
            raise UsageError(f"{self}: no such message can be sent: up to 4 dimensions of one of {DTYPES}")
        largest = [side.count if isinstance(side, AtMost) else side for side in self.shape]
        if min(largest, default=0) < 0 or math.prod(max(side, 1) for side in largest) >= 2**59:
            raise UsageError(f"{self}: no memory holds that: set each dimension to what a message really has at most")

    def fits(self, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this dtype and shape may come."""
        if dtype is not self.dtype or len(shape) != len(self.shape):
            return False
        pairs = zip(shape, self.shape, strict=True)
        return all(side <= most.count if isinstance(most, AtMost) else side == most for side, most in pairs)

    @property
    def size(self) -> int:
        """Bytes of the largest tensor that fits."""
        sides = (side.count if isinstance(side, AtMost) else side for side in self.shape)
        return math.prod(sides) * self.dtype.itemsize

    def __str__(self) -> str:
        sides = (f"<={side.count}" if isinstance(side, AtMost) else str(side) for side in self.shape)
        return f"{short_name(self.dtype)} ({', '.join(sides)})"


def wrong_numbers(payload: Tensor, largest: float = math.inf) -> str:
    """What is wrong with the numbers that came, in one pass; nothing where all are finite and none is too large."""
    if not payload.is_floating_point() or not payload.numel():
        return ""
    low, high = (edge.item() for edge in torch.aminmax(payload.detach()))  # not a number wins over all numbers
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{int((~torch.isfinite(payload)).sum())} of {payload.numel()} numbers are not finite"
    if max(-low, high) > largest:
        return f"it holds numbers beyond {largest:.0e}: look at inputs and learning rate"
    return ""


def short_name(dtype: torch.dtype) -> str:
    """A dtype's name as people say it: "float32"."""
    return str(dtype).removeprefix("torch.")


# --- out -------------------------------------------------------------------------------------------------------------


def pieces(message: Message) -> Iterator[tuple[Buffer, memoryview]]:
    """Each frame as its header and, in the tensor's own memory, what follows it.

    The tensor is read as the frames are taken: leave it alone until the last one is out. What can't be sent is a
    `UsageError` (kind, step, rows) or a `TensorError` (dtype, shape), before the first frame.
    """
    payload, what = message.payload, _name(message)
    if message.kind not in KINDS:
        raise UsageError(f"no message is of kind {message.kind!r}: one of {', '.join(KINDS)}")
    if payload.dtype not in DTYPES:
        raise TensorError(f"{what}: {payload.dtype} does not cross a wire: convert it to one of {DTYPES}")
    if payload.ndim > DIMENSIONS or any(side >= 2**32 for side in payload.shape):
        raise TensorError(f"{what}: shape {tuple(payload.shape)} has no place in a header: 4 dimensions below 2**32")
    if len(message.rows) not in (0, _ROWS):
        raise UsageError(f"{what}: rows are {len(message.rows)} bytes: pass a digest of {_ROWS}, or none")
    if isinstance(message.step, bool) or not isinstance(message.step, int) or not 0 <= message.step < 2**64:
        raise UsageError(f"{message.kind}: step {message.step!r} is not a whole number from 0 to 2**64 - 1")
    if payload.layout is not torch.strided or payload.device.type == "meta":
        raise TensorError(f"{what}: a {payload.layout} tensor on {payload.device}: send a dense one with values")
    content = raw_bytes(payload)
    fields = (
        MAGIC, KINDS.index(message.kind), DTYPES.index(payload.dtype), payload.ndim, len(message.rows),
        message.step, message.rows, *payload.shape, *(0,) * (DIMENSIONS - payload.ndim), len(content),
    )  # fmt: skip
    return _pieces(fields, content)


def _pieces(fields: tuple[object, ...], content: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    for offset in range(0, max(len(content), 1), CHUNK):
        yield LAYOUT.pack(*fields, offset), content[offset : offset + CHUNK]


def encode(message: Message) -> list[Buffer]:
    """A message as frames: all full but the last. The tensor's bytes are copied once, into them.

    >>> sent = Message(7, "embedding", torch.ones(2, 3), b"")
    >>> [len(frame) for frame in encode(sent)]
    [88]
    >>> Assembler({"embedding": Limit(torch.float32, (2, 3))}).feed(encode(sent)[0]).payload.sum()
    tensor(6.)
    """
    return [b"".join(piece) for piece in pieces(message)]


# --- in --------------------------------------------------------------------------------------------------------------


@dataclass
class _Pending:
    """A message of which frames are still to come."""

    head: bytes
    message: Message
    limit: Limit
    room: memoryview
    there: bool  # whether it lies in the frame that was given away
    filled: int = 0


class Assembler:
    """Frames of one peer, in order, back into messages.

    What does not fit is a `ProtocolError`, and after one the assembler is dead: bytes that came after a wrong one mean
    nothing. The tensors lie in torch's own memory, aligned as torch aligns it, so that the same numbers give the same
    results as in one process, bit for bit: a header is as long as its alignment, so this also holds behind one. The
    limits may be replaced between two messages.
    """

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self.limits = limits
        self._pending: _Pending | None = None
        self._refusal: str | None = None

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What each kind may be from now on; a kind that is not in it is refused."""
        return self._limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        unknown = set(limits) - set(KINDS)
        if unknown:
            raise UsageError(f"no message is of kind {', '.join(sorted(unknown))}: limits are for {', '.join(KINDS)}")
        self._limits = dict(limits)
        self.most = min(HEADER + max((limit.size for limit in limits.values()), default=0), FRAME)  # bytes of a frame

    def feed(self, given: Frame) -> Message | None:
        """Take the next frame; the message that it completes, or None while more must come.

        A tensor of bytes is given away: a message that is all in it stays there.
        """
        frame = given.numpy().data if isinstance(given, Tensor) else memoryview(given)
        if self._refusal is not None:
            raise ProtocolError(f"nothing more is read after what was refused before: {self._refusal}")
        try:
            pending = self._expected(frame, given)
            piece = frame[HEADER:]
            if len(piece) != min(CHUNK, len(pending.room) - pending.filled):
                raise ProtocolError(
                    f"{_name(pending.message)}: a frame of {len(piece)} bytes at {pending.filled} of "
                    f"{len(pending.room)}: frames must be full but for the last"
                )
            if not pending.there:
                pending.room[pending.filled : pending.filled + len(piece)] = piece
            pending.filled += len(piece)
            self._pending = pending
            if pending.filled < len(pending.room):
                return None
            self._pending = None
            wrong = wrong_numbers(pending.message.payload, pending.limit.largest)
            if wrong:
                raise ProtocolError(f"{_name(pending.message)}: {wrong}")
            return pending.message
        except ProtocolError as error:
            self._refusal, self._pending = str(error), None
            raise

    def _expected(self, frame: memoryview, given: Frame) -> _Pending:
        """The message that this frame belongs to: the one begun, or a new one whose header is right."""
        if not HEADER <= len(frame) <= FRAME:
            raise ProtocolError(f"a frame of {len(frame)} bytes: from {HEADER} to {FRAME} are allowed")
        (offset,) = struct.unpack_from("<Q", frame, _SAME)
        pending = self._pending
        if pending is None:
            if offset:
                raise ProtocolError(f"a message begins at byte {offset}: its first frames are missing")
            return self._begin(frame, given)
        if frame[:_SAME] != pending.head or offset != pending.filled:
            raise ProtocolError(
                f"{_name(pending.message)}: byte {pending.filled} of {len(pending.room)} must come next, and another "
                "frame came"
            )
        return pending

    def _begin(self, frame: memoryview, given: Frame) -> _Pending:
        magic, kind, dtype, ndim, rows_length, step, rows, *numbers, total, _ = LAYOUT.unpack_from(frame)
        if magic != MAGIC:
            raise ProtocolError(f"a frame begins with {magic!r} instead of {MAGIC!r}: another program or version")
        if kind >= len(KINDS) or dtype >= len(DTYPES) or ndim > DIMENSIONS or rows_length not in (0, _ROWS):
            raise ProtocolError(
                f"step {step}: a header with kind {kind}, dtype {dtype}, {ndim} dimensions, rows of {rows_length} "
                "bytes: there is no such message"
            )
        name = f"{KINDS[kind]} of step {step}"
        if any(numbers[ndim:]) or (any(rows) and not rows_length):
            raise ProtocolError(f"{name}: a header with bytes set that mean nothing")
        limit = self._limits.get(KINDS[kind])
        if limit is None:
            allowed = ", ".join(self._limits) or "nothing"
            raise ProtocolError(f"{name}: not expected at this point, where {allowed} may come")
        shape, content = tuple(numbers[:ndim]), DTYPES[dtype]
        if not limit.fits(content, shape):
            raise ProtocolError(f"{name}: {short_name(content)} {shape} came, {limit} is agreed")
        if total != math.prod(shape) * content.itemsize:
            raise ProtocolError(f"{name}: {total} bytes are announced for {short_name(content)} {shape}")
        there = given[HEADER:] if isinstance(given, Tensor) and total == len(frame) - HEADER else None
        payload = torch.empty(shape, dtype=content) if there is None else there.view(content).view(shape)
        room = payload.reshape(-1).view(torch.uint8).numpy().data
        message = Message(step, KINDS[kind], payload, rows[:rows_length])
        return _Pending(bytes(frame[:_SAME]), message, limit, room, there is not None)


def _name(message: Message) -> str:
    return f"{message.kind} of step {message.step}"


# --- as a journal keeps it ---

_HEAD = re.compile(r"(\d+) (\w+) (\d+) ([0-9a-f]*) torch\.(\w+) \(([\d ]*)\)\n")


def kept(message: Message) -> tuple[Buffer, Buffer]:
    """What a journal keeps of a message: these bytes, joined, are what its fingerprint is of."""
    return message.head, raw_bytes(message.payload)


def read_kept(parts: Sequence[Buffer], limits: Mapping[str, Limit]) -> Message:
    """The message back, with a tensor in torch's own memory; a `ProtocolError` where these are no parts of one."""
    match = _HEAD.fullmatch(bytes(parts[0]).decode("ascii", "replace")) if len(parts) == 2 else None
    dtype = next((one for one in DTYPES if match and short_name(one) == match[5]), None)
    if match is None or dtype is None:
        raise ProtocolError("it has no head that could be read")
    kind, shape = match[2], tuple(map(int, match[6].split()))
    limit = limits.get(kind)
    if limit is None or not limit.fits(dtype, shape) or len(parts[1]) != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(f"{kind} of step {match[3]}: {short_name(dtype)} {shape} is not what was agreed")
    payload = torch.empty(shape, dtype=dtype)
    raw_bytes(payload)[:] = parts[1]
    wrong = wrong_numbers(payload, limit.largest)
    if wrong:
        raise ProtocolError(f"{kind} of step {match[3]}: {wrong}")
    return Message(int(match[3]), kind, payload, bytes.fromhex(match[4]))


# --- small messages of plain values: a JSON object as bytes in a uint8 tensor, as handshakes, refusals and figures ----

LONGEST = 64 * 1024
"""Bytes of the longest small message."""

DEPTH = 16
"""How deep its values may be nested."""

CONTROL = Limit(torch.uint8, (AtMost(LONGEST),))
"""What a message that `control` makes may be."""


def control(kind: str, step: int, mapping: Mapping[str, Any]) -> Message:
    """A message that carries a small object of plain values.

    They are str, whole numbers of 64 bits, finite floats, bool, None, and lists and dicts of them.

    >>> read_control(control("hello", 0, {"version": "0.2", "step": 41}))
    {'step': 41, 'version': '0.2'}
    """
    wrong = _not_plain(dict(mapping))
    if wrong:
        raise UsageError(f"{kind} of step {step}: {wrong}")
    text = json.dumps(mapping, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
    if len(text) > LONGEST:
        raise UsageError(f"{kind} of step {step}: {len(text)} bytes of JSON: {LONGEST} are the most that one may have")
    return Message(step, kind, torch.frombuffer(bytearray(text), dtype=torch.uint8), b"")


def read_control(message: Message) -> dict[str, Any]:
    """The object that a message carries; a `ProtocolError` where it carries none, or one that is not plain."""
    what, payload = f"{message.kind} of step {message.step}", message.payload
    if payload.dtype is not torch.uint8 or payload.ndim != 1 or len(payload) > LONGEST:
        raise ProtocolError(f"{what}: {payload.dtype} {tuple(payload.shape)} is no object in JSON")
    try:
        text = payload.numpy().tobytes().decode()
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
    except RecursionError:
        raise ProtocolError(f"{what}: its JSON is nested too deeply") from None
    except ValueError as error:  # of the text's encoding, of JSON, of numbers with thousands of digits
        raise ProtocolError(f"{what}: its JSON can't be read: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"{what}: its JSON is a {type(value).__name__}, not an object")
    wrong = _not_plain(value)
    if wrong:
        raise ProtocolError(f"{what}: {wrong}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _not_plain(value: Any, depth: int = 0) -> str | None:
    """What is wrong with a value that JSON would not carry unchanged; None where nothing is."""
    if depth > DEPTH:
        return f"values are nested more than {DEPTH} deep"
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return f"keys must be text, not {[key for key in value if not isinstance(key, str)]}"
        return _first((*value.keys(), *value.values()), depth)
    if isinstance(value, list):
        return _first(value, depth)
    if isinstance(value, str):
        half = any("\ud800" <= letter <= "\udfff" for letter in value)  # UTF-8 has no bytes for it
        return f"{value!r} has half a character" if half else None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "a whole number has more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not finite"
    return f"a {type(value).__name__} is no plain value"


def _first(values: Any, depth: int) -> str | None:
    return next((wrong for value in values if (wrong := _not_plain(value, depth + 1))), None)
