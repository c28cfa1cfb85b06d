"""A tree of plain values, tensors and frozen dataclasses as a JSON skeleton and a list of tensors, and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.errors import StorageError, UsageError

__all__ = ["flatten", "rebuild"]

_DEEPEST = 100


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
        return {"dict": [_item(key, value, where, tensors, depth) for key, value in tree.items()]}
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


def _item(key: Any, value: Any, where: str, tensors: list[Tensor], depth: int) -> list[Any]:
    if type(key) not in (str, int):
        raise UsageError(f"{where}: a key is a {type(key).__name__}, {key!r}: a checkpoint's keys are str or int")
    return [key, _flatten(value, f"{where}[{key!r}]", tensors, depth - 1)]


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


def rebuild(skeleton: Any, tensors: Sequence[Tensor], allow: Sequence[type] = ()) -> Any:
    """The tree of a skeleton. Dataclasses are made without calling anything of theirs.

    Args:
        skeleton: what `flatten` gave.
        tensors: the tensors, in its order.
        allow: dataclasses that it may name besides those of Tacit's modules that are imported already.
    """
    if not isinstance(skeleton, dict):
        return skeleton
    kind, value = next(iter(skeleton.items()))
    if kind == "float":
        return float.fromhex(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "tensor":
        return _ordered(tensors[value], skeleton.get("strides"))
    if kind == "list":
        return [rebuild(each, tensors, allow) for each in value]
    if kind == "tuple":
        return tuple(rebuild(each, tensors, allow) for each in value)
    if kind == "dict":
        return {key: rebuild(each, tensors, allow) for key, each in value}
    if kind == "dataclass":
        inner = {name: rebuild(each, tensors, allow) for name, each in skeleton["fields"].items()}
        return _make(_find(value, allow), inner)
    raise StorageError(f"the checkpoint holds a {kind!r}, which this version does not know: use the one that wrote it")


def _ordered(tensor: Tensor, strides: list[int] | None) -> Tensor:
    if strides is None:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


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


def _find(name: str, allow: Sequence[type]) -> type:
    """The dataclass of this name, if it is one that a checkpoint may name."""
    for cls in allow:
        if _name(cls) == name:
            return cls
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) if module.split(".")[0] == "tacit" else None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not is_dataclass(found) or _name(found) != name or not _frozen(found):
        raise StorageError(
            f"the checkpoint names the class {name}: no frozen dataclass of a module of Tacit that is imported; import "
            "it first, or pass it as allow=(...) if you trust it"
        )
    return found


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _frozen(cls: Any) -> bool:
    return bool(cls.__dataclass_params__.frozen)
