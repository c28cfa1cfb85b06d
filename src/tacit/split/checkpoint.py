"""What a party needs to go on from a turn, in one file that is whole or is not there at all."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from tacit.disk import Buffer, make_folder, remove, replaced, storing, write_at
from tacit.errors import StorageError, UsageError

_FORMAT = "tacit-checkpoint-1"
_NAME = re.compile(r"checkpoint-(\d{12})\.safetensors")
_DIGEST = b'"sha256":"'  # the digest stands behind it, and as zeros in what it covers
_ZEROS = b"0" * 64
_DEEPEST = 100  # that a tree may be nested


@dataclass(frozen=True)
class Checkpoint:
    """What was saved."""

    state: Any  # the tree, with plain dicts in the place of other mappings and new tensors
    meta: Mapping[str, Any]  # what was said about it
    turn: int | None = None  # the turn that it belongs to, where `Checkpoints` wrote it


def save(path: str | Path, state: Any, meta: Mapping[str, Any] | None = None, turn: int | None = None) -> None:
    """Write a checkpoint. It takes the place of an older one of that name only when it is whole and on the disk.

    The file is a valid safetensors file: tensors as such, bit for bit; everything else in its metadata, with a SHA-256
    over every other byte of the file. A full disk is a `StorageError` and leaves the older file as it was.

    The state is a tree of dict (keys str or int), list, tuple, None, bool, int, float, str, bytes, dense tensors and
    frozen dataclasses; meta are a few plain values about it.
    """
    skeleton, tensors = flatten(state)
    about, none = flatten(meta or {}, "meta")
    if none:
        raise UsageError("meta holds a tensor: it is for plain values, put tensors into the state")
    plain = json.dumps({"turn": turn, "meta": about, "state": skeleton}, allow_nan=False)
    named: dict[str, Tensor] = {}
    memory: set[int] = set()
    for number, tensor in enumerate(tensors):
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        place = dense.untyped_storage().data_ptr()
        named[str(number)] = dense.clone() if place in memory else dense  # in a file each has its own
        memory.add(place)
    try:
        raw = safetensors.torch.save(named, {"sha256": _ZEROS.decode(), "format": _FORMAT, "skeleton": plain})
    except KeyError as error:
        raise UsageError(f"a tensor of {error} can't be kept in a checkpoint: convert it") from None
    place = _digest_place(raw)
    parts: list[Buffer] = [memoryview(raw)[:place], _digest(raw, place), memoryview(raw)[place + 64 :]]
    target = Path(path)
    make_folder(target.parent)
    replaced(target, lambda file: write_at(file.fileno(), target, parts, 0))


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint, checked to the last byte, or raise a `StorageError`; never a part of it."""
    path = Path(path)
    with storing(path, "read"):
        header = _checked(path)
        tensors = safetensors.torch.load_file(path)
    skeleton = json.loads(header["skeleton"])
    # Copies lie in torch's own memory, aligned as torch aligns it: the same numbers then give the same results.
    placed = [tensors[str(number)].clone() for number in range(len(tensors))]
    try:
        return Checkpoint(rebuild(skeleton["state"], placed), rebuild(skeleton["meta"], ()), skeleton["turn"])
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from error


