"""What all releases of a book together tell about each unit: losses added up, leak AUC and odds read off."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from functools import reduce

from tacit.one_shot.loss import Loss
from tacit.one_shot.mechanisms import Mechanism, described, read_mechanism
from tacit.one_shot.records import Charge
from tacit.one_shot.sums import Sums

__all__ = ["Charges"]


class Charges:
    """The charges of a book.

    Args:
        db: the book's database.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._losses: dict[tuple[int, int], Loss] = {}

    def all(self, which: str = "", delta: float = 0.0) -> Iterator[Charge]:
        """What units have come to; units whose labels went through the same are one line.

        Args:
            which: of the frozen labels count, in SQL; all of them if not given.
            delta: the probability with which odds may be passed, where sums were among it.
        """
        counted = f"SELECT unit, mechanism, COUNT(*) c FROM frozen {which} GROUP BY unit, mechanism"
        joined = "group_concat(mechanism || ':' || c, ' ')"
        profiles = f"SELECT unit, {joined} p FROM ({counted} ORDER BY 1, 2) GROUP BY unit"
        for profile, units in self._db.execute(f"SELECT p, COUNT(*) FROM ({profiles}) GROUP BY p").fetchall():
            parts = [self._counted(*map(int, part.split(":"))) for part in profile.split()]
            loss = reduce(Loss.then, (self._loss(*part) for part in parts))
            words = ", ".join(f"{count} x {described(self._read(number))}" for number, count in parts)
            but = delta if math.isinf(loss.odds()) else 0.0
            yield Charge(units, loss.auc(), loss.odds(but), words, but)

    def _counted(self, mechanism: int, rows: int) -> tuple[int, int]:
        """A mechanism and how often it is charged: once for hidden sums, of which a partition has one row of a unit."""
        made = self._read(mechanism)
        return mechanism, 1 if isinstance(made, Sums) and made.hidden else rows

    def _loss(self, mechanism: int, count: int) -> Loss:
        """Of so many rows of one unit that went through a mechanism, each with a coin of its own."""
        if (mechanism, count) not in self._losses:
            self._losses[mechanism, count] = self._read(mechanism).loss().times(count)
        return self._losses[mechanism, count]

    def _read(self, mechanism: int) -> Mechanism:
        (said,) = self._db.execute("SELECT parameters FROM mechanisms WHERE id = ?", (mechanism,)).fetchone()
        return read_mechanism(json.loads(said))
