"""How the bytes of a ledger lie: small records, each bound by a digest to all that stand before it.

::

    file      magic 8 | version 4 | 0 4 | check of the secret 16 | digest of all this 16
    answer    length 4 | kind 1 | form 1 | event 2 | run 4 | step 4 | turn 4 | rows 16 | figures 8 each | chain 16
    fact      length 4 | kind 1 | 0 3 | JSON | chain 16

`length` is that of the whole record. `chain` is BLAKE2b of the chain before and of all of the record before it, so a
record that was changed, left out, added or moved breaks the chain at its place. The mechanism behind an answer and the
names of its figures are long and few: each is a record of its own when it first occurs, and answers give its number.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import StorageError

__all__ = [
    "ANSWERS",
    "HEAD_SIZE",
    "Answer",
    "Frame",
    "begin",
    "damaged",
    "encode_answer",
    "encode_fact",
    "read_answer",
    "read_fact",
    "read_head",
    "records",
]

VERSION = 1
KINDS = ("train", "evaluate", "run", "event", "figures", "epoch", "budget", "told")  # "epoch": of older ledgers
ANSWERS = ("train", "evaluate")
"""The kinds of records that are answers; all others are facts in JSON."""

_MAGIC = b"TACITLDG"
_HEAD = struct.Struct("<8sI4x16s")
_ANSWER = struct.Struct("<IBBHIII16s")
_FACT = struct.Struct("<IB3x")
_CHAIN = 16  # bytes
_LEAST = _FACT.size + _CHAIN
_MOST = 1 << 20  # no record is longer: a length beyond it is no length

HEAD_SIZE = _HEAD.size + _CHAIN
"""Where the first record begins."""


@dataclass(frozen=True)
class Answer:
    """One answered step, as it lies in the file.

    Attributes:
        kind: "train" or "evaluate".
        run: number of the run, in the order in which runs were declared.
        step: of this kind in this run.
        turn: in which it was answered.
        rows: digest of the batch.
        event: number of what was done to the rows.
        form: number of the names of the figures.
        figures: their values.
    """

    kind: str
    run: int
    step: int
    turn: int
    rows: bytes
    event: int
    form: int
    figures: tuple[float, ...]


@dataclass(frozen=True)
class Frame:
    """A record that is what was written: where it begins and ends, its kind, its bytes, and the chain after it."""

    start: int
    end: int
    kind: str
    body: bytes
    chain: bytes


def damaged(path: Path, offset: int, what: str) -> StorageError:
    """The error for bytes that can't be what was written: a count that may be too low is no count."""
    return StorageError(
        f"{path}: damaged at byte {offset}: {what}. What was answered before can't be counted any more: restore the "
        "folder from a copy of the same moment"
    )


def begin(secret_check: bytes) -> tuple[bytes, bytes]:
    """The beginning of a file, and the chain after it."""
    plain = _HEAD.pack(_MAGIC, VERSION, secret_check)
    chain = _digest(b"", plain)
    return plain + chain, chain


def read_head(path: Path, raw: bytes) -> tuple[bytes, bytes]:
    """The check of the secret, and the chain after the beginning of a file."""
    if len(raw) < HEAD_SIZE or not raw.startswith(_MAGIC):
        raise damaged(path, 0, "it does not begin as a ledger does")
    _, version, secret_check = _HEAD.unpack_from(raw)
    if version != VERSION:
        raise StorageError(
            f"{path}: written in version {version} of the ledger's format, this is version {VERSION}: go on with the "
            "version of Tacit that wrote it"
        )
    chain = raw[_HEAD.size : HEAD_SIZE]
    if _digest(b"", raw[: _HEAD.size]) != chain:
        raise damaged(path, 0, "its beginning is not what was written")
    return secret_check, chain


def encode_answer(answer: Answer, chain: bytes) -> tuple[bytes, bytes]:
    """A record, and the chain after it."""
    length = _ANSWER.size + 8 * len(answer.figures) + _CHAIN
    fixed = _ANSWER.pack(
        length, KINDS.index(answer.kind), answer.form, answer.event, answer.run, answer.step, answer.turn, answer.rows
    )
    return _closed(fixed + struct.pack(f"<{len(answer.figures)}d", *answer.figures), chain)


def read_answer(body: bytes) -> Answer:
    """What `encode_answer` was given, from a frame's body."""
    _, kind, form, event, run, step, turn, rows = _ANSWER.unpack_from(body)
    figures = struct.unpack_from(f"<{(len(body) - _ANSWER.size) // 8}d", body, _ANSWER.size)
    return Answer(KINDS[kind], run, step, turn, rows, event, form, figures)


def encode_fact(kind: str, fact: Mapping[str, Any] | Sequence[Any], chain: bytes) -> tuple[bytes, bytes]:
    """A record of another kind, and the chain after it."""
    text = json.dumps(fact, separators=(",", ":"), sort_keys=True).encode()
    return _closed(_FACT.pack(_FACT.size + len(text) + _CHAIN, KINDS.index(kind)) + text, chain)


def read_fact(body: bytes) -> Any:
    """What `encode_fact` was given, from a frame's body."""
    return json.loads(body[_FACT.size :])


def records(data: bytes | memoryview, start: int, chain: bytes) -> Iterator[Frame]:
    """The records in these bytes, as far as they are whole and follow each other.

    Args:
        data: the bytes.
        start: where they lie in the file.
        chain: as it is before the first of them.
    """
    view, place = memoryview(data), 0
    while place + _LEAST <= len(view):
        length = int.from_bytes(view[place : place + 4], "little")
        kind, end = view[place + 4], place + length
        if not _LEAST <= length <= _MOST or end > len(view) or kind >= len(KINDS):
            return
        body = bytes(view[place : end - _CHAIN])
        chain = _digest(chain, body)
        if chain != view[end - _CHAIN : end]:
            return
        yield Frame(start + place, start + end, KINDS[kind], body, chain)
        place = end


def _closed(body: bytes, chain: bytes) -> tuple[bytes, bytes]:
    after = _digest(chain, body)
    return body + after, after


def _digest(chain: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(chain + body, digest_size=_CHAIN, person=b"tacit ledger").digest()
