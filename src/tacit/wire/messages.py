"""What may cross a wire at all, what a receiver allows of it, and small messages of plain values.

A small message is a JSON object as bytes in a uint8 tensor: handshakes, refusals and figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import Message
from tacit.errors import ProtocolError, UsageError

__all__ = [
    "CONTROL", "DEPTH", "DIMENSIONS", "DTYPES", "KINDS", "LONGEST", "AtMost", "Limit", "control", "read_control",
    "short_name", "wrong_numbers",
]  # fmt: skip

KINDS = (
    "hello", "refusal", "commitment", "reveal", "points", "matches", "embedding", "gradient", "evaluation", "figures",
    "done", "flips", "acknowledgement", "groups", "sums", "ciphertexts", "batch",
)  # fmt: skip
"""The kinds of messages. The number on the wire is the place here, so new ones are added at the end."""

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64)
"""The dtypes that may cross a wire; the number on the wire is the place here."""

DIMENSIONS = 4
"""The most dimensions that a tensor on the wire may have."""


@dataclass(frozen=True)
class AtMost:
    """A dimension that may be anything up to `count`."""

    count: int


@dataclass(frozen=True)
class Limit:
    """What a message of a kind may be.

    Attributes:
        dtype: its one dtype.
        shape: its dimensions, each an exact number or `AtMost(n)`.
        largest: no number in it may lie further from 0; all must be finite in any case.
    """

    dtype: torch.dtype
    shape: tuple[int | AtMost, ...]
    largest: float = math.inf

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or len(self.shape) > DIMENSIONS:
            raise UsageError(f"{self}: no such message can be sent: up to 4 dimensions of one of {DTYPES}")
        largest = [side.count if isinstance(side, AtMost) else side for side in self.shape]
        if min(largest, default=0) < 0 or math.prod(max(side, 1) for side in largest) >= 2**59:
            raise UsageError(f"{self}: no memory holds that: set each dimension to what a message really has at most")

    def fits(self, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this dtype and shape may come."""
        return (
            dtype is self.dtype
            and len(shape) == len(self.shape)
            and all(
                side <= most.count if isinstance(most, AtMost) else side == most
                for side, most in zip(shape, self.shape, strict=True)
            )
        )

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
    """A dtype's name as people say it.

    >>> short_name(torch.float32)
    'float32'
    """
    return str(dtype).removeprefix("torch.")


# --- small messages of plain values -----------------------------------------------------------------------------------


LONGEST = 64 * 1024
"""Bytes of the longest small message."""

DEPTH = 16
"""How deep its values may be nested."""

CONTROL = Limit(torch.uint8, (AtMost(LONGEST),))
"""What a message that `control` makes may be."""


def control(kind: str, step: int, mapping: Mapping[str, Any]) -> Message:
    """A message that carries a small object.

    Args:
        kind: of the message.
        step: of the message.
        mapping: plain values only: str, whole numbers of 64 bits, finite floats, bool, None, lists and dicts of them.

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
        return None if _encodes(value) else f"{value!r} has half a character"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "a whole number has more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not finite"
    return f"a {type(value).__name__} is no plain value"


def _first(values: Any, depth: int) -> str | None:
    return next((wrong for value in values if (wrong := _not_plain(value, depth + 1))), None)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
