"""A feature party's book: which version of an embedding was sent of which rows, to whom, and what was read of it.

Two versions of one row, sent in two runs, tell together more than either. So the book keeps what was sent, and a later
release is attacked together with all that left before, whoever got it: partners can compare notes. What is about to
leave is entered before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.disk import make_folder
from tacit.errors import StorageError
from tacit.one_shot.records import Keys

__all__ = ["Shipment", "Shipments"]

_TABLES = """
CREATE TABLE IF NOT EXISTS shipments (
    id INTEGER PRIMARY KEY, run_id TEXT UNIQUE NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, partner TEXT NOT NULL,
    version TEXT NOT NULL, form TEXT NOT NULL, rows INTEGER NOT NULL, worst REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sent (
    key BLOB NOT NULL, version TEXT NOT NULL, codes BLOB NOT NULL, PRIMARY KEY (key, version)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Shipment:
    """One embedding that left.

    Attributes:
        run: the contract's run.
        partner: who got it.
        version: of the embedding: a digest of what made it and of its form.
        form: how many numbers of a row, in how many ranks, under how much noise.
        rows: how many.
        worst: the most that the audit before release says of anything, 0 to 1.
        time: when it was entered.
    """

    run: str
    partner: str
    version: str
    form: str
    rows: int
    worst: float
    time: str = ""


class Shipments:
    """See this module.

    Args:
        folder: of the party's embeddings; made where there is none.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.path = folder / "book.sqlite"
        self.path.touch(mode=0o600)
        with self._open() as db:
            for statement in _TABLES.split(";"):
                db.execute(statement)

    def enter(self, run_id: str, keys: Keys, shipment: Shipment, codes: NDArray[np.uint8]) -> None:
        """Write down what is about to leave, codes (rows, width) of rows with these keys; a run is entered once."""
        raw, now = keys.tobytes(), datetime.now(UTC).isoformat(timespec="seconds")
        with self._open() as db:
            one = (shipment.run, shipment.partner, shipment.version, shipment.form, shipment.rows, shipment.worst)
            names = "run_id, time, run, partner, version, form, rows, worst"
            entered = f"INSERT OR IGNORE INTO shipments ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            if db.execute(entered, (run_id, now, *one)).rowcount:
                each = (
                    (raw[16 * place : 16 * place + 16], shipment.version, row.tobytes())
                    for place, row in enumerate(codes)
                )
                db.executemany("INSERT OR IGNORE INTO sent VALUES (?, ?, ?)", each)

    def before(self, keys: Keys, run_id: str) -> NDArray[np.uint8] | None:
        """What has left of these rows in other runs than this one, all versions side by side; None if nothing has.

        Rows of which a version did not leave have zeros there, and a number more tells them from the others.
        """
        place = {key.tobytes(): at for at, key in enumerate(keys)}
        found = []
        with self._open() as db:
            others = db.execute("SELECT DISTINCT version FROM shipments WHERE run_id != ? ORDER BY id", (run_id,))
            for (version,) in others.fetchall():
                sent = db.execute("SELECT key, codes FROM sent WHERE version = ?", (version,))
                mine = [(place[key], codes) for key, codes in sent if key in place]
                if mine:
                    at, codes = zip(*mine, strict=True)
                    block = np.zeros((len(keys), 1 + len(codes[0])), np.uint8)
                    block[list(at), 0] = 255
                    block[list(at), 1:] = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), -1)
                    found.append(block[:, 1:] if len(mine) == len(keys) else block)
        return np.concatenate(found, axis=1) if found else None

    def all(self) -> Sequence[Shipment]:
        """Everything that left, oldest first."""
        asked = "SELECT run, partner, version, form, rows, worst, time FROM shipments ORDER BY id"
        with self._open() as db:
            return [Shipment(*one) for one in db.execute(asked)]

    def versions(self) -> dict[int, int]:
        """Of how many rows so many versions have left, by the number of versions."""
        counted = "SELECT n, COUNT(*) FROM (SELECT COUNT(*) n FROM sent GROUP BY key) GROUP BY n ORDER BY n"
        with self._open() as db:
            return dict(db.execute(counted))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it on the disk, or nothing."""
        try:
            with closing(sqlite3.connect(self.path, timeout=60.0)) as db, db:
                db.execute("PRAGMA synchronous = EXTRA")
                yield db
        except sqlite3.Error as error:
            raise StorageError(
                f"{self.path}: {error}: look at the disk and at who else uses it, then give the same command again"
            ) from error
