"""Small facts between two parties that align: exactly the fields that are expected, each when it is due."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.wire.codec import read_control
from tacit.wire.line import plain, refused_by

__all__ = ["decoded", "expect", "unhex"]


def decoded(message: Message, fields: Mapping[str, type]) -> dict[str, Any]:
    """The fields of a message; one that is missing, unknown, doubled or of another type is refused by its name."""
    what, found = f"{message.kind} {message.step}", read_control(message)
    if set(found) != set(fields):
        names = plain(", ".join(sorted(found)) or "none", 200)
        raise ProtocolError(f"{what} has the fields {names}, expected {', '.join(sorted(fields))}: compare versions")
    for name, value in found.items():
        if type(value) is not fields[name]:
            raise RefusedError(name, f"{what}: {name} is a {type(value).__name__}, expected {fields[name].__name__}")
    return found


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
    if message.kind == "refusal":
        raise refused_by(message, link.peer)
    if (message.kind, message.step) != (kind, step):
        raise ProtocolError(
            f"expected {kind} {step} from {link.peer}, got {message.kind} {message.step}: the two are not at the same "
            "point; start both anew"
        )
    return message


def unhex(name: str, text: str, size: int) -> bytes:
    """Bytes from their lower-case hex form, of exactly this size."""
    if len(text) != 2 * size or not set(text) <= set("0123456789abcdef"):
        raise RefusedError(name, f"{name} is not {size} bytes in hex: the peer runs another protocol")
    return bytes.fromhex(text)
