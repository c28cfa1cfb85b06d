"""A sweep from data to results: settings, waves, training here or on many machines, one Parquet file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tacit._version import __version__
from tacit.errors import UsageError
from tacit.lab.data.rows import Data
from tacit.lab.stack.measuring import EVERY_BATCH
from tacit.lab.stack.network import Network
from tacit.lab.sweeping import memory as sizes
from tacit.lab.sweeping.checkpoints import EVERY, Begun
from tacit.lab.sweeping.cluster import Cluster, connected
from tacit.lab.sweeping.grids import grid
from tacit.lab.sweeping.recipe import Recipe, device_named, paper_of, recipe_for, shortened
from tacit.lab.sweeping.results import Sweep
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.store import Store
from tacit.lab.sweeping.wave import Progress, Row, Wave

__all__ = ["GOING_ON", "PROTECT", "sweep"]

PROTECT = ("iso", "max_norm", "marvell", "matched")
"""What is tried if nothing else is said."""

GOING_ON = "going on after update"
"""In what progress is told: a wave that was interrupted does not begin anew."""

_PARTS = 100  # of a wave, for a bar


def sweep(
    data: Data | str,
    *,
    protect: Sequence[str] = PROTECT,
    strengths: int = 8,
    seeds: int | Sequence[int] = 1,
    settings: Sequence[Setting] | None = None,
    epochs: int = 5,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    network: Network | Mapping[str, int] | None = None,
    device: str = "auto",
    out: Path | str | None = None,
    attacks: Sequence[str] = EVERY_BATCH,
    layers: Sequence[str] = ("cut", "layer1"),
    points: int = 50,
    thorough: bool = True,
    cluster: str | None = None,
    progress: Progress | None = None,
    memory: int | None = None,
    checkpoint_every: float = EVERY,
) -> Sweep:
    """Train every protection at every strength, measure what leaks on every batch, and what the model is worth.

    Replicas train together as one batched model, in as many waves as memory asks for. Each finished wave is kept under
    `out` at once, and the one that trains every few minutes: the same call after an interruption goes on from there.
    On a cluster only finished waves are kept.

    Args:
        data: a data set, or a name that `tacit.lab.data.load` knows.
        protect: protections as `tacit.lab.sweeping.grids.grid` reads them; `none` is always among them.
        strengths: how many of each protection.
        seeds: how many, or which: of first weights, batches and noise.
        settings: these and no others, in place of the three before.
        epochs: how often every row is visited.
        batch_size: the papers' for their data sets, else 1024, less where there are few rows.
        learning_rate: of Adam; the papers' for their data sets, else 0.001.
        network: what a replica is, or sizes that differ from the papers' (`{"cut": 4, "layers": 4}`).
        device: "cpu", "cuda", or "auto": CUDA where there is one.
        out: the folder for `results.parquet`; without one nothing is written.
        attacks: what is tried on every batch.
        layers: where.
        points: into about how many stretches a training is parted.
        thorough: whether the attacks that need recorded batches, and those on all visits, run at the end.
        cluster: the address of a Ray cluster that shares the work ("auto" finds the one that runs here).
        progress: told what is being done, the parts done and all parts.
        memory: bytes that a wave may take; 60% of what is free if not given.
        checkpoint_every: seconds between two checkpoints of a wave that trains, at least.
    """
    told: Progress = progress or (lambda *_: None)
    if isinstance(data, str):
        from tacit.lab.data import load

        told(f"loading {data}", 0, 0)
        data = load(data)
    paper = paper_of(data.name)
    which = range(seeds) if isinstance(seeds, int) else seeds
    wanted = settings or grid(protect, strengths, tuple(which), strongest=paper.strongest if paper else None)
    if len(set(wanted)) < len(wanted):
        raise UsageError("the same setting stands in the list twice with one seed: leave one out")
    recipe = recipe_for(
        data, epochs=epochs, attacks=attacks, layers=layers, batch_size=batch_size, learning_rate=learning_rate,
        network=network, points=points, thorough=thorough,
        device=device if cluster else device_named(device),
    )  # fmt: skip
    folder = None if out is None else _made(Path(out))
    if cluster is None:
        return _swept(Store(folder, recipe, wanted), recipe, data, told, memory, checkpoint_every)
    with connected(cluster) as machines:
        recipe = replace(recipe, device=machines.device(device))
        return _swept(Store(folder, recipe, wanted), recipe, data, told, memory, checkpoint_every, machines)


def _swept(
    store: Store,
    recipe: Recipe,
    data: Data,
    told: Progress,
    memory: int | None,
    every: float,
    machines: Cluster | None = None,
) -> Sweep:
    """What is missing, wave by wave, and then all of it."""
    before = store.finished()
    if before is not None:
        return before
    start = time.perf_counter()
    missing = store.missing()
    allowed = memory or (machines.budget() if machines else sizes.budget(recipe.device))
    most = sizes.per_wave(recipe, data, allowed)
    begun = [] if machines else store.begun(missing, most)
    waves = [{number: missing.pop(number) for number in one.numbers} for one in begun]
    waves += sizes.in_waves(missing, most, least=machines.workers if machines else 1)
    done = (
        machines.run(recipe, data, waves, told) if machines else _here(recipe, data, waves, told, store, begun, every)
    )
    for rows in done:
        store.keep(rows)
    return store.finish(
        {
            "data": data.name, "made": list(data.made), "skipped": data.skipped, "share": data.share,
            "papers": shortened(recipe), "waves": [len(wave) for wave in waves],
            "memory": {"estimated": sizes.for_recipe(recipe, data, len(waves[0])) if waves else 0, "allowed": allowed},
            "seconds": time.perf_counter() - start, "machines": machines.workers if machines else None,
            "versions": {"tacit": __version__, "torch": torch.__version__},
            "hardware": _hardware(recipe.device) if machines is None else f"cluster of {machines.workers} workers",
        }
    )  # fmt: skip


def _here(
    recipe: Recipe,
    data: Data,
    waves: Sequence[Mapping[int, Setting]],
    told: Progress,
    store: Store,
    begun: list[Begun],
    every: float,
) -> Iterator[list[Row]]:
    """Every wave on this machine, one after the other; the first ones may have begun before."""
    for place, settings in enumerate(waves):
        many = f"wave {place + 1} of {len(waves)}, " if len(waves) > 1 else ""
        name = f"{many}{len(settings)} replicas"
        told(f"{name}: beginning", place * _PARTS, len(waves) * _PARTS)
        wave = Wave(recipe, data, settings)
        if begun:
            before = begun.pop(0)  # which lets its tensors go
            wave.restore(before.state)
            told(f"{name}: {GOING_ON} {before.done} of {before.updates}", place * _PARTS, len(waves) * _PARTS)
            del before
        keeping = store.keeping(wave.numbers, every)
        yield wave.run(_Told(told, name, place, len(waves)), *([] if keeping is None else [keeping]))


class _Told:
    """Progress of one wave as progress of all of them."""

    def __init__(self, told: Progress, name: str, place: int, count: int) -> None:
        self.told, self.name, self.place, self.count = told, name, place, count

    def __call__(self, what: str, done: int, total: int) -> None:
        """Tell it on."""
        self.told(
            f"{self.name}: {what}", self.place * _PARTS + round(_PARTS * done / max(1, total)), self.count * _PARTS
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
