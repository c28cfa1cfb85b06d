"""The tables of a label party's book, and what all its releases together tell about each unit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import reduce

from tacit.one_shot.loss import Loss
from tacit.one_shot.mechanisms import described, read_mechanism
from tacit.one_shot.records import Charge

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


class Charges:
    """The charges of a book: losses added up, leak AUC and odds read off."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._parts: dict[tuple[int, int], tuple[Loss, str]] = {}

    def all(self, which: str = "") -> Iterator[Charge]:
        """What units have come to; units whose labels went through the same are one line.

        `which` of the frozen labels count, in SQL.
        """
        counted = f"SELECT unit, mechanism, COUNT(*) c FROM frozen {which} GROUP BY unit, mechanism"
        joined = "group_concat(mechanism || ':' || c, ' ')"
        profiles = f"SELECT unit, {joined} p FROM ({counted} ORDER BY 1, 2) GROUP BY unit"
        for profile, units in self._db.execute(f"SELECT p, COUNT(*) FROM ({profiles}) GROUP BY p").fetchall():
            parts = [self._charged(*map(int, part.split(":"))) for part in profile.split()]
            loss, words = reduce(Loss.then, (each for each, _ in parts)), ", ".join(said for _, said in parts)
            yield Charge(units, loss.auc(), loss.odds(), words)

    def _charged(self, mechanism: int, rows: int) -> tuple[Loss, str]:
        """Of so many rows of one unit that went through a mechanism, each with a coin of its own; and in words."""
        if (mechanism, rows) not in self._parts:
            (said,) = self._db.execute("SELECT parameters FROM mechanisms WHERE id = ?", (mechanism,)).fetchone()
            made = read_mechanism(json.loads(said))
            self._parts[mechanism, rows] = made.loss().times(rows), f"{rows} x {described(made)}"
        return self._parts[mechanism, rows]
