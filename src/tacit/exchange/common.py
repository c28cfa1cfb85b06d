"""What both sides of a one-shot training do alike: say where they stand, and read their columns."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.cache import prepare
from tacit.align.encoder import Inputs
from tacit.arguments import device_named
from tacit.company.aligned import Aligned
from tacit.company.check import columns_of, names_of
from tacit.company.factories import load_factory
from tacit.company.folder import Folder
from tacit.company.status import Telling
from tacit.config import OneShotContract
from tacit.errors import UsageError
from tacit.labels.records import Keys
from tacit.progress import Progress


@dataclass(frozen=True)
class ExchangeTelling(Telling):
    """Where a run stands, part by part."""

    progress: Progress  # told what is being done, how much of it is done and how much there is
    _now: list[str] = field(default_factory=lambda: [""])
    _left: set[tuple[str, str]] = field(default_factory=set)
    _since: dict[str, float] = field(default_factory=dict)

    def part(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done, and how far it is."""
        begun = what != self._now[0]
        self._now[0] = what
        if begun:
            self.log("part", part=what)
        self.status.update(state="training", part=what, done=done, total=total, at_once=begun)
        self.progress(what, done, total)

    def limited(self, limit: float | None) -> None:
        """Say what limit the owner has set, where there is one."""
        if limit is not None:
            self.status.update(limit=limit, at_once=True)

    def missing(self, peer: str, why: str) -> None:
        """Say whose embedding is still to come, and why."""
        since = self._since.setdefault(peer, time.monotonic())
        self.waiting(peer, time.monotonic() - since, why)

    def left(self, what: str, to: str, rows: int, size: int) -> None:
        """Log what was sent, when and to whom; of an answer that is asked for again the first time counts."""
        if (what, to) not in self._left:
            self._left.add((what, to))
            self.log("left", what=what, to=to, rows=rows, bytes=size)

    def unpaid(self, rows: int) -> None:
        """Say for how many rows no budget had room, to their owner alone."""
        if rows:
            self.log("unpaid", rows=rows)
            self.status.update(unpaid=rows, at_once=True)

    def log(self, event: str, **details: object) -> None:
        """Add a line to the log."""
        self.status.log(event, **details)


def run_id(contract: OneShotContract, rows: Aligned) -> str:
    """Of one run alone: of this contract over this alignment."""
    return hashlib.sha256(f"one_shot {contract.digest} {rows.id}".encode()).hexdigest()


def seed_of(folder: Folder) -> int:
    """Of everything that is drawn at home: the settings', else one that hangs on the party's secret alone."""
    seed = folder.config.training.seed
    return int.from_bytes(hmac.digest(folder.secret, b"seed at home", "sha256")[:4], "big") if seed is None else seed


def check_at_home(folder: Folder) -> None:
    """See that what learns at home is here, before anything is flipped, asked for or sent."""
    config = folder.config
    try:
        device_named(config.training.device)
    except UsageError as error:
        raise UsageError(f"{folder.path / 'party.toml'}: [training] device: {error}") from None
    label = config.role == "label"
    factory = config.head.factory if label else config.learn.factory
    if factory is not None:
        load_factory(folder.path, factory, "[head]" if label else "[learn]")


def threads_of(folder: Folder) -> int:
    """That the party may use at home."""
    return folder.config.training.threads or os.cpu_count() or 1


def keys_of(folder: Folder, rows: Aligned, columns: Sequence[str], keyed: Callable[[NDArray[np.uint8]], Keys]) -> Keys:
    """The keys of what some columns call each aligned row, from the hashes of that.  (rows, 16)

    Every row that can be aligned must have a name that no other one has. A row that is gone has a key of its own.
    """
    found = rows.found(folder.data)
    keys = np.zeros((found.own.report.total, 16), np.uint8)
    if tuple(columns) == folder.table.ids:
        keys[found.own.rows] = keyed(found.own.hashes)
    else:
        hashes, at = names_of(folder.data, columns, found.own)
        keys[at] = keyed(hashes)
    there, all_keys = found.rows >= 0, rows.keys.copy()
    all_keys[there] = keys[found.rows[there]]
    return all_keys


def own_inputs(folder: Folder, rows: Aligned) -> Inputs:
    """The party's own columns in the common order; a label party may have none."""
    if not columns_of(folder).names:
        empty = torch.empty(rows.count, 0)
        return Inputs(empty.long(), empty, ())
    return _encoded(folder, rows, rows.rows, "inputs")


def every_row(folder: Folder, rows: Aligned) -> Inputs:
    """The party's own columns of all its rows, the aligned ones first: some learning needs no label.

    They are encoded as the aligned ones are, by what the training rows say.
    """
    total = rows.found(folder.data).own.report.total
    others = np.setdiff1d(np.arange(total, dtype=np.int64), rows.rows)
    numbers = np.concatenate([rows.rows, others])
    return _encoded(folder, rows, numbers, "inputs of all rows")


def _encoded(folder: Folder, rows: Aligned, numbers: NDArray[np.int64], cache: str) -> Inputs:
    contract = folder.one_shot
    kept, train = folder.run_folder(contract) / cache, rows.train
    inputs = prepare(folder.data, numbers, columns_of(folder), kept, train=train).inputs
    rows.found(folder.data)  # it was not changed meanwhile
    return inputs
