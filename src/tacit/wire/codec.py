"""Messages as bytes: one fixed form for everything that crosses a wire, with exact lengths and no types of the peer's.

A message is one frame or several. A frame is a header of 64 bytes and a piece of the tensor's own bytes:

    magic and version 4, kind 1, dtype 1, dimensions 1, length of rows 1, step 8, rows 16, shape 4 x 4, bytes in all 8,
    offset of this piece 8        (little endian; what is not used is 0)

Whoever receives says beforehand what each kind may be (`Limit`), and nothing is allocated before a header fits that.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.contracts import Message
from tacit.errors import ProtocolError, TensorError, UsageError
from tacit.wire.messages import (
    CONTROL,
    DIMENSIONS,
    DTYPES,
    KINDS,
    AtMost,
    Limit,
    control,
    read_control,
    short_name,
    wrong_numbers,
)  # fmt: skip

__all__ = [
    "CONTROL", "DTYPES", "FRAME", "HEADER", "KINDS", "Assembler", "AtMost", "Encoded", "Limit", "control", "encode",
    "encoded", "frames", "read_control",
]  # fmt: skip

if sys.byteorder != "little":
    raise ImportError("tacit.wire.codec sends tensors as they lie in memory, least byte first: this machine's are not")

MAGIC = b"TAC\x01"
LAYOUT = struct.Struct("<4sBBBBQ16sIIIIQQ")

HEADER = LAYOUT.size
"""Length of a frame's header in bytes."""

FRAME = 4 * 1024 * 1024
"""Length of the longest frame, its header included: what gRPC takes without being told otherwise."""

CHUNK = FRAME - HEADER
_SAME = HEADER - 8  # up to here the headers of a message's frames are equal; after it comes the offset
_ROWS = 16


# --- out -------------------------------------------------------------------------------------------------------------


def _bytes(payload: Tensor, what: str) -> memoryview:
    """The tensor's bytes in the order of its elements; a view where they already lie so."""
    if payload.layout is not torch.strided or payload.device.type == "meta":
        raise TensorError(f"{what}: a {payload.layout} tensor on {payload.device}: send a dense one with values")
    dense = payload.detach().resolve_neg().to("cpu").contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # a contiguous tensor of one row or none may have any stride
    return flat.view(torch.uint8).numpy().data


class Encoded(Message):
    """A message that has its frames: what the journal keeps and what the wire carries are the same bytes, made once."""

    frames: tuple[bytes, ...] = ()  # no field: a copy with other content is encoded anew


def encoded(message: Message, known: tuple[bytes, ...] = ()) -> Encoded:
    """The message with its frames: those that are known, as it came in them, or new ones."""
    if isinstance(message, Encoded) and message.frames:
        return message
    made = Encoded(message.step, message.kind, message.payload, message.rows)
    object.__setattr__(made, "frames", known or tuple(frames(message)))  # the class is frozen, and this is its making
    return made


def frames(message: Message) -> Iterator[bytes]:
    """The frames of a message, one after the other, so that a large one is never in memory twice as a whole.

    The tensor is read as the frames are taken: leave it alone until the last one is out. What can't be sent is a
    `UsageError` (kind, step, rows) or a `TensorError` (dtype, shape), before the first frame.
    """
    if isinstance(message, Encoded) and message.frames:
        return iter(message.frames)
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
    content = _bytes(payload, what)
    fields = (
        MAGIC, KINDS.index(message.kind), DTYPES.index(payload.dtype), payload.ndim, len(message.rows),
        message.step, message.rows, *payload.shape, *(0,) * (DIMENSIONS - payload.ndim), len(content),
    )  # fmt: skip
    return _pieces(fields, content)


def _pieces(fields: tuple[object, ...], content: memoryview) -> Iterator[bytes]:
    for offset in range(0, max(len(content), 1), CHUNK):
        yield b"".join((LAYOUT.pack(*fields, offset), content[offset : offset + CHUNK]))


