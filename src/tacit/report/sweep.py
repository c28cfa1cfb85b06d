"""A sweep: every setting's trade-off, and the curves of each, also while it goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.report.finding import DAMAGE, Place, marks
from tacit.report.series import Series, by_protection, finite

if TYPE_CHECKING:
    import polars as pl

IDENTITY = ("replica", "protection", "knob", "strength", "options", "seed")
"""The columns that name a replica."""

UTILITY = ("train_loss", "test_loss", "test_auc", "test_ace", "power", "untouched_rows", "stateless", "seconds")
"""What a replica's training brought and cost."""

WORST = ("worst", "worst low", "worst high", "worst attack", "worst part")
"""What leaked most, in rows of the whole."""

FIGURES = ("", " low", " high", " q95", " mean", " error")
"""What the names of a leak's columns end with: the leak itself, its interval, and other figures of the same attack."""

_WORDS = ("protection", "knob", "options", "part", "worst attack", "worst part")
_POINTS = 2000  # of a curve on a page
_COSTS = ("untouched_rows", "stateless", "seconds")  # not what a model is worth


class SweepReader:
    """Everything a sweep's folder tells; of one that is going on, its finished waves."""

    def __init__(self, place: Place) -> None:
        self.place = place  # where it is
        # its rows, with the columns of `tacit.lab.sweeping.results`; None while there are none
        self.table: pl.DataFrame | None = None
        self.about: dict[str, Any] = {}  # what the sweep was
        self.problems: list[str] = []  # what could not be read
        self._trainings: list[dict[str, Any]] = []  # a row for each
        self._seen: tuple[Any, ...] | None = None

    def _files(self) -> list[Path]:
        whole = self.place.path / "results.parquet"
        return [whole] if whole.exists() else sorted((self.place.path / "waves").glob("*.parquet"))

    def fingerprint(self) -> tuple[Any, ...]:
        """Changes whenever a file does."""
        return tuple(marks(self._files()))

    def refresh(self) -> bool:
        """Read what is new; whether there was anything."""
        import polars as pl

        now = self.fingerprint()
        if now == self._seen:
            return False
        self.problems, tables = [], []
        for path in self._files():
            try:
                if not path.is_file():  # a pipe would hold us for ever
                    raise OSError("it is not a regular file")
                table = pl.read_parquet(path)
                if odd := _odd(table):
                    self.problems.append(f"{path} is no sweep's table, and is not shown: see {', '.join(odd)[:100]}")
                    continue
                self.about = dict(json.loads(pl.read_parquet_metadata(path).get("tacit", "{}")))
                tables.append(table)
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, *DAMAGE) as error:
                self.problems.append(f"{path} can't be read ({str(error)[:200]}): delete it, and sweep again")
        self.table = pl.concat(tables, how="diagonal_relaxed") if tables else None
        self._trainings = [] if self.table is None else list(_trainings(self.table).iter_rows(named=True))
        self._seen = now
        return True

    @property
    def points(self) -> list[dict[str, Any]]:
        """Every training as a point: what its worst attack reached, and what its model is worth."""
        return [_point(row) for row in self._trainings]

    def card(self) -> dict[str, Any]:
        """What an overview shows."""
        points = self.points
        known = [point["utility"] for point in points if point["utility"] is not None]
        changed = max((time for _, time, *_ in self._seen or ()), default=0)
        return {
            "id": self.place.id, "kind": "sweep", "name": self.place.name, "data": self.about.get("data"),
            "time": datetime.fromtimestamp(changed / 1e9, UTC).isoformat(timespec="seconds"),
            "settings": len(self.about.get("settings", points)), "done": len(points),
            "protections": list(dict.fromkeys(point["protection"] for point in points)),
            "utility": {"name": "test_auc", "best": max(known)} if known else None, "problems": self.problems,
        }  # fmt: skip

    def detail(self) -> dict[str, Any]:
        """What a page about this sweep shows."""
        attacks = [] if self.table is None else leaks_of(self.table.columns)
        matrix = _matrix(self._trainings)
        return {**self.card(), "points": self.points, "attacks": attacks, "matrix": matrix, "about": self.about}

    def replica(self, number: int) -> dict[str, Any] | None:
        """One training of the sweep, as the page of a run shows it; None where there is none."""
        import polars as pl

        trainings = [row for row in self._trainings if row["replica"] == number]
        if self.table is None or not trainings:
            return None
        parts = self.table.filter(pl.col("replica") == number, pl.col("part") == "stretch").sort("step")
        curves = [Series(name, "utility") for name in UTILITY if name not in _COSTS]
        curves += [Series(name, "gate", "leak_auc") for name in leaks_of(parts.columns)]
        for curve in curves:
            ends = (f"{curve.name} low", f"{curve.name} high") if curve.group == "gate" else ()
            for step, value, *interval in parts.select("step", curve.name, *ends).drop_nulls().iter_rows():
                curve.add(step, value, (interval[0], interval[1]) if interval else None)
        return {
            "id": self.place.id, "kind": "replica", "name": self.place.name, **_point(trainings[0]), "steps": None,
            "limits": None, "measure": "leak_auc", "curves": [curve.shown(_POINTS) for curve in curves if len(curve)],
            "total": sum(map(len, curves)), "matrix": _matrix(trainings), "data": self.about.get("data"),
        }  # fmt: skip


