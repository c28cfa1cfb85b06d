"""A sweep's folder: each finished wave at once, the one that trains now and then, at the end one file.

At the end all of it is written under another name, then the waves are removed, and then it gets its own: whenever that
is cut short, the next call finds either the waves or the whole, and nobody ever finds two results.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import StorageError, UsageError
from tacit.lab.sweeping import results
from tacit.lab.sweeping.checkpoints import SUFFIX, Begun, Keeping, begun_in
from tacit.lab.sweeping.recipe import Recipe
from tacit.lab.sweeping.results import Sweep
from tacit.lab.sweeping.settings import Setting

if TYPE_CHECKING:
    import polars as pl


class Store:
    """What is kept of a sweep: in a folder, or in memory alone where there is none."""

    def __init__(self, folder: Path | None, recipe: Recipe, settings: Sequence[Setting]) -> None:
        self.folder, self.settings = folder, settings
        self.what = {"recipe": recipe.as_dict(), "settings": [[one.spelled, one.seed] for one in settings]}
        self.notes: list[str] = []  # what a user should know about checkpoints that were of no use
        self._kept: list[pl.DataFrame] = []

    def finished(self) -> Sweep | None:
        """The whole sweep, if this one was finished here before; another one's results are refused."""
        if self.folder is None:
            return None
        if self._whole.exists():
            self._settle()
        if not self._results.exists():
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

    def begun(self, missing: Mapping[int, Setting], most: int) -> list[Begun]:
        """The interrupted waves that can go on."""
        if self.folder is None:
            return []
        for setting in missing.values():
            setting.build()  # a checkpoint is only read with what it names imported
        found, notes = begun_in(self._waves, self.what)
        self.notes += notes
        left, waves = set(missing), list[Begun]()
        for one in found:
            if len(one.numbers) > most:
                self.notes.append(
                    f"{one.path} was left out: its {len(one.numbers)} replicas do not fit into memory now"
                )
            elif left.issuperset(one.numbers):  # or it was killed just after its wave was finished
                left.difference_update(one.numbers)
                waves.append(one)
        return waves

    def keeping(self, numbers: Sequence[int], every: float) -> Keeping | None:
        """What writes the wave of these replicas down while it trains; None where nothing is kept on disk."""
        if self.folder is None:
            return None
        return Keeping(self._path(numbers, SUFFIX), self.what, every, self.notes)

    def keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a finished wave down; its checkpoint has served."""
        table = results.as_table(rows)
        self._kept.append(table)
        if self.folder is not None:
            numbers = sorted({int(row["replica"]) for row in rows})
            results.write(self._path(numbers, ".parquet"), table, self.what)
            self._path(numbers, SUFFIX).unlink(missing_ok=True)

    def finish(self, about: Mapping[str, Any]) -> Sweep:
        """All waves as one file, with what there is to know about them; the waves' own files go."""
        import polars as pl

        table = pl.concat(self._kept, how="diagonal").sort("replica", "part", "step")
        fixed = [*results.WORST, "notes"]  # a wave with other columns than the first would have put its own behind
        table = table.select([name for name in table.columns if name not in fixed] + fixed)
        metadata = {**self.what, **about, "notes": self.notes}
        if self.folder is None:
            return Sweep(None, table, metadata)
        results.write(self._whole, table, metadata)
        self._settle()
        return Sweep(self._results, table, metadata)

    def _settle(self) -> None:
        """The waves go, and what was made of them gets its name."""
        try:
            if self._waves.exists():
                shutil.rmtree(self._waves)
            self._whole.replace(self._results)
        except OSError as error:
            raise StorageError(
                f"{self._waves} can't be removed ({error.strerror}), though the sweep is done: look at who owns it, "
                "then give the same command again"
            ) from error

    @property
    def _results(self) -> Path:
        return Path(self.folder or ".") / "results.parquet"

    @property
    def _whole(self) -> Path:
        return self._results.with_suffix(".whole")

    @property
    def _waves(self) -> Path:
        return Path(self.folder or ".") / "waves"

    def _path(self, numbers: Sequence[int], suffix: str) -> Path:
        """A wave's file, by a name that is a digest of the sweep and of its replicas."""
        name = hashlib.sha256(json.dumps([self.what, sorted(numbers)], sort_keys=True).encode()).hexdigest()[:16]
        return self._waves / f"{name}{suffix}"

    def _same(self, found: Sweep) -> None:
        """Refuse what another sweep has left, and name what differs."""
        then, now = found.metadata.get("recipe", {}), self.what["recipe"]
        assert isinstance(now, dict)
        remedy = "choose another folder, give the same options again, or delete what is there"
        for key in now:
            if then.get(key) != now[key]:
                if key == "digest":
                    raise UsageError(
                        f"{found.path} was made with other rows of {now['data']} (by their digest): {remedy}"
                    )
                raise UsageError(f"{found.path} was made with {key} = {then.get(key)}, now it is {now[key]}: {remedy}")
        before, wanted = found.metadata.get("settings", []), self.what["settings"]
        if before != wanted:
            first = next((pair for pair in zip(before, wanted, strict=False) if pair[0] != pair[1]), None)
            detail = "" if first is None else f", first {first[0]} and now {first[1]}"
            raise UsageError(
                f"{found.path} was made with other settings ({len(before)}, now {len(wanted)}{detail}): {remedy}"
            )
