"""Small facts between two parties that align: a JSON object as bytes, with exactly the fields that are expected."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import torch

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError

__all__ = ["decoded", "expect", "raise_refusal", "told", "unhex"]

_LONGEST = 1 << 20


def told(kind: str, step: int, fields: Mapping[str, Any]) -> Message:
    """A message of these fields."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return Message(step, kind, torch.frombuffer(bytearray(text), dtype=torch.uint8), b"")


def decoded(message: Message, fields: Mapping[str, type]) -> dict[str, Any]:
    """The fields of a message; one that is missing, unknown, doubled or of another type is refused by its name."""
    what = f"{message.kind} {message.step}"
    payload = message.payload
    if payload.dtype != torch.uint8 or payload.ndim != 1 or len(payload) > _LONGEST:
        raise ProtocolError(f"{what} is {payload.dtype} {tuple(payload.shape)}: expected a line of JSON as bytes")
    try:
        found = json.loads(payload.numpy().tobytes(), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{what} is not JSON ({error}): the peer runs another protocol") from error
    if not isinstance(found, list) or not all(isinstance(pair, tuple) for pair in found):
        raise ProtocolError(f"{what} is no JSON object: the peer runs another protocol")
    if sorted(name for name, _ in found) != sorted(fields):
        names = _plain(", ".join(sorted(name for name, _ in found)) or "none", 200)
        raise ProtocolError(f"{what} has the fields {names}, expected {', '.join(sorted(fields))}: compare versions")
    for name, value in found:
        if type(value) is not fields[name]:
            raise RefusedError(name, f"{what}: {name} is a {type(value).__name__}, expected {fields[name].__name__}")
    return dict(found)


def expect(link: Link, kind: str, step: int, patience: float) -> Message:
    """The next message, which must be this one and come within so many seconds."""
    end = time.monotonic() + patience
    message = link.recv(timeout=patience)
    while message is None and time.monotonic() < end:
        message = link.recv(timeout=max(0.0, end - time.monotonic()))
    if message is None:
        raise LinkError(
            f"{link.peer} sent no {kind} {step} for {patience:g} s: see how it fares there, and align again"
        )
    raise_refusal(link.peer, message)
    if (message.kind, message.step) != (kind, step):
        raise ProtocolError(
            f"expected {kind} {step} from {link.peer}, got {message.kind} {message.step}: the two are not at the same "
            "point; start both anew"
        )
    return message


def raise_refusal(peer: str, message: Message) -> None:
    """Where the peer says that it will not go on, say so here as well, about the same field.

    The peer's words end on a terminal and in a log: what would move a cursor there or begin a new line becomes "?".
    """
    if message.kind != "refusal":
        return
    try:
        said = json.loads(message.payload.numpy().tobytes()[:_LONGEST])
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    reason = said.get("reason", said.get("message", "without a reason"))
    raise RefusedError(_plain(said.get("field", "refusal"), 100), f"{peer} refused to go on: {_plain(reason, 2000)}")


def _plain(words: object, most: int) -> str:
    """At most so many characters of what a peer said, each of which only shows."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(words)[:most])


def unhex(name: str, text: str, size: int) -> bytes:
    """Bytes from their lower-case hex form, of exactly this size."""
    if len(text) != 2 * size or not set(text) <= set("0123456789abcdef"):
        raise RefusedError(name, f"{name} is not {size} bytes in hex: the peer runs another protocol")
    return bytes.fromhex(text)
