"""The same example in another run: keys that know an id again and tell nobody which one it is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.arrays import numbers
from tacit.align.ids import read_ids
from tacit.disk import replaced
from tacit.errors import StorageError, UsageError

Keys = NDArray[np.uint64]  # one for each aligned row, in the common order

_SLICE = 1 << 20  # ids that are hashed at a time


def keys_of(ids: pl.DataFrame | pl.Series | Sequence[str], secret: bytes) -> Keys:
    """A key for each id of the aligned rows, in their order: of a keyed hash, so that no id can be tried.

    Ids are brought to the one form that alignment gives them, so an id is known again whatever type it is stored as; a
    row without an id, or two with the same one, are refused, because alignment has left them out. Among a hundred
    million ids the chance that any two share a key is 1 in 3,700; such two count as one example, which is then counted
    too often, not too rarely.

    >>> table = pl.DataFrame({"id": [7, 8, 9]})
    >>> bool((keys_of(table, b"secret") == keys_of(["7", "8", "9"], b"secret")).all())
    True
    """
    if not secret:
        raise UsageError("keys_of: the secret is empty, so that anybody could try ids: pass the ledger's own")
    if isinstance(ids, pl.Series):
        ids = ids.to_frame()
    table = ids if isinstance(ids, pl.DataFrame) else pl.DataFrame({"id": list(ids)}, schema={"id": pl.String})
    state = hashlib.blake2b(key=hashlib.sha256(secret).digest(), digest_size=8, person=b"tacit ledger id")
    found = bytearray()
    for part in table.iter_slices(_SLICE):
        hashes = read_ids(part, part.columns, unique=True)
        if hashes.report.missing:
            raise UsageError(f"keys_of: {hashes.report.missing} rows have no id: pass the aligned rows alone")
        found += digests(hashes.hashes, state)
    return np.frombuffer(bytes(found), np.dtype("<u8")).astype(np.uint64)


def digests(rows: NDArray[np.uint8], state: Any) -> bytearray:
    """What a keyed hash, given before any row, makes of each row of bytes, one after the other.  (rows, bytes)"""
    found, raw, size = bytearray(), np.ascontiguousarray(rows).reshape(-1).data, rows.shape[1]
    for place in range(0, len(raw), size):
        hashed = state.copy()
        hashed.update(raw[place : place + size])
        found += hashed.digest()
    return found


def digest_of(keys: Keys | None) -> str:
    """Names a run's keys; empty where it has none."""
    if keys is None:
        return ""
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise UsageError(f"keys are {keys.dtype} {keys.shape}: pass what keys_of gives, one uint64 for each row")
    return hashlib.sha256(np.ascontiguousarray(keys).data).hexdigest()


def store_keys(folder: Path, keys: Keys, digest: str) -> None:
    """Keep a run's keys, under the name of their digest: runs over the same rows share a file."""
    path = _path(folder, digest)
    if not path.exists():
        replaced(path, lambda file: np.save(file, np.ascontiguousarray(keys)))


def load_keys(folder: Path, digest: str, *, check: bool = False) -> Keys:
    """A run's keys, from disk as they are used; `check` reads them all, and sees that they are what was written."""
    path = _path(folder, digest)
    try:
        keys: Keys = numbers(path, "uint64")
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, f"can't be read ({error})") from None
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise _damaged(path, f"has {keys.dtype} {keys.shape}, not one key for each row")
    if check and digest_of(keys) != digest:
        raise _damaged(path, "has changed since it was written")
    return keys


def _path(folder: Path, digest: str) -> Path:
    return folder / f"keys-{digest[:16]}.npy"


def _damaged(path: Path, why: str) -> StorageError:
    return StorageError(f"{path} {why}: without it examples of other runs are not known again; bring it back as it was")
