"""What a party never forgets, in one SQLite file of its folder: which ids were aligned, and what was sent in which run.

Ids are in it as keyed hashes: without the party's secret none can be tried. Records are bound to each other and sealed
with that secret; how many of a kind there are is counted apart from the folder (`tacit.company.aligned.counted_facts`).
The format has a version; every later version of Tacit reads this one and those before it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import StorageError
from tacit.labels.records import Keys, keyed, sqlite_errors

FILE = "facts.sqlite"
"""In the party's folder."""

_VERSION = 2
_CHUNK = 1 << 16  # keys that lie together
_TABLES = """
CREATE TABLE owner (said TEXT NOT NULL);
CREATE TABLE alignments (id TEXT PRIMARY KEY, time TEXT NOT NULL, fields TEXT NOT NULL, seal TEXT NOT NULL);
CREATE TABLE aligned (
    alignment TEXT NOT NULL, chunk INTEGER NOT NULL, keys BLOB NOT NULL, PRIMARY KEY (alignment, chunk));
CREATE TABLE runs (run TEXT PRIMARY KEY, alignment TEXT NOT NULL);
CREATE TABLE records (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, fields TEXT NOT NULL, seal TEXT NOT NULL);
"""

SPLIT_RUN, ALIGNMENT, PREDICTION = "split run", "alignment", "prediction"
"""Kinds of records: something left in a split run; somebody aligned with this party; something left, or was asked for,
in a prediction or service."""


@dataclass(frozen=True)
class Alignment:
    """One alignment, as it is written down."""

    id: str  # digest of all parties' commitments: the name of this alignment
    parties: tuple[str, ...]  # that took part, this one included, sorted
    columns: tuple[str, ...]  # that name a row here
    count: int  # rows that all parties have
    whole: int  # usable ids of the table that was aligned; the common ones are some of them
    seed: int  # draws the batches; nobody chose it
    digest: str  # keyed digest of the common ids in their order, equal on all sides
    tested: int | None = None  # the last rows, for testing; None where the contract's share says how many
    test: str = ""  # what decided which these are; empty where chance did


@dataclass(frozen=True)
class SplitRun:
    """A split training of which something left: about all rows of its alignment, as often as it has epochs."""

    contract: str  # digest of the contract, which makes it this run and no other
    run: str  # what the contract calls it
    alignment: str  # name of the alignment
    label: str | None  # the column; None at a feature party, and where the party trains from Python without one
    protection: str  # as it is spelled
    epochs: int  # that are planned