def _trainings(table: pl.DataFrame) -> pl.DataFrame:
    """One row for each training: its whole."""
    import polars as pl

    return table.filter(pl.col("part") == "whole").sort("replica")


def _point(row: dict[str, Any]) -> dict[str, Any]:
    leak, worst = _ends(row, "worst"), row.get("worst attack")
    if leak[0] is None:
        known = [name for name in leaks_of(row) if row[name] is not None]
        worst = max(known, key=lambda name: row[name], default=None)
        leak = [None] * 3 if worst is None else _ends(row, worst)
    value, low, high, utility = finite([math.nan if figure is None else figure for figure in (*leak, row["test_auc"])])
    return {
        "replica": row["replica"], "protection": row["protection"], "strength": row["strength"],
        "knob": row["knob"], "label": _label(row), "seed": row["seed"], "leak": value, "low": low, "high": high,
        "worst_attack": worst, "utility": utility, "utility_name": "test_auc", "done": True,
    }  # fmt: skip


def _matrix(trainings: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    columns = []
    for row in trainings:
        spelled = {name: name.rpartition("@") for name in leaks_of(row)}
        columns.append((_label(row), {(spelled[name][0], spelled[name][2]): _ends(row, name) for name in spelled}))
    return by_protection(columns)


def _ends(row: dict[str, Any], name: str) -> list[float | None]:
    return [row.get(column) for column in (name, f"{name} low", f"{name} high")]


def _odd(table: pl.DataFrame) -> list[str]:
    """Columns that a sweep's table lacks, or that hold words where it has numbers, or numbers where it has words."""
    needed = {*IDENTITY, "part", "step", *UTILITY}
    odd = sorted(needed - set(table.columns))
    for name, kind in table.schema.items():
        if name in _WORDS:
            odd += [] if str(kind) in ("String", "Null") else [name]
        elif name in needed or "@" in name or name in WORST:
            odd += [] if kind.is_numeric() or str(kind) == "Null" else [name]
    return odd


def _label(row: dict[str, Any]) -> str:
    """A setting in few words: "marvell scale=4"."""
    if row["knob"] is None or row["strength"] is None:
        return str(row["protection"])
    return f"{row['protection']} {row['knob']}={row['strength']:g}"


def leaks_of(columns: Iterable[str]) -> list[str]:
    """The leak columns among these, without those of their intervals and other figures.

    >>> leaks_of(["replica", "norm@cut", "norm@cut low", "accumulated(likelihood, spread)@cut"])
    ['norm@cut', 'accumulated(likelihood, spread)@cut']
    """
    return [name for name in columns if "@" in name and not name.endswith(FIGURES[1:])]
