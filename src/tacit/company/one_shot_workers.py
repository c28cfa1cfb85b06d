"""A feature party's network on several processes and machines: `torchrun ... -m tacit train`.

The first process is the party: it meets the partner, keeps the books, attacks what is about to leave, and writes. The
others read what it wrote in the run's folder, help it learn, and open no connection but to it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.cache import MANIFEST, reused
from tacit.align.encoder import Inputs
from tacit.company.align import columns_of
from tacit.company.folder import Folder
from tacit.company.models import load_factory
from tacit.company.one_shot_common import threads_of
from tacit.errors import DataError, UsageError
from tacit.one_shot.forms import shown
from tacit.one_shot.learn import Learner, learner
from tacit.one_shot.learn.network import Network
from tacit.one_shot.learn.own import own
from tacit.one_shot.mechanisms import Mechanism, read_mechanism
from tacit.one_shot.workers import Workers

ALIGNED, ALL = "inputs", "inputs of all rows"
"""The tables of a run, as folders: the rows that are common to all parties, and all that the party has."""

LEARNING = "learning"
"""The folder of a run that says, until something leaves, how far learning was."""


def check_several(folder: Folder, workers: Workers) -> None:
    """Refuse, before anything is asked for, what only one process can do."""
    if workers.count == 1:
        return
    learns = "a label party's model" if folder.config.role == "label" else f"the learner {_bare(folder).name!r}"
    if learns != "the learner 'network'":
        raise UsageError(
            f"torchrun has started {workers.count} processes, and {learns} takes one, with all cores of its machine: "
            'start `tacit train` without torchrun; a feature party\'s [learn] learner = "network" learns on several'
        )


def learner_of(folder: Folder, workers: Workers, table: str = ALIGNED) -> Learner:
    """What learns, as party.toml has it; a network with all processes, and from where it was when it was killed.

    Args:
        folder: of the party.
        workers: the processes, this one the first of them.
        table: whose rows it will be given.
    """
    made = _bare(folder)
    if not isinstance(made, Network):
        return made
    kept = replace(workers, keep=_run(folder) / LEARNING, device=folder.config.training.device)
    return replace(made, workers=kept, begin=partial(tell, folder, workers, table))


def _bare(folder: Folder) -> Learner:
    learn = folder.config.learn
    if learn.factory is not None:
        return own(load_factory(folder.path, learn.factory, "[learn]")())
    options: dict[str, dict[str, Any]] = {"network": {"pretraining": learn.pretrain}, "trees": {"sample": learn.sample}}
    return learner(learn.learner, **options.get(learn.learner, {}))


def tell(folder: Folder, workers: Workers, table: str, rows: int, labels: int = 0, seed: int = 0) -> None:
    """Tell the others which rows of which table are next, and wait until all have them; without labels that is all."""
    if workers.count > 1:
        digest = json.loads((_run(folder) / table / MANIFEST).read_bytes())["digest"]
        workers.same({"table": table, "digest": digest, "rows": rows, "labels": labels, "seed": seed})
        workers.mean(1.0, 1)


def follow(folder: Folder, workers: Workers) -> None:
    """What every process but the first does: help it until it lets go. Nothing is written, and no partner is met."""
    workers.join()
    tables: dict[str, Inputs] = {}
    while (task := workers.same(None)) is not None:
        name = task["table"]
        if name not in tables:
            tables[name] = _table(_run(folder) / name, task["digest"], workers)
        workers.mean(1.0, 1)  # this one has the table; now all have
        if task["labels"]:
            learn, made = folder.config.learn, _bare(folder)
            assert isinstance(made, Network)  # the first process looked
            inputs = shown(tables[name][: task["rows"]], columns_of(folder), learn.withheld)
            sent, mechanism = told(_run(folder) / "flips")
            replace(made, workers=replace(workers, device=folder.config.training.device)).fit(
                inputs, sent[: task["labels"]], mechanism, folder.one_shot.exchange.width, seed=task["seed"],
                threads=threads_of(folder),
            )  # fmt: skip


def told(path: Path) -> tuple[NDArray[Any], Mechanism]:
    """What was told about the training rows' labels, and what it means, from the part of a run in which it is kept."""
    return np.load(path / "sent.npy"), read_mechanism(json.loads((path / "mechanism.json").read_bytes()))


def _run(folder: Folder) -> Path:
    return folder.path / "runs" / folder.one_shot.run


def _table(path: Path, digest: str, workers: Workers) -> Inputs:
    """The table that the first process has made, mapped; another one, or a damaged one, is an error."""
    try:
        found = reused(path, json.loads((path / MANIFEST).read_bytes())["facts"])
    except (OSError, ValueError, KeyError):
        found = None
    if found is None or found.digest.hex() != digest:
        what = "holds no encoded table, or no whole one" if found is None else "holds another table than the first's"
        raise DataError(
            f"{workers.name}: {path} {what}: every machine must see the party's folder as the first process does: "
            "share it, or copy it again"
        )
    return found.inputs
