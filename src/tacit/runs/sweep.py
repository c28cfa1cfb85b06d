"""A sweep, or a training by days: every setting's trade-off, and the curves of each, also while it goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError
from tacit.lab.sweeping.results import IDENTITY, UTILITY, WORST, leaks_of
from tacit.runs.finding import DAMAGE, Place
from tacit.runs.series import Series, by_protection, finite

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SweepReader"]

_WORDS = ("protection", "knob", "options", "part", "worst attack", "worst part")
_COSTS = ("untouched_rows", "stateless", "seconds")  # not what a model is worth


class SweepReader:
    """Everything a sweep's folder tells; of one that is going on, its finished waves.

    Attributes:
        place: where it is.
        table: its rows, with the columns of `tacit.lab.sweeping.results`; None while there are none.
        about: what the sweep was.
        problems: what could not be read.

    Args:
        place: of the sweep.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.table: pl.DataFrame | None = None
        self.about: dict[str, Any] = {}
        self.problems: list[str] = []
        self._seen: tuple[Any, ...] | None = None

    def _files(self) -> list[Path]:
        whole = self.place.path / "results.parquet"
        return [whole] if whole.exists() else sorted((self.place.path / "waves").glob("*.parquet"))

    def fingerprint(self) -> tuple[Any, ...]:
        """Changes whenever a file does."""
        told = []
        for path in self._files():
            try:
                found = path.stat()
            except OSError:  # a wave that has just become a part of the whole
                continue
            told.append((str(path), found.st_mtime_ns, found.st_size))
        return tuple(told)

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
                    raise OSError("it is no file")
                found = pl.read_parquet(path)
                if odd := _odd(found):
                    self.problems.append(f"{path} is no sweep's table, and is not shown: see {', '.join(odd)[:100]}")
                    continue
                self.about = dict(json.loads(pl.read_parquet_metadata(path).get("tacit", "{}")))
                tables.append(found)
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, *DAMAGE) as error:
                self.problems.append(f"{path} can't be read ({str(error)[:200]}): delete it, and sweep again")
        self.table = pl.concat(tables, how="diagonal_relaxed") if tables else None
        self._seen = now
        return True

    def card(self) -> dict[str, Any]:
        """What an overview shows."""
        points = self._points()
        known = [one["utility"] for one in points if one["utility"] is not None]
        changed = max((time for _, time, _ in self._seen or ()), default=0)
        return {
            "id": self.place.id, "kind": "sweep", "name": self.place.name, "data": self.about.get("data"),
            "time": datetime.fromtimestamp(changed / 1e9, UTC).isoformat(timespec="seconds"),
            "settings": len(self.about.get("settings", points)), "done": len(points),
            "by_day": bool(self.about.get("by day")),
            "protections": list(dict.fromkeys(one["protection"] for one in points)),
            "utility": {"name": "test_auc", "best": max(known)} if known else None, "problems": self.problems,
        }  # fmt: skip

    def detail(self) -> dict[str, Any]:
        """What a page about this sweep shows."""
        names = [] if self.table is None else leaks_of(self.table.columns)
        return {
            **self.card(), "points": self._points(), "attacks": names, "matrix": self._matrix(names),
            "about": self.about,
        }  # fmt: skip

    def replica(self, number: int, points: int = 2000) -> dict[str, Any]:
        """One training of the sweep, as the page of a run shows it.

        Args:
            number: of the replica.
            points: of a curve, at most.
        """
        import polars as pl

        rows = None if self.table is None else self.table.filter(pl.col("replica") == number)
        if rows is None or rows.is_empty():
            raise UsageError(f"{self.place.name} has no training {number}")
        point = next(one for one in self._points() if one["replica"] == number)
        parts = rows.filter(pl.col("part") != "whole").sort("step")
        series = [one for one in (*self._utility(parts), *self._leaks(parts)) if len(one)]
        return {
            "id": self.place.id, "kind": "replica", "name": self.place.name, **point, "steps": None, "limits": None,
            "measure": "leak_auc", "curves": [one.shown(points) for one in series], "total": sum(map(len, series)),
            "matrix": self._matrix(leaks_of(rows.columns), number), "data": self.about.get("data"),
        }  # fmt: skip

    def _utility(self, parts: pl.DataFrame) -> list[Series]:
        found = []
        for name in UTILITY:
            one = Series(name, "utility")
            for step, value in parts.select("step", name).drop_nulls().iter_rows():
                one.add(step, value)
            found += [] if name in _COSTS else [one]
        return found

    def _leaks(self, parts: pl.DataFrame) -> list[Series]:
        found = []
        for name in leaks_of(parts.columns):
            one = Series(name, "gate", "leak_auc")
            for step, *told in parts.select("step", name, f"{name} low", f"{name} high").drop_nulls().iter_rows():
                one.add(step, told[0], (told[1], told[2]))
            found.append(one)
        return found

    def _whole(self) -> pl.DataFrame | None:
        """One row for each training: its whole, or where there is none (by day) the mean over its days."""
        import polars as pl

        if self.table is None:
            return None
        whole = self.table.filter(pl.col("part") == "whole")
        if whole.is_empty():
            numbers = [name for name, kind in self.table.schema.items() if kind.is_numeric() and name not in IDENTITY]
            words = [pl.col(name).first() for name in IDENTITY if name != "replica"]
            whole = self.table.group_by("replica").agg(*words, *(pl.col(name).mean() for name in numbers))
        return whole.sort("replica")

    def _points(self) -> list[dict[str, Any]]:
        whole = self._whole()
        return [] if whole is None else [self._point(row) for row in whole.iter_rows(named=True)]

    def _point(self, row: dict[str, Any]) -> dict[str, Any]:
        leak = {which: row.get(f"worst {which}".strip()) for which in ("", "low", "high")}
        worst = row.get("worst attack")
        if leak[""] is None:
            known = [name for name in leaks_of(row) if row[name] is not None]
            worst = max(known, key=lambda name: row[name], default=None)
            leak = {which: None if worst is None else row.get(f"{worst} {which}".strip()) for which in leak}
        value, low, high, utility = finite(
            [float("nan") if one is None else one for one in (*leak.values(), row["test_auc"])]
        )
        return {
            "replica": row["replica"], "protection": row["protection"], "strength": row["strength"],
            "knob": row["knob"], "label": _label(row), "seed": row["seed"], "leak": value, "low": low, "high": high,
            "worst_attack": worst, "utility": utility, "utility_name": "test_auc", "done": True,
        }  # fmt: skip

    def _matrix(self, names: list[str], only: int | None = None) -> dict[str, Any] | None:
        whole = self._whole()
        if whole is None:
            return None
        return by_protection(
            [
                (
                    _label(row),
                    {
                        _spelled(name): [row.get(f"{name} {end}".strip()) for end in ("", "low", "high")]
                        for name in names
                    },
                )
                for row in whole.iter_rows(named=True)
                if only is None or row["replica"] == only
            ]
        )


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


def _spelled(column: str) -> tuple[str, str]:
    """The attack and what it was tried on, of a leak's column."""
    attack, _, layer = column.rpartition("@")
    return attack, layer


def _label(row: dict[str, Any]) -> str:
    """A setting in few words: "marvell scale=4"."""
    if row["knob"] is None or row["strength"] is None:
        return str(row["protection"])
    return f"{row['protection']} {row['knob']}={row['strength']:g}"
