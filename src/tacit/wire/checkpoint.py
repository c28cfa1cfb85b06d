"""What a party needs to go on from a turn, in one file that is whole or is not there at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.disk import make_folder, refuse, remove, sync_file, sync_folder, write_at
from tacit.errors import StorageError, UsageError
from tacit.wire._tree import flatten, rebuild

__all__ = ["Checkpoint", "Checkpoints", "load", "save"]

_FORMAT = "tacit-checkpoint-1"
_NAME = re.compile(r"checkpoint-(\d{12})\.safetensors")
_PART = ".part"
_ZERO = "0" * 64
_BEGIN = b'{"__metadata__":{"sha256":"'  # the digest stands here, so that it can be left out of what it covers
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Checkpoint:
    """What was saved.

    Attributes:
        state: the tree, with plain dicts in the place of other mappings and new tensors.
        meta: what was said about it.
        turn: the turn that it belongs to, where `Checkpoints` wrote it.
    """

    state: Any
    meta: Mapping[str, Any]
    turn: int | None = None


def save(path: str | Path, state: Any, meta: Mapping[str, Any] | None = None) -> None:
    """Write a checkpoint. It takes the place of an older one of that name only when it is whole and on the disk.

    The file is a valid safetensors file: tensors as such, bit for bit; everything else in its metadata, with a SHA-256
    over every other byte of the file. A full disk is a `StorageError` and leaves the older file as it was.

    Args:
        path: the file; beside it, under its name and `.part`, it is written first.
        state: a tree of dict (keys str or int), list, tuple, None, bool, int, float, str, bytes, dense tensors and
            frozen dataclasses.
        meta: a few plain values about it.
    """
    _save(Path(path), state, meta, None)


def load(path: str | Path, *, allow: Sequence[type] = (), map_location: str | torch.device = "cpu") -> Checkpoint:
    """Read a checkpoint, checked to the last byte, or raise a `StorageError`; never a part of it.

    Args:
        path: the file.
        allow: dataclasses that may be made besides those of Tacit's own modules that are imported already.
        map_location: the device of the tensors.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            header, tensors = _read(path, file.fileno())
    except OSError as error:
        raise refuse(path, "read the checkpoint", error) from error
    try:
        skeleton = json.loads(header["skeleton"])
        placed = [tensor.to(map_location) for tensor in tensors]
        return Checkpoint(
            rebuild(skeleton["state"], placed, allow), rebuild(skeleton["meta"], (), allow), skeleton["turn"]
        )
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from error


def _save(path: Path, state: Any, meta: Mapping[str, Any] | None, turn: int | None) -> None:
    skeleton, tensors = flatten(state)
    about, none = flatten(meta or {}, "meta")
    if none:
        raise UsageError("meta holds a tensor: it is for plain values, put tensors into the state")
    plain = json.dumps({"turn": turn, "meta": about, "state": skeleton}, allow_nan=False)
    order = sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())  # all lie aligned then
    header = _header(plain, tensors, order)
    digest = hashlib.sha256(header)
    part = path.with_name(path.name + _PART)
    make_folder(path.parent)
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            place = len(header)
            for i in order:
                data = _bytes(tensors[i])
                digest.update(data)
                place += write_at(fd, part, [data], place)
            at = 8 + len(_BEGIN)
            write_at(fd, part, [header[:at], digest.hexdigest().encode(), header[at + 64 :]], 0)
            sync_file(fd, part)
        finally:
            os.close(fd)
        part.replace(path)
        sync_folder(path.parent)
    except (OSError, StorageError) as error:
        remove(part)
        if isinstance(error, StorageError):
            raise
        raise refuse(path, "write the checkpoint", error) from error


def _header(plain: str, tensors: Sequence[Tensor], order: Sequence[int]) -> bytes:
    """What a safetensors file begins with: the header's length and the header, here with zeros for the digest."""
    entries: dict[str, Any] = {"__metadata__": {"sha256": _ZERO, "format": _FORMAT, "skeleton": plain}}
    place = 0
    for i in order:
        tensor = tensors[i]
        if tensor.dtype not in _DTYPE_NAMES:
            raise UsageError(f"a tensor of {tensor.dtype} can't be kept in a checkpoint: convert it")
        end = place + tensor.numel() * tensor.element_size()
        entries[str(i)] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, end],
        }
        place = end
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, copied only where they do not lie in order."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(f"{path}: damaged, {what}: use an older checkpoint or a copy of this one")


