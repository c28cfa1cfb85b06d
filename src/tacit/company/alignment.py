"""What an alignment leaves with a party: two files, and no row is used before both are seen to be what was written.

`rows.npy` says which rows of the party's table are common, in the common order; `alignment.json` says everything else,
with a digest of the rows and one of itself. A row number that has moved would train on other people's labels without
any error, so a file that is torn, edited or from another run is never used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.arrays import numbers
from tacit.align.sources import Source, load
from tacit.disk import replaced, storing
from tacit.errors import StorageError

__all__ = ["FILE", "Aligned", "Source", "read", "store"]

FILE = "alignment.json"
_ROWS = "rows.npy"
_FIELDS = {"run": str, "count": int, "id": str, "seed": int, "digest": str}
_TYPES = _FIELDS | {"rows_sha256": str, "fields_sha256": str}


@dataclass(frozen=True)
class Aligned:
    """What an alignment leaves with one party.

    Attributes:
        run: the contract's run.
        count: rows that all parties have.
        id: digest of all parties' commitments: the name of this alignment.
        seed: draws the batches; nobody chose it.
        digest: keyed digest of the common ids in their order, equal on all sides.
        folder: where the row numbers are kept.
    """

    run: str
    count: int
    id: str
    seed: int
    digest: str
    folder: Path

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row numbers in this party's table, in the common order; read from disk as they are used."""
        path = self.folder / _ROWS
        try:
            rows: NDArray[np.int64] = numbers(path, "int64")
        except (OSError, ValueError, EOFError) as error:
            raise _unusable(path, f"can't be read ({error})") from None
        if rows.dtype != np.int64 or rows.shape != (self.count,):
            raise _unusable(path, f"has {rows.dtype} {rows.shape}, not {self.count} row numbers")
        return rows

    def table(self, source: Source, columns: Sequence[str]) -> pl.DataFrame:
        """These columns of the party's table, the common rows alone, in the common order."""
        return load(source, self.rows, columns)


def store(where: Path, *, run: str, id: str, seed: int, digest: str, rows: NDArray[np.int64]) -> Aligned:
    """Write an alignment down: the row numbers first, then the file that says that they are there.

    Args:
        where: the run's folder.
        run: as in `Aligned`, like all that follow.
        id: the alignment's name.
        seed: of the batches.
        digest: of the common ids.
        rows: row numbers in the party's table, in the common order.
    """
    with storing(where / FILE):
        (where / FILE).unlink(missing_ok=True)
    hashed = hashlib.sha256()
    replaced(where / _ROWS, lambda file: np.save(_Hashed(file, hashed), rows.astype(np.int64, copy=False)))
    aligned = Aligned(run, len(rows), id, seed, digest, where)
    fields = {name: getattr(aligned, name) for name in _FIELDS} | {"rows_sha256": hashed.hexdigest()}
    text = json.dumps({**fields, "fields_sha256": _digest(fields)}, indent=2) + "\n"
    replaced(where / FILE, lambda file: file.write(text.encode()))
    return aligned


def read(where: Path, run: str) -> Aligned:
    """An alignment as it was written down for this run; a `StorageError` where anything of it is not as it was.

    Args:
        where: the run's folder.
        run: the contract's run, which must be the one that was aligned for.
    """
    path, rows = where / FILE, where / _ROWS
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(path, f"can't be read ({error})") from None
    if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _TYPES:
        raise _unusable(path, f"does not have the fields {', '.join(_TYPES)}, each of its kind")
    expected = {name: fields[name] for name in _TYPES if name.endswith("_sha256")}
    if _digest({name: value for name, value in fields.items() if name != "fields_sha256"}) != expected["fields_sha256"]:
        raise _unusable(path, "has changed since it was written")
    if fields["run"] != run:
        raise _unusable(path, f"is that of the run {fields['run']!r}, not of {run!r}")
    try:
        with rows.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unusable(rows, f"can't be read ({error.strerror})") from None
    if digest != expected["rows_sha256"]:
        raise _unusable(rows, "has changed since it was written")
    aligned = Aligned(**{name: fields[name] for name in _FIELDS}, folder=where)
    _ = aligned.rows  # as many as were counted
    return aligned


class _Hashed:
    """A file that hashes what is written to it on the way: what comes back later must be what was meant."""

    def __init__(self, file: IO[bytes], hashed: Any) -> None:
        self._file = file
        self._hashed = hashed

    def write(self, part: bytes) -> int:
        self._hashed.update(part)
        return self._file.write(part)


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _unusable(path: Path, why: str) -> StorageError:
    return StorageError(f"{path} {why}: bring the file back as it was, or run `tacit align --again` on all sides")
