"""Small messages of plain values: a JSON object as bytes in a uint8 tensor, for handshakes, refusals and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch

from tacit.contracts import Message
from tacit.errors import ProtocolError, UsageError
from tacit.wire._limits import AtMost, Limit

__all__ = ["CONTROL", "control", "read_control"]

LARGEST = 64 * 1024
_DEPTH = 16

CONTROL = Limit(torch.uint8, (AtMost(LARGEST),))
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
    if len(text) > LARGEST:
        raise UsageError(f"{kind} of step {step}: {len(text)} bytes of JSON: {LARGEST} are the most that one may have")
    return Message(step, kind, torch.frombuffer(bytearray(text), dtype=torch.uint8), b"")


def read_control(message: Message) -> dict[str, Any]:
    """The object that a message carries; a `ProtocolError` where it carries none, or one that is not plain."""
    what, payload = f"{message.kind} of step {message.step}", message.payload
    if payload.dtype is not torch.uint8 or payload.ndim != 1 or len(payload) > LARGEST:
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
    if depth > _DEPTH:
        return f"values are nested more than {_DEPTH} deep"
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
