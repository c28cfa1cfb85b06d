"""The label party's book: which labels ever left, as they were then, under which coin, and what that adds up to.

One SQLite file. All of a release (labels frozen, bits that leave, what it costs every unit) is one transaction, on the
disk before the first bit leaves: the same question gets the same bits. A label is *frozen* when it is first released: a
bit that changes would prove a correction.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.disk import make_folder
from tacit.errors import StorageError, UsageError
from tacit.labels.charges import TABLES, Charges, as_last, is_last, stored_mechanism
from tacit.labels.coins import Coins
from tacit.labels.mechanisms import Mechanism, read_mechanism, sent_dtype
from tacit.labels.records import (
    Checked,
    Keys,
    Places,
    Price,
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

        `run_id` names this run over this alignment. Which rows are asked for is the partner's choice, so nothing is
        refused over what they have cost before: those of a unit that the budget has no room for are sent as what was
        paid for them in this series, and where nothing was, as rows without a label; either for good.
        """
        parameters, keys = json.dumps(mechanism.parameters(), sort_keys=True), rows.keys
        with self._transaction():
            known = self._entered(run_id)
            if known is not None:
                return self._again(*known, parameters)
            series = self._series(mechanism, terms)
            mine = self._number("mechanisms", series=series, parameters=parameters)
            labels, through = self._freeze(series, mine, mechanism, rows, terms)
            sent = self._drawn(series, mechanism, terms.coin, keys, labels, through)
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

    def price(self, rows: Rows, mechanism: Mechanism, terms: Terms) -> Price:
        """What a release of these rows would cost; the book stays as it is."""
        parameters = json.dumps(mechanism.parameters(), sort_keys=True)
        with self._transaction(keep=False):
            series = self._series(mechanism, terms)
            mine = self._number("mechanisms", series=series, parameters=parameters)
            before = self._counted(series, mine)
            _, through = self._freeze(series, mine, mechanism, rows, terms)
            after, total = self._counted(series, mine), self.summary()
            last = [number for number, said, _ in self._mechanisms(series) if is_last(said)]
        new, unpaid = after[0] - before[0], int(np.isin(through, [0, *last]).sum())
        raised = max(0, after[1] - before[1] - new)
        return Price(len(rows.keys), new, raised, unpaid, max(total.auc, 0.5), max(total.odds, 1.0))

    def _counted(self, series: int, mechanism: int) -> tuple[int, int]:
        """How many labels of a series are frozen, and how many of them went through this mechanism."""
        asked = "SELECT COUNT(*), COALESCE(SUM(mechanism = ?), 0) FROM frozen WHERE series = ?"
        found: tuple[int, int] = self._db.execute(asked, (mechanism, series)).fetchone()
        return found

    def _entered(self, run_id: str) -> tuple[int, str] | None:
        """The number of a run's release, and the parameters of its mechanism."""
        asked = "SELECT r.id, m.parameters FROM releases r JOIN mechanisms m ON m.id = r.mechanism"
        found: tuple[int, str] | None = self._db.execute(f"{asked} WHERE run_id = ?", (run_id,)).fetchone()
        return found

    def _series(self, mechanism: Mechanism, terms: Terms) -> int:
        self._for_good("unit", terms.unit, "what they add up to is counted by it: agree on that unit in contract.toml")
        by = str(list(terms.coin_id))
        self._for_good("coin_id", by, "by another one each row would have new coins, uncharged: put that one back")
        return self._number(
            "series", label=terms.label, definition=terms.definition, coin=mechanism.series, epoch=terms.epoch
        )

    def coins(self, label: str, definition: str, epoch: int = 0) -> Coins:
        """The coins of a label."""
        return Coins(self._secret, column=label, definition=definition, epoch=epoch)

    def _again(self, release: int, entered: str, asked: str) -> NDArray[Any]:
        """What was entered for this run before, whatever these rows are called now."""
        if entered != asked:
            raise UsageError(
                f"{self.path}: this run was released with another mechanism: put limit and odds back, or agree on a "
                "new run"
            )
        return self._stored(release, read_mechanism(json.loads(entered)))[1]

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

    def _freeze(
        self, series: int, mine: int, mechanism: Mechanism, rows: Rows, terms: Terms
    ) -> tuple[Numbers, Numbers]:
        """Freeze what was never released, charge what was released more weakly, and can be paid for.

        The labels as they are frozen, and the numbers of the mechanisms that were paid for; 0 where nothing was.
        """
        db, order = self._db, in_order(rows.keys)
        columns = "key BLOB PRIMARY KEY, unit BLOB, label INT"
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS asked ({columns}) WITHOUT ROWID")
        db.execute("CREATE TEMP TABLE IF NOT EXISTS unpaid (key BLOB PRIMARY KEY) WITHOUT ROWID")
        db.execute("DELETE FROM temp.asked")
        db.execute("DELETE FROM temp.unpaid")
        db.executemany("INSERT INTO temp.asked VALUES (?, ?, ?)", _each(rows, order))
        weaker = {
            number: parameters
            for number, parameters, made in self._mechanisms(series)
            if made.auc < mechanism.auc and not is_last(parameters)
        }
        db.execute("SAVEPOINT charging")
        self._charge(series, mine, tuple(weaker))
        moved = db.execute(
            "INSERT INTO temp.unpaid SELECT DISTINCT a.key FROM series s CROSS JOIN temp.asked a JOIN frozen f"
            " ON f.series = s.id AND f.key = a.key WHERE f.unit != a.unit"
        ).rowcount
        over = Charges(db).over(terms.budget, terms.odds_budget, "WHERE unit IN (SELECT unit FROM temp.asked)")
        if moved or over:
            db.execute("ROLLBACK TO charging")
            self._charge_others(series, mine, weaker, over)
        found = db.execute(
            "SELECT f.label, coalesce(f.mechanism, 0) FROM temp.asked a CROSS JOIN frozen f ON f.series = ?"
            " AND f.key = a.key ORDER BY a.key",
            (series,),
        )
        frozen = np.empty((len(order), 2), np.int64)
        frozen[order] = np.fromiter(found, np.dtype((np.int64, 2)), len(order))
        return frozen[:, 0].copy(), frozen[:, 1].copy()

    def _charge(self, series: int, mine: int, weaker: Sequence[int], but: str = "") -> None:
        """Freeze and charge what is asked for, but for some of it."""
        others = f"key NOT IN ({but})" if but else "1"
        self._db.execute(
            f"INSERT OR IGNORE INTO frozen SELECT ?, key, unit, label, ? FROM temp.asked WHERE {others} ORDER BY key",
            (series, mine),
        )
        if weaker:
            marks = ", ".join("?" * len(weaker))
            self._db.execute(
                f"UPDATE frozen SET mechanism = ? WHERE series = ? AND mechanism IN ({marks})"
                f" AND key IN (SELECT key FROM temp.asked WHERE {others})",
                (mine, series, *weaker),
            )

    def _charge_others(self, series: int, mine: int, weaker: Mapping[int, str], over: Sequence[bytes]) -> None:
        """Freeze and charge all but the rows of units that were moved or are over a budget: these have had their last.

        A row that was moved was released under another unit than it has now: what a unit's labels add up to is counted
        by it, so it stays.
        """
        db, unpaid = self._db, "SELECT key FROM temp.unpaid"
        db.execute(
            "INSERT INTO temp.unpaid SELECT DISTINCT a.key FROM series s CROSS JOIN temp.asked a JOIN frozen f"
            " ON f.series = s.id AND f.key = a.key WHERE f.unit != a.unit"
        )
        db.execute("CREATE TEMP TABLE IF NOT EXISTS exceeded (unit BLOB PRIMARY KEY) WITHOUT ROWID")
        db.execute("DELETE FROM temp.exceeded")
        db.executemany("INSERT INTO temp.exceeded VALUES (?)", ((unit,) for unit in over))
        few = "SELECT key FROM temp.asked WHERE unit IN (SELECT unit FROM temp.exceeded)"
        db.execute(f"INSERT OR IGNORE INTO temp.unpaid {few}")
        self._charge(series, mine, tuple(weaker), unpaid)
        db.execute(
            f"INSERT OR IGNORE INTO frozen SELECT ?, key, unit, -1, NULL FROM temp.asked WHERE key IN ({unpaid})",
            (series,),
        )
        for number, parameters in weaker.items():
            last = self._number("mechanisms", series=series, parameters=as_last(parameters))
            db.execute(
                f"UPDATE frozen SET mechanism = ? WHERE series = ? AND mechanism = ? AND key IN ({unpaid})",
                (last, series, number),
            )

    def _mechanisms(self, series: int) -> Iterator[tuple[int, str, Mechanism]]:
        """Those of a series: their numbers, their parameters as they are stored, and what these make."""
        asked = "SELECT id, parameters FROM mechanisms WHERE series = ?"
        for number, parameters in self._db.execute(asked, (series,)).fetchall():
            yield number, parameters, stored_mechanism(parameters)

    def _drawn(
        self,
        series: int,
        mechanism: Mechanism,
        coin: tuple[str, str, int],
        keys: Keys,
        labels: Numbers,
        through: Numbers,
    ) -> NDArray[Any]:
        """What leaves of these rows: each through this mechanism, or through a weaker one that was its last."""
        coins = self.coins(*coin)
        sent = coins.draw(mechanism, keys, labels)
        for number, parameters, last in self._mechanisms(series):
            some = np.flatnonzero(through == number)
            if len(some) and is_last(parameters) and last.auc < mechanism.auc:
                sent[some] = coins.draw(last, keys[some], labels[some])
        return sent

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
            drawn = self._drawn(series, mechanism, tuple(coin), keys, *self._frozen(series, keys))
            if not np.array_equal(drawn, sent) or seal != sealed(self._secret, run_id, parameters, keys, sent):
                raise StorageError(
                    f"{self.path}: what the run {run!r} was sent is not what the secret and the frozen labels give: the"
                    " book was changed; bring it back as it was"
                )
            releases, bits = releases + 1, bits + len(sent)
        return Checked(releases, bits)

    def _stored(self, release: int, mechanism: Mechanism) -> tuple[Keys, NDArray[Any]]:
        """Of a release: whose labels, and what was sent."""
        asked = "SELECT keys, sent FROM released WHERE release = ? ORDER BY chunk"
        found = self._db.execute(asked, (release,)).fetchall()
        keys, sent = (b"".join(parts) for parts in zip(*found, strict=True))
        return np.frombuffer(keys, np.uint8).reshape(-1, 16), np.frombuffer(sent, sent_dtype(mechanism))

    def _frozen(self, series: int, keys: Keys) -> tuple[Numbers, Numbers]:
        """The labels of these rows as they are frozen, and the numbers of the mechanisms that were paid for."""
        places, found, missing = Places(keys), np.empty((len(keys), 2), np.int64), np.ones(len(keys), np.bool_)
        asked = "SELECT key, label, coalesce(mechanism, 0) FROM frozen WHERE series = ?"
        kept = self._db.execute(asked, (series,))
        while some := kept.fetchmany(_CHUNK):
            at = places.of(key for key, _, _ in some)
            found[at[at >= 0]] = np.array([row[1:] for row in some], np.int64)[at >= 0]
            missing[at[at >= 0]] = False
        if missing.any():
            raise StorageError(f"{self.path}: labels of a release are missing: bring the book back as it was")
        return found[:, 0].copy(), found[:, 1].copy()

    def unpaid(self, run_id: str) -> int:
        """How many rows of a run went through a weaker mechanism, or had no label, for want of a budget or a unit."""
        number, parameters = self._entered(run_id) or (0, "")
        if not number:
            return 0
        (series,) = self._db.execute(
            "SELECT m.series FROM releases r JOIN mechanisms m ON m.id = r.mechanism WHERE r.id = ?", (number,)
        ).fetchone()
        mechanism = stored_mechanism(parameters)
        last = [one for one, said, made in self._mechanisms(series) if is_last(said) and made.auc < mechanism.auc]
        marks = ", ".join("?" * len(last))
        some = f"SELECT 1 FROM frozen WHERE series = ? AND (mechanism IS NULL OR mechanism IN ({marks})) LIMIT 1"
        if self._db.execute(some, (series, *last)).fetchone() is None:
            return 0
        return int(np.isin(self._frozen(series, self._stored(number, mechanism)[0])[1], [0, *last]).sum())

    @contextmanager
    def _transaction(self, *, keep: bool = True) -> Iterator[None]:
        """All of it on the disk, or nothing; nothing at all where it is not to be kept."""
        with sqlite_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT" if keep else "ROLLBACK")