def _read(path: Path, fd: int) -> tuple[dict[str, str], list[Tensor]]:
    """The metadata and all tensors, given out only when the digest over the whole file is right."""
    size = os.fstat(fd).st_size
    length = os.pread(fd, 8, 0)
    header_size = int.from_bytes(length, "little")
    if len(length) < 8 or header_size > size - 8:
        raise _damaged(path, f"its {size} bytes are fewer than its header says")
    raw = os.pread(fd, header_size, 8)
    at = len(_BEGIN) + 64
    if not raw.startswith(_BEGIN):
        raise StorageError(f"{path}: no checkpoint of this version of Tacit: use the one that wrote it")
    digest = hashlib.sha256(length + _BEGIN + _ZERO.encode() + raw[at:])
    try:
        entries = json.loads(raw)
        metadata = entries.pop("__metadata__")
        tensors, place = {}, 8 + header_size
        for name, entry in entries.items():
            tensors[int(name)] = _tensor(fd, entry, place, size)
            data = _bytes(tensors[int(name)])
            digest.update(data)
            place += data.nbytes
        wrong = place != size or digest.hexdigest() != metadata["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise _damaged(path, "its header can't be read") from error
    if wrong:
        raise _damaged(path, "its bytes are not what was written")
    if metadata["format"] != _FORMAT:
        raise StorageError(f"{path}: its format is {metadata['format']}, not {_FORMAT}: use the version that wrote it")
    return metadata, [tensors[i] for i in range(len(tensors))]


def _tensor(fd: int, entry: Mapping[str, Any], place: int, size: int) -> Tensor:
    """One tensor of the file; memory is taken only for what the file can hold."""
    dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
    if place + math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"a tensor of shape {shape} goes beyond the end of the file")
    tensor = torch.empty(shape, dtype=dtype)
    view, done = _bytes(tensor), 0
    while done < view.nbytes:
        count = os.preadv(fd, [view[done:]], place + done)
        if count == 0:
            raise ValueError("the file ends in a tensor")
        done += count
    return tensor


class Checkpoints:
    """The newest few checkpoints of a run, in a folder.

    Attributes:
        damaged: what was wrong with each checkpoint that `newest` had to pass over, by its file.

    Args:
        folder: where they are; made where there is none.
        keep: how many to keep, so that a damaged one does not end the run.
        allow: as for `load`.
    """

    def __init__(self, folder: str | Path, keep: int = 2, *, allow: Sequence[type] = ()) -> None:
        if keep < 1:
            raise UsageError(f"Checkpoints(keep={keep}) would keep none: pass 1 or more")
        self.folder, self.keep, self.allow = Path(folder), keep, tuple(allow)
        self.damaged: dict[Path, StorageError] = {}
        make_folder(self.folder)

    def turns(self) -> list[int]:
        """The turns of all checkpoints that are there, whole or not, oldest first."""
        return sorted(int(match[1]) for each in self.folder.iterdir() if (match := _NAME.fullmatch(each.name)))

    def write(self, turn: int, state: Any, meta: Mapping[str, Any] | None = None) -> None:
        """Write the checkpoint of a turn, then delete those before it that are too many."""
        for left_over in self.folder.glob(f"*{_PART}"):
            remove(left_over)
        _save(self._path(turn), state, meta, turn)
        for older in [each for each in self.turns() if each <= turn][: -self.keep]:
            remove(self._path(older))

    def newest(self, at_most: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that is whole, None where there is none yet.

        Where there are some and none of them is whole it is a `StorageError`: a run never silently begins again.

        Args:
            at_most: pass over those of later turns.
        """
        turns = [turn for turn in self.turns() if at_most is None or turn <= at_most]
        for turn in reversed(turns):
            path = self._path(turn)
            try:
                found = load(path, allow=self.allow)
                if found.turn != turn:
                    raise _damaged(path, f"it is the checkpoint of turn {found.turn}, under another name")
            except StorageError as error:
                self.damaged[path] = error
            else:
                return found
        if turns:
            told = "; ".join(str(self.damaged[self._path(turn)]) for turn in reversed(turns))
            raise StorageError(f"{self.folder}: none of {len(turns)} checkpoints can be used: {told}")
        return None

    def _path(self, turn: int) -> Path:
        return self.folder / f"checkpoint-{turn:012d}.safetensors"
