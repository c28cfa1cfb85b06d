"""Waves on many machines: Ray carries the data there once and brings rows of results back (extra `cluster`).

Ray moves objects between the machines of one cluster, which belong to one owner, by its own means; nothing here is ever
sent to another party.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tacit.errors import LinkError, TacitError, UsageError
from tacit.lab.data.rows import Data, Rows
from tacit.lab.sweeping.recipe import Recipe
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.wave import Row, Wave
from tacit.progress import Progress


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """The cluster at an address, for as long as it is needed; see `tacit.align.cluster.joined`."""
    from tacit.align.cluster import joined  # a worker that only trains has no cryptography

    with joined(address) as ray:
        yield Cluster(ray)


class Cluster:
    """A Ray cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        found = ray.cluster_resources()
        self._gpus, self._cpus = int(found.get("GPU", 0)), int(found.get("CPU", 0))
        self.on_gpus = self._gpus > 0

    @property
    def workers(self) -> int:
        """How many waves can train at the same time."""
        return max(1, self._gpus if self.on_gpus else self._cpus)

    def device(self, wanted: str) -> str:
        """Where a worker trains; "auto" is its GPU if the cluster has any."""
        if wanted == "cuda" and not self._gpus:
            raise UsageError("the cluster has no GPU: take device auto or cpu")
        self.on_gpus = wanted != "cpu" and self._gpus > 0
        return "cuda" if self.on_gpus else "cpu"

    def run(
        self, recipe: Recipe, data: Data, waves: Sequence[Mapping[int, Setting]], told: Progress
    ) -> Iterator[list[Row]]:
        """The rows of each wave, in the order in which they are finished."""
        ray = self._ray
        train = self._remote(_train)
        packed = ray.put(_packed(data))
        waiting = [train.remote(recipe, packed, dict(wave)) for wave in waves]
        while waiting:
            done = len(waves) - len(waiting)
            told(f"{done} of {len(waves)} waves on {self.workers} workers", done, len(waves))
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield self._rows(ready[0])

    def _rows(self, reference: Any) -> list[Row]:
        errors = self._ray.exceptions
        try:
            rows: list[Row] = self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, TacitError):
                raise error.cause from None
            raise
        except errors.RayError as error:
            raise LinkError(
                f"a worker of the cluster was lost ({type(error).__name__}): finished waves are kept, give the same "
                "command again"
            ) from error
        return rows

    def _remote(self, function: Any) -> Any:
        needs = {"num_cpus": 1, "num_gpus": 1 if self.on_gpus else 0}
        return self._ray.remote(**needs)(function)


def _packed(data: Data) -> tuple[Any, ...]:
    """A data set as arrays, which Ray shares between the workers of a machine without copying them."""
    parts = [
        [[x.cpu().numpy() for x in each] for each in (rows.features, rows.own, (rows.labels,))]
        for rows in (data.train, data.test)
    ]
    return data.name, data.inputs, parts


def _train(recipe: Recipe, packed: tuple[Any, ...], settings: dict[int, Setting]) -> list[Row]:
    name, inputs, parts = packed
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes on rows
        tensors = [[tuple(map(torch.from_numpy, each)) for each in part] for part in parts]
    train, test = (Rows(features, own, labels) for features, own, (labels,) in tensors)
    return Wave(recipe, Data(name, train, test, inputs), settings).run()
