"""A feature party's book: what was sent of which rows, to whom, and what was read of it.

Two versions of one row tell together more than either, and partners can compare notes: so a later release is attacked
together with all embeddings that left before. What is about to leave is entered before.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.disk import make_folder
from tacit.errors import StorageError
from tacit.labels.records import Keys, Places, sqlite_errors, sums_refused

_SOME = 1 << 16  # rows that are read or written at a time
_TABLES = """
CREATE TABLE IF NOT EXISTS shipments (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, partner TEXT NOT NULL,
    version TEXT NOT NULL, form TEXT NOT NULL, rows INTEGER NOT NULL, worst REAL NOT NULL, kind TEXT NOT NULL,
    UNIQUE (run_id, version));
CREATE TABLE IF NOT EXISTS sent (
    key BLOB NOT NULL, version TEXT NOT NULL, codes BLOB NOT NULL, columns BLOB, PRIMARY KEY (key, version)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS additions (version TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID;
"""


Batch = tuple[Keys, NDArray[Any], Keys | None]  # keys of rows, their numbers, and digests of their columns


def version_of(run_id: str, values: NDArray[Any]) -> str:
    """What the book calls these values of a run's rows: other values, or another run, are another version."""
    said = hashlib.sha256(f"{run_id} {values.dtype} {values.shape}".encode())
    said.update(np.ascontiguousarray(values).tobytes())
    return said.hexdigest()[:32]


@dataclass(frozen=True)
class Shipment:
    """An embedding that left."""

    run: str  # the contract's run
    partner: str  # who got it
    version: str  # of it; see `version_of`
    form: str  # how many numbers of a row, in how many cells
    rows: int  # how many
    worst: float  # the most that the audit before release found of any column, 0 to 1
    time: str = ""  # when it was entered


@dataclass(frozen=True)
class Before:
    """What has left of some rows, each version by itself."""

    run_id: str  # of the run that asks: by it the version is known that is about to leave, if it has left before
    embeddings: Mapping[str, NDArray[np.uint8]]  # numbers. (rows, numbers)

    @property
    def versions(self) -> list[str]:
        """All of them."""
        return sorted(self.embeddings)

    def of(self, rows: NDArray[np.intp]) -> Before:
        """The same of some of the rows."""
        return Before(self.run_id, {version: block[rows] for version, block in self.embeddings.items()})

    def besides(self, leaving: NDArray[Any]) -> NDArray[np.uint8] | None:
        """Numbers, all versions side by side, but for the one that is about to leave; None for none."""
        mine = version_of(self.run_id, leaving)
        numbers = [block for version, block in self.embeddings.items() if version != mine]
        return np.concatenate(numbers, axis=1) if numbers else None


class Shipments:
    """See this module."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.path = folder / "book.sqlite"
        self.path.touch(mode=0o600)
        with self._open() as db:
            for statement in _TABLES.split(";"):
                db.execute(statement)
            kept = {name for _, name, *_ in db.execute("PRAGMA table_info(shipments)")}
            if "columns" not in {name for _, name, *_ in db.execute("PRAGMA table_info(sent)")}:
                db.execute("ALTER TABLE sent ADD COLUMN columns BLOB")
        if "kind" not in kept:
            raise StorageError(
                f"{self.path} is of an earlier version, and says too little of what was sent to attack it together "
                "with what follows: keep it elsewhere, and send no second embedding of its rows"
            )
        with self._open() as db:
            others = db.execute("SELECT 1 FROM shipments WHERE kind != 'embedding'").fetchone()
        if others is not None:
            raise sums_refused(self.path)

    def enter(
        self,
        run_id: str,
        keys: Keys,
        shipment: Shipment,
        values: NDArray[Any],
        seen: Collection[str] | None = None,
        columns: Keys | None = None,
    ) -> bool:
        """Write down what is about to leave, values (rows, numbers) of rows with these keys; a version of a run once.

        `columns` are digests of what the rows' columns were, by which `tacit ledger --check` knows them again.
        Whether it may leave: not where something has left of these rows that is in no version that the audit has
        `seen`, as in a run that overlaps with this one; then nothing is entered, and the audit is to be made again.
        None: it does not matter.
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")  # nobody enters anything between the look and the entry
            if _entered(db, run_id, shipment):
                return True
            if seen is not None and _left(db, keys).keys() - {*seen}:
                return False
            _enter(db, run_id, shipment)
            _send(db, shipment, [(keys, values, columns)])
        return True

    def add(self, run_id: str, shipment: Shipment, batches: Iterable[Batch]) -> None:
        """Write down that further rows of a run are about to leave, some at a time, for they may be many; once.

        What has left of a row in this run before, number by number the same, is in the book already.
        """
        same = "s.key = l.key AND s.codes = l.codes AND s.version IN (SELECT version FROM shipments WHERE run = ?2)"
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            if _entered(db, run_id, shipment):
                return
            _enter(db, run_id, shipment)
            _send(db, shipment, batches, f"WHERE NOT EXISTS (SELECT 1 FROM sent s WHERE {same})")

    def extend(
        self, run_id: str, shipment: Shipment, keys: Keys, values: NDArray[np.uint8], columns: Keys | None = None
    ) -> None:
        """Write down that a few more rows are about to leave in a shipment that goes on, as while a party serves.

        What has left of a row in this run before, number by number the same, is in the book already. A row of which
        other numbers left in this shipment goes into the next one, and so on: there are as many as a row has changed.
        """
        same = "key = ?1 AND codes = ?2 AND version IN (SELECT version FROM shipments WHERE run = ?3)"
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            for place, (key, row) in enumerate(zip(keys, values, strict=True)):
                about, digest = (key.tobytes(), row.tobytes()), None if columns is None else columns[place].tobytes()
                if db.execute(f"SELECT 1 FROM sent WHERE {same}", (*about, shipment.run)).fetchone() is None:
                    _add_to_a_shipment(db, run_id, shipment, *about, digest)

    def before(self, keys: Keys, run_id: str) -> Before:
        """What has left of these rows, in this run too.

        Rows of which numbers did not leave have zeros there, and a number more tells them from the others.
        """
        with self._open() as db:
            left = _left(db, keys)
        found = {}
        for version, (at, raw) in left.items():
            values = np.frombuffer(raw, np.uint8).reshape(len(at), -1)
            block = np.zeros((len(keys), 1 + values.shape[1]), np.uint8)
            block[at] = np.concatenate([np.full((len(at), 1), 255, np.uint8), values], axis=1)
            found[version] = block[:, 1:] if len(at) == len(keys) else block
        return Before(run_id, found)

    def all(self) -> Sequence[Shipment]:
        """Everything that left, oldest first."""
        asked = "SELECT run, partner, version, form, rows, worst, time FROM shipments ORDER BY id"
        with self._open() as db:
            return [Shipment(*one) for one in db.execute(asked)]

    def sent(self, run: str) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """Key, numbers and digest of the columns of each row that left in a run, once for each version."""
        asked = "SELECT key, codes, columns FROM sent WHERE version IN (SELECT version FROM shipments WHERE run = ?)"
        with self._open() as db:
            yield from db.execute(asked, (run,))

    def missing(self) -> int:
        """How many rows the book has too few, or too many, of what left in trainings."""
        there = "(SELECT COUNT(*) FROM sent s WHERE s.version = t.version)"
        counted = f"SELECT SUM(ABS(rows - {there})) FROM shipments t WHERE form NOT LIKE '%, for %'"
        with self._open() as db:
            return int(db.execute(counted).fetchone()[0] or 0)

    @property
    def entries(self) -> int:
        """How many things have left, each row that went into one later for itself."""
        counted = "SELECT (SELECT COUNT(*) FROM shipments) + (SELECT COALESCE(SUM(rows), 0) FROM additions)"
        with self._open() as db:
            return int(db.execute(counted).fetchone()[0])

    def versions(self) -> dict[int, int]:
        """Of how many rows so many versions of an embedding have left, by the number of versions."""
        each = "SELECT COUNT(*) n FROM sent GROUP BY key"
        counted = f"SELECT n, COUNT(*) FROM ({each}) GROUP BY n ORDER BY n"
        with self._open() as db:
            return dict(db.execute(counted))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it on the disk, or nothing."""
        with sqlite_errors(self.path), closing(sqlite3.connect(self.path, timeout=60.0)) as db, db:
            db.execute("PRAGMA synchronous = EXTRA")
            yield db


def _add_to_a_shipment(
    db: sqlite3.Connection, run_id: str, shipment: Shipment, key: bytes, codes: bytes, columns: bytes | None
) -> None:
    """Enter a row in the first shipment of this name that has not got the row yet."""
    for number in itertools.count():
        version = shipment.version if not number else version_of(f"{shipment.version} {number}", np.empty(0))
        one = replace(shipment, version=version, rows=0)
        if not _entered(db, run_id, one):
            _enter(db, run_id, one)
        added = db.execute("INSERT OR IGNORE INTO sent VALUES (?, ?, ?, ?)", (key, version, codes, columns)).rowcount
        if added:
            db.execute("UPDATE shipments SET rows = rows + 1 WHERE run_id = ? AND version = ?", (run_id, version))
            more = "INSERT INTO additions VALUES (?, 1) ON CONFLICT (version) DO UPDATE SET rows = rows + 1"
            db.execute(more, (version,))
            return


def _entered(db: sqlite3.Connection, run_id: str, shipment: Shipment) -> bool:
    """Whether a version of a run is in the book already."""
    known = "SELECT 1 FROM shipments WHERE run_id = ? AND version = ?"
    return db.execute(known, (run_id, shipment.version)).fetchone() is not None


def _enter(db: sqlite3.Connection, run_id: str, shipment: Shipment) -> None:
    """What is told of a shipment."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    facts = (shipment.run, shipment.partner, shipment.version, shipment.form, shipment.rows, shipment.worst)
    names = "run_id, time, run, partner, version, form, rows, worst, kind"
    marks = ", ".join("?" * 9)
    db.execute(f"INSERT INTO shipments ({names}) VALUES ({marks})", (run_id, now, *facts, "embedding"))


def _send(db: sqlite3.Connection, shipment: Shipment, batches: Iterable[Batch], which: str = "") -> None:
    """Enter the values of rows, of which some may be left out, in SQL.

    In the order of their keys: in any other each is on another page of a large file, and most of the time goes there.
    """
    db.execute("CREATE TEMP TABLE leaving (key BLOB, codes BLOB, columns BLOB)")
    for keys, values, columns in batches:
        assert len(keys) == len(values)  # what is not in the book must not leave
        for start in range(0, len(keys), _SOME):
            part, size = slice(start, start + _SOME), values[:1].nbytes
            raw, codes = keys[part].tobytes(), values[part].tobytes()
            kept = None if columns is None else columns[part].tobytes()
            each = (
                (raw[at : at + 16], codes[size * at // 16 : size * (at + 16) // 16], kept and kept[at : at + 16])
                for at in range(0, len(raw), 16)
            )
            db.executemany("INSERT INTO temp.leaving VALUES (?, ?, ?)", each)
    about = (shipment.version, shipment.run) if which else (shipment.version,)
    every = f"SELECT key, ?1, codes, columns FROM temp.leaving l {which} ORDER BY key, rowid"
    db.execute(f"INSERT OR IGNORE INTO sent {every}", about)
    db.execute("DROP TABLE temp.leaving")


def _left(db: sqlite3.Connection, keys: Keys) -> dict[str, tuple[NDArray[np.intp], bytes]]:
    """By version what has left of any of these rows: the places of these rows, and the bytes of them all."""
    versions = db.execute("SELECT version FROM shipments ORDER BY id").fetchall()
    place, found = Places(keys) if versions else None, {}
    for (version,) in versions:
        assert place is not None
        sent, rows, raw = db.execute("SELECT key, codes FROM sent WHERE version = ?", (version,)), [], bytearray()
        while some := sent.fetchmany(_SOME):
            at = place.of(key for key, _ in some)
            rows.append(at[at >= 0])
            raw += b"".join(codes for (_, codes), here in zip(some, at.tolist(), strict=True) if here >= 0)
        if raw:
            found[version] = (np.concatenate(rows), bytes(raw))
    return found
