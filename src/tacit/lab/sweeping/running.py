"""A sweep from data to results: settings, waves, training here or on many machines, one Parquet file.

A folder keeps each finished wave at once. At the end all of it is written under another name, then the waves are
removed, and then it gets its own: whenever that is cut short, the next call finds either the waves or the whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit._version import __version__
from tacit.errors import StorageError, UsageError
from tacit.lab.data.rows import Data
from tacit.lab.sweeping import results
from tacit.lab.sweeping.cluster import Cluster, connected
from tacit.lab.sweeping.recipe import Plan, Recipe, paper_of, recipe_for, shortened
from tacit.lab.sweeping.results import WORST, Sweep
from tacit.lab.sweeping.settings import Setting, grid
from tacit.lab.sweeping.wave import Row, Wave
from tacit.progress import Progress

if TYPE_CHECKING:
    import polars as pl

_PARTS = 100  # of a wave, for a bar
# replicas that train together: on a CPU more save no arithmetic, and what is too much is killed; on CUDA a wave for
# which memory is short is halved
_TOGETHER = {"cpu": 8, "cuda": 128}


def sweep(
    data: Data | str,
    plan: Plan | None = None,
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Sweep:
    """Train every protection at every strength, measure what leaks on every batch, and what the model is worth.

    Replicas train together as one batched model, some at a time. Each finished wave is kept under
    `out` at once: the same call after an interruption goes on with the next.

    Args:
        data: a data set, or a name that `tacit.lab.data.load` knows.
        plan: what to train and to try; the usual one if not given.
        out: the folder for `results.parquet`; without one nothing is written.
        progress: told what is being done, the parts done and all parts.
        options: fields of `tacit.lab.sweeping.recipe.Plan` that differ from the plan.
    """
    told: Progress = progress or (lambda *_: None)
    asked = replace(plan or Plan(), **options)
    if isinstance(data, str):
        from tacit.lab.data import load

        told(f"loading {data}", 0, 0)
        data = load(data)
    paper = paper_of(data.name)
    which = range(asked.seeds) if isinstance(asked.seeds, int) else asked.seeds
    settings = asked.settings or grid(
        asked.protect, asked.strengths, tuple(which), strongest=paper.strongest if paper else None
    )
    if len(set(settings)) < len(settings):
        raise UsageError("the same setting stands in the list twice with one seed: leave one out")
    recipe, folder = recipe_for(data, asked), None if out is None else Path(out)
    try:
        if folder is not None:  # before hours of training and not after them
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"out = {out} can't be made a folder ({error.strerror}): choose another path") from None
    if asked.cluster is None:
        return _swept(asked, recipe, data, Store(folder, recipe, settings), told)
    with connected(asked.cluster) as machines:
        recipe = replace(recipe, device=machines.device(asked.device))
        return _swept(asked, recipe, data, Store(folder, recipe, settings), told, machines)


def _swept(
    plan: Plan, recipe: Recipe, data: Data, store: Store, told: Progress, machines: Cluster | None = None
) -> Sweep:
    """What is missing, wave by wave, and then all of it."""
    before = store.finished()
    if before is not None:
        return before
    start, missing = time.perf_counter(), store.missing()
    waves = in_waves(
        missing, plan.together or _TOGETHER[recipe.device.partition(":")[0]], machines.workers if machines else 1
    )
    for rows in machines.run(recipe, data, waves, told) if machines else _here(recipe, data, waves, told):
        store.keep(rows)
    cuda = recipe.device.startswith("cuda")
    here = torch.cuda.get_device_name(recipe.device) if cuda else f"CPU, {torch.get_num_threads()} threads"
    return store.finish(
        {
            "data": data.name, "share": data.share,
            "papers": shortened(recipe), "waves": [len(wave) for wave in waves],
            "seconds": time.perf_counter() - start, "machines": machines.workers if machines else None,
            "versions": {"tacit": __version__, "torch": torch.__version__},
            "hardware": f"cluster of {machines.workers} workers" if machines else here,
        }
    )  # fmt: skip


def _here(recipe: Recipe, data: Data, waves: Sequence[Mapping[int, Setting]], told: Progress) -> Iterator[list[Row]]:
    """Every wave on this machine, one after the other."""
    for place, settings in enumerate(waves):
        name = f"wave {place + 1} of {len(waves)}, " if len(waves) > 1 else ""
        name += f"{len(settings)} replicas"

        def of_all(what: str, done: int, total: int, name: str = name, place: int = place) -> None:
            told(f"{name}: {what}", place * _PARTS + round(_PARTS * done / max(1, total)), len(waves) * _PARTS)

        of_all("beginning", 0, 1)
        yield from _trained(recipe, data, settings, of_all)


def _trained(recipe: Recipe, data: Data, settings: Mapping[int, Setting], told: Progress) -> Iterator[list[Row]]:
    """A wave, or its halves one after the other where the device has too little memory for it."""
    try:
        rows = Wave(recipe, data, settings).run(told)
    except torch.OutOfMemoryError:
        if len(settings) == 1:
            raise UsageError(
                "the device has too little memory for one replica: take a smaller batch_size, fewer rows or "
                "thorough=False"
            ) from None
    else:
        yield rows
        return
    torch.cuda.empty_cache()
    for half in in_waves(settings, -(-len(settings) // 2), 1):
        yield from _trained(recipe, data, half, told)


def in_waves(settings: Mapping[int, Setting], most: int, least: int) -> list[dict[int, Setting]]:
    """Settings by the number of their replica, parted in their order into waves of nearly equal size.

    At most so many train together; there are at least so many waves, for machines that share the work, if there are as
    many settings.
    """
    count = min(len(settings), max(-(-len(settings) // most), least))
    parts = np.array_split(np.array(list(settings)), count) if count else []
    return [{number: settings[number] for number in part.tolist()} for part in parts]


@dataclass
class Store:
    """What is kept of a sweep: in a folder, or in memory alone where there is none."""

    folder: Path | None
    recipe: Recipe
    settings: Sequence[Setting]

    def __post_init__(self) -> None:
        spelled = [[one.spelled, one.seed] for one in self.settings]
        self.what: dict[str, Any] = {"recipe": self.recipe.as_dict(), "settings": spelled}
        folder = self.folder or Path()
        self._results, self._whole, self._waves = (
            folder / name for name in ("results.parquet", "results.whole", "waves")
        )
        self._kept: list[pl.DataFrame] = []

    def finished(self) -> Sweep | None:
        """The whole sweep, if this one was finished here before; another one's results are refused."""
        if self.folder is None:
            return None
        if self._whole.exists():
            self._settle()
        return self._same(results.read(self._results)) if self._results.exists() else None

    def missing(self) -> dict[int, Setting]:
        """The settings of which no finished wave is here yet, by the number of their replica."""
        paths = [] if self.folder is None else sorted(self._waves.glob("*.parquet"))
        self._kept = [self._same(results.read(path)).table for path in paths]
        done = {number for table in self._kept for number in table["replica"].unique()}
        return {number: one for number, one in enumerate(self.settings) if number not in done}

    def keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a finished wave down, by a name that is a digest of the sweep and of its replicas."""
        table = results.as_table(rows)
        self._kept.append(table)
        if self.folder is not None:
            about = [self.what, sorted({int(row["replica"]) for row in rows})]
            name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
            results.write(self._waves / f"{name}.parquet", table, self.what)

    def finish(self, about: Mapping[str, Any]) -> Sweep:
        """All waves as one file, with what there is to know about them; the waves' own files go."""
        import polars as pl

        table = pl.concat(self._kept, how="diagonal").sort("replica", "part", "step")
        fixed = [*WORST, "notes"]  # a wave with other columns than the first would have put its own behind
        table = table.select([name for name in table.columns if name not in fixed] + fixed)
        metadata = {**self.what, **about}
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

    def _same(self, found: Sweep) -> Sweep:
        """The same, unless another sweep has left it: then it is refused, with what differs."""
        then, now = found.metadata.get("recipe", {}), self.what["recipe"]
        remedy = "choose another folder, give the same options again, or delete what is there"
        for key in now:
            if then.get(key) != now[key]:
                other = f"{key} = {then.get(key)}, now it is {now[key]}"
                if key == "digest":
                    other = f"other rows of {now['data']} (by their digest)"
                raise UsageError(f"{found.path} was made with {other}: {remedy}")
        before, wanted = found.metadata.get("settings", []), self.what["settings"]
        if before != wanted:
            first = next((pair for pair in zip(before, wanted, strict=False) if pair[0] != pair[1]), None)
            detail = "" if first is None else f", first {first[0]} and now {first[1]}"
            raise UsageError(
                f"{found.path} was made with other settings ({len(before)}, now {len(wanted)}{detail}): {remedy}"
            )
        return found
