"""A sweep's folder: each finished wave at once, so that an interrupted sweep goes on; at the end one file."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError
from tacit.lab.sweeping import results
from tacit.lab.sweeping.recipe import Recipe
from tacit.lab.sweeping.results import Sweep
from tacit.lab.sweeping.settings import Setting

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Store"]


class Store:
    """What is kept of a sweep: in a folder, or in memory alone where there is none.

    Args:
        folder: where; None keeps nothing on disk.
        recipe: what all replicas share.
        settings: of all replicas, in order.
    """

    def __init__(self, folder: Path | None, recipe: Recipe, settings: Sequence[Setting]) -> None:
        self.folder, self.settings = folder, settings
        self.what = {"recipe": recipe.as_dict(), "settings": [[one.spelled, one.seed] for one in settings]}
        self._kept: list[pl.DataFrame] = []

    def finished(self) -> Sweep | None:
        """The whole sweep, if this one was finished here before; another one's results are refused."""
        if self.folder is None or not self._results.exists():
            return None
        found = results.read(self._results)
        self._same(found)
        return found

    def missing(self) -> dict[int, Setting]:
        """The settings of which no finished wave is here yet, by the number of their replica."""
        if self.folder is not None:
            found = [results.read(path) for path in sorted(self._waves.glob("*.parquet"))]
            for one in found:
                self._same(one)
            self._kept = [one.table for one in found]
        done = {number for table in self._kept for number in table["replica"].unique()}
        return {number: one for number, one in enumerate(self.settings) if number not in done}

    def keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a finished wave down."""
        table = results.as_table(rows)
        self._kept.append(table)
        if self.folder is not None:
            numbers = sorted({int(row["replica"]) for row in rows})
            name = hashlib.sha256(json.dumps([self.what, numbers], sort_keys=True).encode()).hexdigest()[:16]
            results.write(self._waves / f"{name}.parquet", table, self.what)

    def finish(self, about: Mapping[str, Any]) -> Sweep:
        """All waves as one file, with what there is to know about them; the waves' own files go."""
        import polars as pl

        table = pl.concat(self._kept, how="diagonal").sort("replica", "part", "step")
        fixed = [*results.WORST, "notes"]  # a wave with other columns than the first would have put its own behind
        table = table.select([name for name in table.columns if name not in fixed] + fixed)
        metadata = {**self.what, **about}
        if self.folder is None:
            return Sweep(None, table, metadata)
        results.write(self._results, table, metadata)
        shutil.rmtree(self._waves, ignore_errors=True)
        return Sweep(self._results, table, metadata)

    @property
    def _results(self) -> Path:
        return Path(self.folder or ".") / "results.parquet"

    @property
    def _waves(self) -> Path:
        return Path(self.folder or ".") / "waves"

    def _same(self, found: Sweep) -> None:
        """Refuse what another sweep has left, and name what differs."""
        then, now = found.metadata.get("recipe", {}), self.what["recipe"]
        assert isinstance(now, dict)
        remedy = "choose another folder, give the same options again, or delete what is there"
        for key in now:
            if then.get(key) != now[key]:
                raise UsageError(f"{found.path} was made with {key} = {then.get(key)}, now it is {now[key]}: {remedy}")
        before, wanted = found.metadata.get("settings", []), self.what["settings"]
        if before != wanted:
            first = next((pair for pair in zip(before, wanted, strict=False) if pair[0] != pair[1]), None)
            detail = "" if first is None else f", first {first[0]} and now {first[1]}"
            raise UsageError(
                f"{found.path} was made with other settings ({len(before)}, now {len(wanted)}{detail}): {remedy}"
            )