def _checked(path: Path) -> dict[str, str]:
    """What the header says, if every byte of the file is what was written."""
    if not path.stat().st_size:
        raise _damaged(path, "it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        place = _digest_place(raw)
        if not place or _digest(raw, place) != raw[place : place + 64]:
            raise _damaged(path, "its bytes are not what was written")
        header: dict[str, str] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    if header["format"] != _FORMAT:
        raise StorageError(f"{path}: its format is {header['format']}, not {_FORMAT}: use the version that wrote it")
    return header


def _digest_place(raw: bytes | mmap.mmap) -> int:
    """Where the digest of a file stands in it, 0 where there is none; in the texts of the header quotes are escaped."""
    place = raw.find(_DIGEST)
    return place + len(_DIGEST) if place >= 0 else 0


def _digest(raw: bytes | mmap.mmap, place: int) -> bytes:
    """Of every byte of a file but the digest itself."""
    with memoryview(raw) as view, view[:place] as before, view[place + 64 :] as behind:
        digest = hashlib.sha256(before)
        digest.update(_ZEROS)
        digest.update(behind)
    return digest.hexdigest().encode()


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(f"{path}: damaged, {what}: use an older checkpoint or a copy of this one")


class Checkpoints:
    """The newest few checkpoints of a run, in a folder: several, so that a damaged one does not end the run."""

    def __init__(self, folder: str | Path, keep: int = 2) -> None:
        if keep < 1:
            raise UsageError(f"Checkpoints(keep={keep}) would keep none: pass 1 or more")
        self.folder, self.keep = Path(folder), keep
        # what was wrong with each checkpoint that `newest` had to pass over, by its file
        self.damaged: dict[Path, StorageError] = {}
        make_folder(self.folder)

    def turns(self) -> list[int]:
        """The turns of all checkpoints that are there, whole or not, oldest first."""
        return sorted(int(match[1]) for each in self.folder.iterdir() if (match := _NAME.fullmatch(each.name)))

    def write(self, turn: int, state: Any, meta: Mapping[str, Any] | None = None) -> None:
        """Write the checkpoint of a turn, then delete those before it that are too many."""
        for left_over in self.folder.glob("*.part"):
            remove(left_over)
        save(self._path(turn), state, meta, turn)
        for older in [each for each in self.turns() if each <= turn][: -self.keep]:
            remove(self._path(older))

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, None where there is none yet.

        Where there are some and none of them is whole it is a `StorageError`: a run never silently begins again.
        """
        turns = self.turns()
        for turn in reversed(turns):
            path = self._path(turn)
            try:
                found = load(path)
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


# --- a tree of plain values, tensors and frozen dataclasses as a JSON skeleton and a list of tensors, and back --------


def flatten(tree: Any, where: str = "state") -> tuple[Any, list[Tensor]]:
    """The skeleton of a tree, fit for JSON, and the tensors that it names by their number.

    None, bool, str and int stand for themselves; everything else is an object with one key that says what it is.
    Numbers are exact: floats are written in hexadecimal.

    >>> flatten({"lr": 0.5, "seen": (1, b"ab")})[0]
    {'dict': [['lr', {'float': '0x1.0000000000000p-1'}], ['seen', {'tuple': [1, {'bytes': '6162'}]}]]}
    """
    tensors: list[Tensor] = []
    return _flatten(tree, where, tensors, _DEEPEST), tensors


def _flatten(tree: Any, where: str, tensors: list[Tensor], depth: int) -> Any:
    if depth == 0:
        raise UsageError(f"{where}: nested more than {_DEEPEST} deep, or within itself: a checkpoint can't hold that")
    kind = type(tree)
    if tree is None or kind in (bool, int, str):
        return tree
    if kind is float:
        return {"float": tree.hex()}
    if kind is bytes:
        return {"bytes": tree.hex()}
    if isinstance(tree, Tensor):
        return _add(tree, where, tensors)
    if kind in (list, tuple, torch.Size):
        inner = [_flatten(each, f"{where}[{i}]", tensors, depth - 1) for i, each in enumerate(tree)]
        return {"list" if kind is list else "tuple": inner}
    if isinstance(tree, Mapping):
        for key in tree:
            if type(key) not in (str, int):
                raise UsageError(f"{where}: a key is a {type(key).__name__}, {key!r}: a checkpoint's are str or int")
        return {"dict": [[key, _flatten(one, f"{where}[{key!r}]", tensors, depth - 1)] for key, one in tree.items()]}
    if is_dataclass(tree) and _frozen(kind):
        inner_fields = {
            each.name: _flatten(getattr(tree, each.name), f"{where}.{each.name}", tensors, depth - 1)
            for each in fields(tree)
        }
        return {"dataclass": _name(kind), "fields": inner_fields}
    raise UsageError(
        f"{where} is a {kind.__module__}.{kind.__qualname__}: a checkpoint holds None, bool, int, float, str, bytes, "
        "tensors, lists, tuples, dicts and frozen dataclasses; convert it to one of them"
    )


def _add(tensor: Tensor, where: str, tensors: list[Tensor]) -> dict[str, Any]:
    """A tensor by its number, with the order of its axes in memory where that is not the usual one.

    Products of matrices round differently for another order, so a run that goes on needs the same one.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise UsageError(
            f"{where} is a tensor of layout {tensor.layout} on {tensor.device}: pass a dense one with data"
        )
    tensors.append(tensor)
    strides = torch.empty_like(tensor, device="meta").stride()
    usual = torch.empty(tensor.shape, device="meta").stride()
    return {"tensor": len(tensors) - 1} | ({} if strides == usual else {"strides": list(strides)})


def rebuild(skeleton: Any, tensors: Sequence[Tensor]) -> Any:
    """The tree of a skeleton that `flatten` gave. Dataclasses are made without calling anything of theirs."""
    if not isinstance(skeleton, dict):
        return skeleton
    kind, value = next(iter(skeleton.items()))
    if kind == "float":
        return float.fromhex(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "tensor":
        tensor, strides = tensors[value], skeleton.get("strides")
        if strides is None:
            return tensor
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    if kind == "list":
        return [rebuild(each, tensors) for each in value]
    if kind == "tuple":
        return tuple(rebuild(each, tensors) for each in value)
    if kind == "dict":
        return {key: rebuild(each, tensors) for key, each in value}
    if kind == "dataclass":
        inner = {name: rebuild(each, tensors) for name, each in skeleton["fields"].items()}
        return _make(_find(value), inner)
    raise StorageError(f"the checkpoint holds a {kind!r}, which this version does not know: use the one that wrote it")


def _make(cls: type, values: dict[str, Any]) -> Any:
    names = {each.name for each in fields(cls)}
    if names != set(values):
        raise StorageError(
            f"{_name(cls)} has the fields {sorted(names)}, the checkpoint's has {sorted(values)}: it was written by "
            "another version; go on with that one"
        )
    made: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _find(name: str) -> type:
    """The dataclass of this name, if it is one that a checkpoint may name: of a module of ours, imported already."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) if module.split(".")[0] == "tacit" else None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not is_dataclass(found) or _name(found) != name or not _frozen(found):
        raise StorageError(
            f"the checkpoint names the class {name}: no frozen dataclass of a module of Tacit that is imported; import "
            "it first"
        )
    return found


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _frozen(cls: Any) -> bool:
    return bool(cls.__dataclass_params__.frozen)
