"""The label party's book: which labels ever left, as they were then, under which coin, and what that adds up to.

One SQLite file. All of a release (labels frozen, bits that leave, what it costs every unit) is one transaction, on the
disk before the first bit leaves: the same question gets the same bits. A label is *frozen* when it is first released: a
bit that changes would prove a correction.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.disk import make_folder
from tacit.errors import StorageError, UsageError
from tacit.one_shot.charges import TABLES, Charges
from tacit.one_shot.coins import Coins
from tacit.one_shot.mechanisms import Mechanism, read_mechanism, sent_dtype
from tacit.one_shot.records import (
    Checked,
    Keys,
    Places,
    Release,
    Rows,
    Summary,
    Terms,
    in_order,
    keyed,
    sealed,
    sqlite_errors,
    sums_refused,
)

__all__ = ["Book", "Terms", "open_book"]

_FILE = "book.sqlite"
_VERSION = "1"
_CHUNK = 1 << 16  # rows whose keys and bits lie together

Numbers = NDArray[np.int64]


def open_book(folder: Path, secret: bytes) -> Book:
    """A party's book, which belongs to its secret; made where there is none."""
    make_folder(folder)
    book = Book(folder / _FILE, secret)
    book.claim()
    return book


def _each(rows: Rows, order: NDArray[np.intp]) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, unit and label of rows in this order."""
    for start in range(0, len(order), _CHUNK):
        some = order[start : start + _CHUNK]
        keys, units = rows.keys[some].tobytes(), rows.units[some].tobytes()
        for at, label in enumerate(rows.labels[some].tolist()):
            yield keys[16 * at : 16 * at + 16], units[16 * at : 16 * at + 16], label


class Book:
    """See this module. Use `open_book`; reading one that another process writes to is safe."""

    def __init__(self, path: Path, secret: bytes) -> None:
        self.path = path
        self._secret = hmac.digest(secret, b"tacit coins 1", "sha256")
        with sqlite_errors(path):
            path.touch(mode=0o600)  # it holds true labels
            self._db = sqlite3.connect(path, isolation_level=None, timeout=60.0)
            self._db.execute("PRAGMA synchronous = EXTRA")  # a release that has left is on the disk

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    def claim(self) -> None:
        """Begin the book with this secret, or refuse one that was begun with another."""
        said = hmac.digest(self._secret, b"whose coins these are", "sha256").hex()[:32]
        with self._transaction():
            if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone():
                for statement in TABLES.split(";"):
                    self._db.execute(statement)
                facts = {"version": _VERSION, "secret": said}
                self._db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            known = dict(self._db.execute("SELECT name, value FROM facts"))
            used = [json.loads(parameters) for (parameters,) in self._db.execute("SELECT parameters FROM mechanisms")]
        if known.get("version") != _VERSION:
            raise StorageError(f"{self.path}: written by another version of Tacit: go on with that one")
        if known.get("secret") != said:
            raise StorageError(
                f"{self.path}: its labels were flipped with another keys/secret, and flipped anew they would tell more:"
                " bring that secret back"
            )
        if any(one["mechanism"] in ("sums", "hidden sums") for one in used):
            raise sums_refused(self.path)

    # --- a release ---------------------------------------------------------------------------------------------------

    def keys_of(self, hashes: NDArray[np.uint8], what: str) -> Keys:
        """Keys of rows or units from the hashes of their ids: without the secret no id can be tried."""
        return keyed(self._secret, hashes, what)

    def release(self, run_id: str, rows: Rows, mechanism: Mechanism, terms: Terms) -> NDArray[Any]:
        """What leaves of these rows: entered, frozen and paid for before it is returned, and the same when asked again.

        `run_id` names this run over this alignment.
        """
        parameters, keys = json.dumps(mechanism.parameters(), sort_keys=True), rows.keys
        with self._transaction():
            known = self._entered(run_id)
            if known is not None:
                return self._again(*known, parameters, keys)
            mine, labels = self._charged(rows, mechanism, terms)
            self._within(terms)
            sent = self.coins(*terms.coin).draw(mechanism, keys, labels)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            facts = (now, terms.run, json.dumps(list(terms.partners)), mine, len(keys), mechanism.auc)
            seal = sealed(self._secret, run_id, parameters, keys, sent)
            number = self._db.execute(
                "INSERT INTO releases (run_id, time, run, partners, mechanism, rows, auc, odds, seal)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (run_id, *facts, mechanism.odds, seal),
            ).lastrowid
            for at, start in enumerate(range(0, len(keys), _CHUNK)):
                part = slice(start, start + _CHUNK)
                row = (number, at, keys[part].tobytes(), sent[part].tobytes())
                self._db.execute("INSERT INTO released (release, chunk, keys, sent) VALUES (?, ?, ?, ?)", row)
        return sent

    def _entered(self, run_id: str) -> tuple[int, str] | None:
        """The number of a run's release, and the parameters of its mechanism."""
        asked = "SELECT r.id, m.parameters FROM releases r JOIN mechanisms m ON m.id = r.mechanism"
        found: tuple[int, str] | None = self._db.execute(f"{asked} WHERE run_id = ?", (run_id,)).fetchone()
        return found

    def _charged(self, rows: Rows, mechanism: Mechanism, terms: Terms) -> tuple[int, Numbers]:
        """Freeze and charge what is released; the number of the mechanism, and the labels as they are frozen."""
        self._for_good("unit", terms.unit, "what they add up to is counted by it: agree on that unit in contract.toml")
        by = str(list(terms.coin_id))
        self._for_good("coin_id", by, "by another one each row would have new coins, uncharged: put that one back")
        series = self._number(
            "series", label=terms.label, definition=terms.definition, coin=mechanism.series, epoch=terms.epoch
        )
        parameters = json.dumps(mechanism.parameters(), sort_keys=True)
        mine = self._number("mechanisms", series=series, parameters=parameters)
        return mine, self._freeze(series, mine, mechanism, rows)

    def coins(self, label: str, definition: str, epoch: int = 0) -> Coins:
        """The coins of a label."""
        return Coins(self._secret, column=label, definition=definition, epoch=epoch)

    def _again(self, release: int, entered: str, asked: str, keys: Keys) -> NDArray[Any]:
        """What was entered for this run before."""
        sent, place, same = bytearray(), 0, True
        stored = "SELECT keys, sent FROM released WHERE release = ? ORDER BY chunk"
        for some, out in self._db.execute(stored, (release,)):  # all of them would be large
            same &= keys[place : place + len(some) // 16].tobytes() == some
            place += len(some) // 16
            sent += out
        if entered != asked or not same or place != len(keys):
            what = "another mechanism" if entered != asked else "other rows"
            raise UsageError(
                f"{self.path}: this run was released with {what}: put limit, odds and data back, or agree on a new run"
            )
        return np.frombuffer(sent, sent_dtype(read_mechanism(json.loads(entered))))

    def _for_good(self, name: str, value: str, why: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
        (known,) = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if known != value:
            raise UsageError(f"labels were released with {name} = {known} before, and {why}")

    def _number(self, table: str, **row: str | int) -> int:
        """The number of a row of a table, entered where it is not there."""
        values, marks = tuple(row.values()), ", ".join("?" * len(row))
        self._db.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(row)}) VALUES ({marks})", values)
        where = " AND ".join(f"{name} = ?" for name in row)
        return int(self._db.execute(f"SELECT id FROM {table} WHERE {where}", values).fetchone()[0])

    def _freeze(self, series: int, mine: int, mechanism: Mechanism, rows: Rows) -> Numbers:
        """Freeze what was never released, charge what was released more weakly; the labels as they are frozen."""
        db, order = self._db, in_order(rows.keys)
        columns = "key BLOB PRIMARY KEY, unit BLOB, label INT"
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS asked ({columns}) WITHOUT ROWID")
        db.execute("DELETE FROM temp.asked")
        db.executemany("INSERT INTO temp.asked VALUES (?, ?, ?)", _each(rows, order))
        frozen = "INSERT OR IGNORE INTO frozen SELECT ?, key, unit, label, ? FROM temp.asked ORDER BY key"
        db.execute(frozen, (series, mine))
        weaker = [
            number
            for number, parameters in db.execute("SELECT id, parameters FROM mechanisms WHERE series = ?", (series,))
            if read_mechanism(json.loads(parameters)).auc < mechanism.auc
        ]
        if weaker:
            marks = ", ".join("?" * len(weaker))
            db.execute(
                f"UPDATE frozen SET mechanism = ? WHERE series = ? AND mechanism IN ({marks})"
                " AND key IN (SELECT key FROM temp.asked)",
                (mine, series, *weaker),
            )
        moved = db.execute(
            "SELECT COUNT(DISTINCT a.key) FROM series s CROSS JOIN temp.asked a JOIN frozen f"
            " ON f.series = s.id AND f.key = a.key WHERE f.unit != a.unit"
        ).fetchone()[0]
        if moved:
            raise UsageError(
                f"{moved} rows were released under another unit than they have now: what a unit's labels add up to is "
                "counted by it, so it stays; put the unit's column back as it was"
            )
        found = db.execute(
            "SELECT f.label FROM temp.asked a CROSS JOIN frozen f ON f.series = ? AND f.key = a.key ORDER BY a.key",
            (series,),
        )
        labels = np.empty(len(order), np.int64)
        labels[order] = np.fromiter((label for (label,) in found), np.int64, len(order))
        return labels

    def _within(self, terms: Terms) -> None:
        """Refuse what would come to more than the budgets for any unit that is asked about."""
        for charge in Charges(self._db).all("WHERE unit IN (SELECT unit FROM temp.asked)"):
            for name, what, value, most in (
                ("budget", "leak AUC", charge.auc, terms.budget),
                ("odds_budget", "factor of the odds", charge.odds, terms.odds_budget),
            ):
                if most is not None and value > most + 1e-9:
                    raise UsageError(
                        f"{name} = {most:g}: with this release {charge.units} of the units here would come to a {what} "
                        f"of {value:.4g} over all releases ({charge.releases}): lower limit or odds, leave these rows "
                        f"out, or raise {name} in party.toml"
                    )

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def releases(self) -> int:
        """How many there were."""
        return int(self._db.execute("SELECT COUNT(*) FROM releases").fetchone()[0])

    def summary(self) -> Summary:
        """What was released and what it adds up to, by unit."""
        unit = self._db.execute("SELECT value FROM facts WHERE name = 'unit'").fetchone()
        told = self._db.execute(
            "SELECT r.run, r.time, r.partners, s.label, m.parameters, r.rows, r.auc, r.odds FROM releases r"
            " JOIN mechanisms m ON m.id = r.mechanism JOIN series s ON s.id = m.series ORDER BY r.id"
        )
        releases = tuple(
            Release(run, time, tuple(json.loads(partners)), label, json.loads(parameters), rows, auc, odds)
            for run, time, partners, label, parameters, rows, auc, odds in told
        )
        charges = sorted(Charges(self._db).all(), key=lambda one: (-one.auc, -one.odds))
        (labels,) = self._db.execute("SELECT COUNT(*) FROM frozen").fetchone()
        return Summary("row" if unit is None else unit[0], releases, tuple(charges), labels)

    def check(self) -> Checked:
        """Draw every bit that ever left again; a `StorageError` says of which release something is not as it was."""
        asked = (
            "SELECT r.id, r.run_id, r.run, r.seal, m.parameters, s.id, s.label, s.definition, s.epoch FROM releases r"
            " JOIN mechanisms m ON m.id = r.mechanism JOIN series s ON s.id = m.series ORDER BY r.id"
        )
        releases = bits = 0
        for number, run_id, run, seal, parameters, series, *coin in self._db.execute(asked).fetchall():
            mechanism = read_mechanism(json.loads(parameters))
            keys, sent = self._stored(number, mechanism)
            drawn = self.coins(*coin).draw(mechanism, keys, self._frozen(series, keys))
            if not np.array_equal(drawn, sent) or seal != sealed(self._secret, run_id, parameters, keys, sent):
                raise StorageError(
                    f"{self.path}: what the run {run!r} was sent is not what the secret and the frozen labels give: the"
                    " book was changed; bring it back as it was"
                )
            releases, bits = releases + 1, bits + len(sent)
        return Checked(releases, bits)

    def _stored(self, release: int, mechanism: Mechanism) -> tuple[Keys, NDArray[Any]]:
        """Of a release: whose labels, and what left."""
        asked = "SELECT keys, sent FROM released WHERE release = ? ORDER BY chunk"
        found = self._db.execute(asked, (release,)).fetchall()
        keys, sent = (b"".join(parts) for parts in zip(*found, strict=True))
        return np.frombuffer(keys, np.uint8).reshape(-1, 16), np.frombuffer(sent, sent_dtype(mechanism))

    def _frozen(self, series: int, keys: Keys) -> Numbers:
        places, labels, missing = Places(keys), np.empty(len(keys), np.int64), np.ones(len(keys), np.bool_)
        kept = self._db.execute("SELECT key, label FROM frozen WHERE series = ?", (series,))
        while some := kept.fetchmany(_CHUNK):
            at = places.of(key for key, _ in some)
            labels[at[at >= 0]] = np.array([label for _, label in some], np.int64)[at >= 0]
            missing[at[at >= 0]] = False
        if missing.any():
            raise StorageError(f"{self.path}: labels of a release are missing: bring the book back as it was")
        return labels

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it on the disk, or nothing."""
        with sqlite_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
