"""Tensors of a span of steps in a file, one frame after the other, each checked to its last byte.

::

    frame    magic 8 | length of the header 4 | crc of the header 4 | check 16 | header, JSON | the tensors' bytes

`check` is a GMAC with a public key over the header and all tensors: it finds damage (not malice) at memory speed, where
a SHA-256 would cost more than writing the bytes.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import raw_bytes
from tacit.disk import Buffer, gmac, write_at
from tacit.errors import StorageError

_MAGIC = b"TACITREC"
_FIXED = struct.Struct("<8sII16s")
_KEY, _NONCE = b"tacit transcript", bytes(12)
_DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """What was written down of some steps."""

    begin: int  # the first of these steps
    end: int  # the step after the last one
    tensors: Mapping[str, Tensor]  # by name
    about: Mapping[str, int] = field(default_factory=dict)  # a few plain values


def write_frame(fd: int, path: Path, frame: Frame, offset: int) -> int:
    """Write a frame straight from the tensors' memory. Returns where it ends."""
    listed = [[name, str(value.dtype), list(value.shape)] for name, value in frame.tensors.items()]
    unknown = [dtype for _, dtype, _ in listed if dtype not in _DTYPES]
    if unknown:
        raise StorageError(f"{path}: a tensor of {unknown[0]} can't be kept there: record it as one of {list(_DTYPES)}")
    told = {"begin": frame.begin, "end": frame.end, "about": dict(frame.about), "tensors": listed}
    header = json.dumps(told, separators=(",", ":")).encode()
    parts: list[Buffer] = [header, *map(raw_bytes, frame.tensors.values())]
    fixed = _FIXED.pack(_MAGIC, len(header), zlib.crc32(header), gmac(_KEY, _NONCE, parts))
    return offset + write_at(fd, path, [fixed, *parts], offset)


def read_frames(fd: int, path: Path, before: int | None = None) -> Iterator[tuple[int, Frame]]:
    """The frames of a file in order, each with the place where it ends; a damaged one is a `StorageError`.

    It stops where the step `before` begins, or at a frame that goes beyond it; what lies behind is not looked at.
    """
    size, place, reached = os.fstat(fd).st_size, 0, 0
    while place < size and (before is None or reached < before):
        magic, length, crc, check = _FIXED.unpack(_exactly(fd, path, _FIXED.size, place))
        end = place + _FIXED.size + length
        if magic != _MAGIC or end > size:
            raise _damaged(path, f"there is no whole frame at byte {place}")
        raw = _exactly(fd, path, length, place + _FIXED.size)
        if zlib.crc32(raw) != crc:
            raise _damaged(path, f"the header at byte {place} is not what was written")
        header: dict[str, Any] = json.loads(raw)
        if before is not None and header["end"] > before:
            return
        tensors = {}
        for name, dtype, shape in header["tensors"]:
            tensors[name], end = _tensor(fd, path, _DTYPES[dtype], shape, end, size)
        if gmac(_KEY, _NONCE, [raw, *map(raw_bytes, tensors.values())]) != check:
            raise _damaged(path, f"the frame at byte {place} is not what was written")
        yield end, Frame(header["begin"], header["end"], tensors, header["about"])
        place, reached = end, header["end"]


def _tensor(fd: int, path: Path, dtype: torch.dtype, shape: list[int], place: int, size: int) -> tuple[Tensor, int]:
    """A tensor and where it ends; memory is taken only for what the file can hold."""
    end = place + math.prod(shape) * dtype.itemsize
    if end > size:
        raise _damaged(path, f"it ends within the frame that holds byte {place}")
    tensor = torch.empty(shape, dtype=dtype)
    room, done = raw_bytes(tensor), 0
    while done < room.nbytes:
        count = os.preadv(fd, [room[done:]], place + done)
        if count == 0:
            raise _damaged(path, f"it ends at byte {place + done}, within a tensor")
        done += count
    return tensor, end


def _exactly(fd: int, path: Path, length: int, place: int) -> bytes:
    raw = os.pread(fd, length, place)
    if len(raw) < length:
        raise _damaged(path, f"it ends at byte {place + len(raw)}, within a frame")
    return raw


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(f"{path}: damaged, {what}: bring back a copy, or move it away and audit what is recorded next")
