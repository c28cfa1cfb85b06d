"""The tables of a label party's book, and what all its releases together tell about each unit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import reduce

from tacit.labels.loss import Loss
from tacit.labels.mechanisms import Mechanism, described, read_mechanism
from tacit.labels.records import Charge

_LAST = "last"  # beside the parameters of a mechanism: rows that went through it are never sent through another one
_ROUNDING = 1e-9

TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, label TEXT NOT NULL, definition TEXT NOT NULL, coin TEXT NOT NULL, epoch INTEGER NOT NULL,
    UNIQUE (label, definition, coin, epoch));
CREATE TABLE mechanisms (id INTEGER PRIMARY KEY, series INTEGER NOT NULL, parameters TEXT NOT NULL,
    UNIQUE (series, parameters));
CREATE TABLE frozen (
    series INTEGER NOT NULL, key BLOB NOT NULL, unit BLOB NOT NULL, label INTEGER NOT NULL, mechanism INTEGER,
    PRIMARY KEY (series, key)) WITHOUT ROWID;
CREATE INDEX by_unit ON frozen (unit, mechanism);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY, run_id TEXT UNIQUE NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, partners TEXT NOT NULL,
    mechanism INTEGER NOT NULL, rows INTEGER NOT NULL, auc REAL NOT NULL, odds REAL NOT NULL, seal TEXT NOT NULL);
CREATE TABLE released (
    release INTEGER NOT NULL, chunk INTEGER NOT NULL, keys BLOB NOT NULL, sent BLOB NOT NULL, groups BLOB,
    PRIMARY KEY (release, chunk));
"""


def stored_mechanism(parameters: str) -> Mechanism:
    """A mechanism as it is stored."""
    said = json.loads(parameters)
    said.pop(_LAST, None)
    return read_mechanism(said)


def as_last(parameters: str) -> str:
    """The same mechanism as one that rows stay with for good, whatever is asked for them later."""
    return json.dumps({**json.loads(parameters), _LAST: True}, sort_keys=True)


def is_last(parameters: str) -> bool:
    """Whether rows stay with it."""
    return _LAST in json.loads(parameters)


class Charges:
    """The charges of a book: losses added up, leak AUC and odds read off."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._parts: dict[tuple[int, int], tuple[Loss, str]] = {}

    def all(self, which: str = "") -> Iterator[Charge]:
        """What units have come to; units whose labels went through the same are one line.

        `which` of the frozen labels count, in SQL.
        """
        profiles = f"SELECT p, COUNT(*) FROM ({_profiles(which)}) GROUP BY p"
        for profile, units in self._db.execute(profiles).fetchall():
            loss, words = self._added(profile)
            yield Charge(units, loss.auc(), loss.odds(), words)

    def over(self, auc: float | None, odds: float | None, which: str = "") -> list[bytes]:
        """The units that have come to more than this leak AUC, or this factor of the odds."""
        found: list[bytes] = []
        if auc is None and odds is None:
            return found
        for (profile,) in self._db.execute(f"SELECT DISTINCT p FROM ({_profiles(which)})").fetchall():
            loss, _ = self._added(profile)
            if loss.auc() > (auc or 1.0) + _ROUNDING or (odds is not None and loss.odds() > odds + _ROUNDING):
                said = self._db.execute(f"SELECT unit FROM ({_profiles(which)}) WHERE p = ?", (profile,))
                found += [unit for (unit,) in said]
        return found

    def _added(self, profile: str) -> tuple[Loss, str]:
        parts = [self._charged(*map(int, part.split(":"))) for part in profile.split()]
        return reduce(Loss.then, (each for each, _ in parts)), ", ".join(said for _, said in parts)

    def _charged(self, mechanism: int, rows: int) -> tuple[Loss, str]:
        """Of so many rows of one unit that went through a mechanism, each with a coin of its own; and in words."""
        if (mechanism, rows) not in self._parts:
            (said,) = self._db.execute("SELECT parameters FROM mechanisms WHERE id = ?", (mechanism,)).fetchone()
            made = stored_mechanism(said)
            self._parts[mechanism, rows] = made.loss().times(rows), f"{rows} x {described(made)}"
        return self._parts[mechanism, rows]


def _profiles(which: str) -> str:
    """For each unit how many of its rows went through which mechanisms; where nothing was paid a row doesn't count."""
    paid = f"{which} AND mechanism IS NOT NULL" if which else "WHERE mechanism IS NOT NULL"
    counted = f"SELECT unit, mechanism, COUNT(*) c FROM frozen {paid} GROUP BY unit, mechanism"
    joined = "group_concat(mechanism || ':' || c, ' ')"
    return f"SELECT unit, {joined} p FROM ({counted} ORDER BY 1, 2) GROUP BY unit"
