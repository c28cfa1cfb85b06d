"""Small facts between two parties that align: exactly the fields that are expected, each when it is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.wire.codec import read_control
from tacit.wire.line import plain, refused_by

_PULSE = 0.2  # seconds between two looks at what else may have happened


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


def receive(link: Link, patience: float, missing: str, look: Callable[[], None] = lambda: None) -> Message:
    """The next message; a refusal is raised. `look`, called now and then, raises where something else has failed."""
    end = time.monotonic() + patience
    while True:
        message = link.recv(timeout=min(_PULSE, max(0.0, end - time.monotonic())))
        look()
        if message is not None and message.kind == "refusal":
            raise refused_by(message, link.peer)
        if message is not None:
            return message
        if time.monotonic() >= end:
            raise LinkError(f"{link.peer} {missing}")


def expect(link: Link, kind: str, step: int, patience: float) -> Message:
    """The next message, which must be this one and come within so many seconds."""
    missing = f"sent no {kind} {step} for {patience:g} s: see how it fares there, and align again"
    message = receive(link, patience, missing)
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
