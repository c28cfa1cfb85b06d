"""A sweep from data to results: settings, waves, training here or on many machines, one Parquet file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tacit._version import __version__
from tacit.errors import UsageError
from tacit.lab.data.rows import Data
from tacit.lab.sweeping import memory as sizes
from tacit.lab.sweeping.checkpoints import Begun
from tacit.lab.sweeping.cluster import Cluster, connected
from tacit.lab.sweeping.grids import grid
from tacit.lab.sweeping.recipe import Plan, Recipe, paper_of, recipe_for, shortened
from tacit.lab.sweeping.results import Sweep
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.store import Store
from tacit.lab.sweeping.wave import Progress, Row, Wave

GOING_ON = "going on after update"
"""In what progress is told: a wave that was interrupted does not begin anew."""

_PARTS = 100  # of a wave, for a bar


def sweep(
    data: Data | str,
    plan: Plan | None = None,
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Sweep:
    """Train every protection at every strength, measure what leaks on every batch, and what the model is worth.

    Replicas train together as one batched model, in as many waves as memory asks for. Each finished wave is kept under
    `out` at once, and the one that trains every few minutes: the same call after an interruption goes on from there.
    On a cluster only finished waves are kept.

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
    recipe = recipe_for(data, asked)
    folder = None if out is None else _made(Path(out))
    if asked.cluster is None:
        return _Run(asked, recipe, data, Store(folder, recipe, settings), told).swept()
    with connected(asked.cluster) as machines:
        recipe = replace(recipe, device=machines.device(asked.device))
        return _Run(asked, recipe, data, Store(folder, recipe, settings), told, machines).swept()


@dataclass(frozen=True)
class _Run:
    """One call of `sweep`."""

    plan: Plan
    recipe: Recipe
    data: Data
    store: Store
    told: Progress
    machines: Cluster | None = None

    def swept(self) -> Sweep:
        """What is missing, wave by wave, and then all of it."""
        before = self.store.finished()
        if before is not None:
            return before
        start, recipe, data, machines = time.perf_counter(), self.recipe, self.data, self.machines
        missing = self.store.missing()
        allowed = self.plan.memory or (machines.budget() if machines else sizes.budget(recipe.device))
        most = sizes.per_wave(recipe, data, allowed)
        begun = [] if machines else self.store.begun(missing, most)
        waves = [{number: missing.pop(number) for number in wave.numbers} for wave in begun]
        waves += sizes.in_waves(missing, most, least=machines.workers if machines else 1)
        for rows in machines.run(recipe, data, waves, self.told) if machines else self._here(waves, begun):
            self.store.keep(rows)
        estimated = sizes.estimate(recipe, data, len(waves[0])) if waves else 0
        return self.store.finish(
            {
                "data": data.name, "made": list(data.made), "skipped": data.skipped, "share": data.share,
                "papers": shortened(recipe), "waves": [len(wave) for wave in waves],
                "memory": {"estimated": estimated, "allowed": allowed},
                "seconds": time.perf_counter() - start, "machines": machines.workers if machines else None,
                "versions": {"tacit": __version__, "torch": torch.__version__},
                "hardware": f"cluster of {machines.workers} workers" if machines else _hardware(recipe.device),
            }
        )  # fmt: skip

    def _here(self, waves: Sequence[Mapping[int, Setting]], begun: list[Begun]) -> Iterator[list[Row]]:
        """Every wave on this machine, one after the other; the first ones may have begun before."""
        for place, settings in enumerate(waves):
            many = f"wave {place + 1} of {len(waves)}, " if len(waves) > 1 else ""
            told = _of_all(self.told, f"{many}{len(settings)} replicas", place, len(waves))
            told("beginning", 0, 1)
            wave = Wave(self.recipe, self.data, settings)
            if begun:
                before = begun.pop(0)  # which lets its tensors go
                wave.restore(before.state)
                told(f"{GOING_ON} {before.done} of {before.updates}", 0, 1)
                del before
            keeping = self.store.keeping(wave.numbers, self.plan.checkpoint_every)
            yield wave.run(told, *([] if keeping is None else [keeping]))


def _of_all(told: Progress, name: str, place: int, count: int) -> Progress:
    return lambda what, done, total: told(
        f"{name}: {what}", place * _PARTS + round(_PARTS * done / max(1, total)), count * _PARTS
    )


def _made(folder: Path) -> Path:
    """The folder of a sweep, made before hours of training and not after them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"out = {folder} can't be made a folder ({error.strerror}): choose another path") from None
    return folder


def _hardware(device: str) -> str:
    name: Any = torch.cuda.get_device_name(torch.device(device)) if device.startswith("cuda") else "CPU"
    return f"{name}, {torch.get_num_threads()} threads" if name == "CPU" else str(name)