class Facts:
    """See this module. Every call opens the file and closes it again: several commands may run at once."""

    def __init__(self, path: Path, secret: bytes) -> None:
        self.path = path
        self._secret = hmac.digest(secret, b"tacit facts 1", "sha256")
        self._said = hmac.digest(self._secret, b"whose facts these are", "sha256").hex()

    def keys_of(self, hashes: NDArray[np.uint8]) -> Keys:
        """By what ids are known here, from their hashes.  (ids, 16)"""
        return keyed(self._secret, hashes, "aligned")

    def add(self, alignment: Alignment, keys: Keys) -> None:
        """Write an alignment down: the keys of the common ids first, in their order, then those of all other ids."""
        fields = json.dumps(asdict(alignment), sort_keys=True)
        with self._open(write=True) as db:
            seal = self._seal(fields, keys)
            db.execute("INSERT INTO alignments VALUES (?, ?, ?, ?)", (alignment.id, _now(), fields, seal))
            for at, start in enumerate(range(0, len(keys), _CHUNK)):
                part = keys[start : start + _CHUNK].tobytes()
                db.execute("INSERT INTO aligned VALUES (?, ?, ?)", (alignment.id, at, part))
            self._forget_others(db, alignment)

    def latest(self, parties: Sequence[str], columns: Sequence[str] | None, test: str = "") -> Alignment | None:
        """The newest alignment of these parties by these columns, or by any if none are given, with these test rows."""
        with self._open() as db:
            every = db.execute("SELECT fields FROM alignments ORDER BY rowid DESC").fetchall()
        found = [_read(fields) for (fields,) in every]
        alike = (each for each in found if (each.parties, each.test) == (tuple(sorted(parties)), test))
        return next((each for each in alike if columns is None or each.columns == tuple(columns)), None)

    def of_run(self, run: str) -> Alignment | None:
        """The alignment that a run was begun with, if it was begun."""
        asked = "SELECT fields FROM runs JOIN alignments ON id = alignment WHERE run = ?"
        with self._open() as db:
            found = db.execute(asked, (run,)).fetchone()
        return None if found is None else _read(found[0])

    def runs(self) -> set[str]:
        """All runs that have begun."""
        with self._open() as db:
            return {run for (run,) in db.execute("SELECT run FROM runs")}

    def begin(self, run: str, alignment: Alignment) -> None:
        """From now on a run has this alignment, whatever is aligned later; where it has one already, that stays."""
        with self._open(write=True) as db:
            db.execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", (run, alignment.id))

    def enter(self, split: SplitRun) -> None:
        """Write down that something of a split run leaves; what is written of it already stays."""
        with self._open(write=True) as db:
            if all(fields["contract"] != split.contract for fields in self._records(db, SPLIT_RUN)):
                self._append(db, SPLIT_RUN, asdict(split))

    def split_runs(self) -> list[SplitRun]:
        """All of which something left, oldest first."""
        return [_split_run(fields) for fields in self.records(SPLIT_RUN)]

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Add a record; it is on the disk when this returns."""
        with self._open(write=True) as db:
            self._append(db, kind, fields)

    def records(self, kind: str, *, dated: bool = False) -> list[dict[str, Any]]:
        """All records of a kind, oldest first; a `StorageError` where any record is not what was written.

        Dated ones have under `written` when that was.
        """
        with self._open() as db:
            return self._records(db, kind, dated=dated)

    def count(self, kind: str) -> int:
        """How many records of a kind there are."""
        with self._open() as db:
            return int(db.execute("SELECT count(*) FROM records WHERE kind = ?", (kind,)).fetchone()[0])

    def keys(self, alignment: Alignment) -> Keys:
        """The keys that were added with an alignment.  (whole, 16)"""
        with self._open() as db:
            chunks = db.execute("SELECT keys FROM aligned WHERE alignment = ? ORDER BY chunk", (alignment.id,))
            keys = np.frombuffer(b"".join(part for (part,) in chunks), np.uint8)
            found = db.execute("SELECT fields, seal FROM alignments WHERE id = ?", (alignment.id,)).fetchone()
        keys = keys[: len(keys) // 16 * 16].reshape(-1, 16)
        if len(keys) != alignment.whole or found is None or self._seal(found[0], keys) != found[1]:
            raise StorageError(
                f"{self.path}: the alignment {alignment.id[:8]} is not as it was written down: bring the file back, or "
                "run `tacit align --again` on all sides"
            )
        return keys

    def _seal(self, fields: str, keys: Keys) -> str:
        return hmac.digest(self._secret, fields.encode() + hashlib.sha256(keys.tobytes()).digest(), "sha256").hex()

    def _append(self, db: sqlite3.Connection, kind: str, fields: Mapping[str, Any]) -> None:
        last = db.execute("SELECT number, seal FROM records ORDER BY number DESC LIMIT 1").fetchone() or (0, "")
        text = json.dumps({**fields, "written": _now()}, sort_keys=True)
        seal = self._record_seal(last[0] + 1, kind, text, last[1])
        db.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (last[0] + 1, kind, text, seal))

    def _records(self, db: sqlite3.Connection, kind: str, *, dated: bool = False) -> list[dict[str, Any]]:
        found, before = [], ""
        rows = db.execute("SELECT number, kind, fields, seal FROM records ORDER BY number")
        for due, (number, its, text, seal) in enumerate(rows, start=1):
            if number != due or not hmac.compare_digest(seal, self._record_seal(number, its, text, before)):
                raise StorageError(
                    f"{self.path}: record {due} is gone, or not as it was written: bring the file back from a backup"
                )
            before = seal
            if its == kind:
                found.append(json.loads(text))
        return [{name: value for name, value in one.items() if dated or name != "written"} for one in found]

    def _record_seal(self, number: int, kind: str, text: str, before: str) -> str:
        said = json.dumps(["record", number, kind, text, before])
        return hmac.digest(self._secret, said.encode(), "sha256").hex()

    def _forget_others(self, db: sqlite3.Connection, newest: Alignment) -> None:
        """Of the same parties and columns only the newest alignment is asked for, and those of runs that have begun."""
        used = {id for (id,) in db.execute("SELECT alignment FROM runs")} | {newest.id}
        used |= {fields["alignment"] for fields in self._records(db, SPLIT_RUN)}
        for (fields,) in db.execute("SELECT fields FROM alignments").fetchall():
            old = _read(fields)
            alike = (old.parties, old.columns, old.test) == (newest.parties, newest.columns, newest.test)
            if alike and old.id not in used:
                db.execute("DELETE FROM aligned WHERE alignment = ?", (old.id,))
                db.execute("DELETE FROM alignments WHERE id = ?", (old.id,))

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """The file, in one transaction; where there is none it is made to be written, and to be read it is empty."""
        with sqlite_errors(self.path):
            if write:
                self.path.touch(mode=0o600)
            path = self.path if self.path.exists() else ":memory:"
            with closing(sqlite3.connect(path, isolation_level=None, timeout=60.0)) as db:
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("BEGIN IMMEDIATE")
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version > _VERSION:
                    raise StorageError(f"{self.path}: written by a later version of Tacit: go on with that one")
                if not version:
                    for statement in _TABLES.split(";"):
                        db.execute(statement)
                    db.execute("INSERT INTO owner VALUES (?)", (self._said,))
                if db.execute("SELECT said FROM owner").fetchone() != (self._said,):
                    raise StorageError(f"{self.path}: it was begun with another keys/secret: bring that secret back")
                if version == 1:
                    self._from_1(db)
                if version < _VERSION:
                    db.execute(f"PRAGMA user_version = {_VERSION}")
                try:
                    yield db
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")

    def _from_1(self, db: sqlite3.Connection) -> None:
        """Split runs were a table of their own, without seals."""
        db.execute(_TABLES.split(";")[-2])
        asked = "SELECT contract, run, alignment, label, protection, epochs FROM split_runs ORDER BY rowid"
        for row in db.execute(asked).fetchall():
            self._append(db, SPLIT_RUN, asdict(SplitRun(*row)))
        db.execute("DROP TABLE split_runs")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _split_run(fields: Mapping[str, Any]) -> SplitRun:
    return SplitRun(**{field.name: fields[field.name] for field in dataclass_fields(SplitRun)})


def _read(fields: str) -> Alignment:
    said = json.loads(fields)
    return Alignment(**said | {"parties": tuple(said["parties"]), "columns": tuple(said["columns"])})