def encode(message: Message) -> list[bytes]:
    """A message as frames: all full but the last. The tensor's bytes are copied once, into them.

    >>> from tacit.wire.codec import Assembler, Limit, encode
    >>> sent = Message(7, "embedding", torch.ones(2, 3), b"")
    >>> [len(frame) for frame in encode(sent)]
    [88]
    >>> Assembler({"embedding": Limit(torch.float32, (2, 3))}).feed(encode(sent)[0]).payload.sum()
    tensor(6.)
    """
    return list(frames(message))


# --- in --------------------------------------------------------------------------------------------------------------


@dataclass
class _Pending:
    """A message of which frames are still to come."""

    head: bytes
    message: Message
    limit: Limit
    room: memoryview
    filled: int = 0


class Assembler:
    """Frames of one peer, in order, back into messages.

    What does not fit is a `ProtocolError`, and after one the assembler is dead: bytes that came after a wrong one mean
    nothing. The tensors lie in torch's own memory, aligned as torch aligns it, so that the same numbers give the same
    results as in one process, bit for bit.

    Args:
        limits: what each kind may be; a kind that is not in it is refused. It may be replaced between two messages.
    """

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self.limits = limits
        self._pending: _Pending | None = None
        self._refusal: str | None = None

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What each kind may be from now on."""
        return self._limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        unknown = set(limits) - set(KINDS)
        if unknown:
            raise UsageError(f"no message is of kind {', '.join(sorted(unknown))}: limits are for {', '.join(KINDS)}")
        self._limits = dict(limits)

    def feed(self, frame: bytes) -> Message | None:
        """Take the next frame; the message that it completes, or None while more must come."""
        if self._refusal is not None:
            raise ProtocolError(f"nothing more is read after what was refused before: {self._refusal}")
        try:
            pending = self._expected(frame)
            piece = memoryview(frame)[HEADER:]
            if len(piece) != min(CHUNK, len(pending.room) - pending.filled):
                raise ProtocolError(
                    f"{_name(pending.message)}: a frame of {len(piece)} bytes at {pending.filled} of "
                    f"{len(pending.room)}: frames must be full but for the last"
                )
            pending.room[pending.filled : pending.filled + len(piece)] = piece
            pending.filled += len(piece)
            self._pending = pending
            if pending.filled < len(pending.room):
                return None
            self._pending = None
            wrong = wrong_numbers(pending.message.payload, pending.limit.largest)
            if wrong:
                raise ProtocolError(f"{_name(pending.message)}: {wrong}")
            whole = len(frame) == HEADER + len(pending.room)  # larger messages are not kept in memory twice
            return encoded(pending.message, (bytes(frame),)) if whole else pending.message
        except ProtocolError as error:
            self._refusal, self._pending = str(error), None
            raise

    def _expected(self, frame: bytes) -> _Pending:
        """The message that this frame belongs to: the one begun, or a new one whose header is right."""
        if not HEADER <= len(frame) <= FRAME:
            raise ProtocolError(f"a frame of {len(frame)} bytes: from {HEADER} to {FRAME} are allowed")
        (offset,) = struct.unpack_from("<Q", frame, _SAME)
        pending = self._pending
        if pending is None:
            if offset:
                raise ProtocolError(f"a message begins at byte {offset}: its first frames are missing")
            return self._begin(frame)
        if frame[:_SAME] != pending.head or offset != pending.filled:
            raise ProtocolError(
                f"{_name(pending.message)}: byte {pending.filled} of {len(pending.room)} must come next, and another "
                "frame came"
            )
        return pending

    def _begin(self, frame: bytes) -> _Pending:
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
        payload = torch.empty(shape, dtype=content)
        room = payload.reshape(-1).view(torch.uint8).numpy().data
        message = Message(step, KINDS[kind], payload, rows[:rows_length])
        return _Pending(bytes(frame[:_SAME]), message, limit, room)


def _name(message: Message) -> str:
    return f"{message.kind} of step {message.step}"
