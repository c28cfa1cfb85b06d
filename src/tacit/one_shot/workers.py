"""Several processes of one party that learn together, as torchrun starts them.

All go through the batches of one process, each with its share of every batch, and every gradient is the mean over the
whole batch: what they learn is what one process learns, up to rounding. The first process alone knows the partner and
writes to the disk. They talk over gloo, in the clear: a network that only their owner's machines reach is for that.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed.nn.functional  # if it were imported after `join`, it would hold on to the processes' group
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed.rendezvous import rendezvous

from tacit.disk import remove
from tacit.errors import LinkError, StorageError, UsageError
from tacit.models.layers import device_named
from tacit.wire.checkpoint import flatten, load, rebuild, save

PATIENCE = datetime.timedelta(days=30)
"""For which processes wait for each other: the first one may wait for its partner, and torchrun watches."""

_NOT_THERE = datetime.timedelta(seconds=3)  # after which a store that does not answer is none
_LEFT_OUT = 10  # one row of so many is left out to stop on, and every process needs one


@dataclass(frozen=True)
class Share:
    """What one process has of a batch."""

    rows: slice  # of the batch
    batch: int  # the rows of the whole batch
    weight: float  # of the mean over one's rows, so that the mean over processes is that over the batch


@dataclass(frozen=True)
class Workers:
    """A process among those that learn together."""

    rank: int = 0  # its number; 0 is the first one
    count: int = 1  # how many there are
    here: int = 1  # how many of them share this machine's cores
    keep: Path | None = None  # the folder in which the first one writes how far it is, to go on from; None for none
    device: str = "cpu"  # where networks learn: "cpu", "cuda", or "auto" for CUDA where there is one
    cut_from: int = 1 << 12  # codes from which on several processes cut a table up among them

    @classmethod
    def started(cls) -> Workers:
        """This process as torchrun has started it; one alone where it has not."""
        if not distributed.is_torchelastic_launched():
            return cls()
        rank, count, here = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        return cls(rank, count, here)

    def within(self, folder: str) -> Workers:
        """The same with a folder of its own below."""
        return replace(self, keep=None if self.keep is None else self.keep / folder)

    @property
    def where(self) -> torch.device:
        """The device of this process; several on one machine take its GPUs by turns."""
        if device_named(self.device) == "cpu":
            return torch.device("cpu")
        return torch.device("cuda", self.rank % self.here % torch.cuda.device_count())

    @property
    def name(self) -> str:
        """For errors."""
        return f"process {self.rank} of {self.count} on {socket.gethostname()}"

    def join(self) -> None:
        """Wait until all are here."""
        if self.count > 1:
            if self.here == self.count and any(name == "lo" for _, name in socket.if_nameindex()):
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # nobody else needs to reach them
            store = self._store()
            distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=self.count, timeout=PATIENCE)

    def _store(self) -> TCPStore:
        """Where they find each other: one of this start alone, for torchrun's keeps what was there before a restart."""
        kept, host = next(rendezvous("env://", timeout=PATIENCE))[0], os.environ["MASTER_ADDR"]
        if self.rank == 0:
            store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
            kept.set("tacit", str(store.port))
            return store
        while True:
            try:
                store = TCPStore(host, int(kept.get("tacit")), is_master=False, timeout=_NOT_THERE)
            except distributed.DistError:  # that of a start before this one
                continue
            store.set_timeout(PATIENCE)
            return store

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything in which they talk: where another process ends, this one says so."""
        try:
            yield
            if self.count > 1:
                distributed.destroy_process_group()  # and its threads, which could abort a process that ends
        except RuntimeError as error:
            if self.count == 1 or not ("gloo" in str(error) or isinstance(error, distributed.DistError)):
                raise
            raise LinkError(
                f"{self.name}: another process of this party has ended: see what it said, and give the same command "
                "again, which goes on from the last epoch; torchrun --max-restarts 3 does that by itself"
            ) from error

    def check(self, rows: int) -> None:
        """Refuse to begin with more processes than rows can be shared out to."""
        if self.count > 1 and rows < self.count * _LEFT_OUT:
            raise UsageError(
                f"{rows} rows are too few for {self.count} processes: start at most {max(1, rows // _LEFT_OUT)} with "
                "torchrun --nproc-per-node"
            )

    def share(self, batch: int) -> Share:
        """Of a batch of so many rows; who gets none counts the first one for nothing."""
        rows = slice(self.rank, None, self.count)
        mine = len(range(batch)[rows])
        return Share(rows, batch, mine * self.count / batch) if mine else Share(slice(1), batch, 0.0)

    def wrapped(self, net: nn.Module, cut: Collection[str]) -> nn.Module:
        """The network so that its gradients are means over all processes, those of cut tables excepted."""
        if self.count == 1:
            return net
        kind = nn.parallel.DistributedDataParallel
        kind._set_params_and_buffers_to_ignore_for_model(net, list(cut))
        return kind(net)

    def whole_table(self, mine: Tensor, rows: int) -> Tensor:
        """A tensor of so many rows from the parts of all processes, of which each has every n-th row."""
        whole = mine.new_empty(rows, mine.shape[1])
        for rank in range(self.count):
            place = whole[rank :: self.count]
            part = mine.contiguous() if rank == self.rank else torch.empty_like(place)
            distributed.broadcast(part, rank)
            place.copy_(part)
        return whole

    def whole_at_first(self, mine: Tensor, rows: int) -> Tensor | None:
        """The same at the first process alone."""
        if self.rank:
            distributed.send(mine.contiguous(), 0)
            return None
        whole = mine.new_empty(rows, mine.shape[1])
        whole[:: self.count] = mine
        for rank in range(1, self.count):
            part = torch.empty_like(whole[rank :: self.count])
            distributed.recv(part, rank)
            whole[rank :: self.count] = part
        return whole

    def mean(self, value: float, rows: int) -> float:
        """The mean over all rows of all processes, where this is that over one's own."""
        if self.count == 1:
            return value
        sums = torch.tensor([value * rows, rows], dtype=torch.float64)
        distributed.all_reduce(sums)
        return float(sums[0] / sums[1])

    def same(self, tree: Any) -> Any:
        """What the first process has, in all of them: plain values and tensors, as in checkpoints, and no pickle."""
        if self.count == 1:
            return tree
        skeleton, tensors = flatten(tree if self.rank == 0 else None)
        tensors = [tensor.detach().cpu().contiguous() for tensor in tensors]
        shapes = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
        head = json.dumps([skeleton, shapes]).encode()
        size = torch.tensor([len(head)])
        distributed.broadcast(size, 0)
        text = torch.frombuffer(bytearray(head.ljust(int(size))[: int(size)]), dtype=torch.uint8)
        distributed.broadcast(text, 0)
        if self.rank:
            skeleton, shapes = json.loads(text.numpy().tobytes())
            tensors = [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in shapes]
        for tensor in tensors:
            distributed.broadcast(tensor, 0)
        return rebuild(skeleton, tensors)


ALONE = Workers()
"""One process, which is all there is."""


class Epochs:
    """The epochs that are left of fitting a network: it goes on where its file in the processes' folder says.

    After each one it is written down, and all processes have the weights of the first. Of tables that are cut up, each
    keeps its part, and what is written down is whole, a file for each table, so that the first has one of them whole at
    a time; any number of processes goes on from it. `patience` is after how many epochs without a better loss it is
    over; None for never.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        most: int,
        workers: Workers,
        name: str,
        *,
        patience: int | None = None,
        cut: Mapping[str, int] = MappingProxyType({}),  # weights of tables that are cut up: how many rows each has
    ) -> None:
        self.net, self.optimizer, self.most, self.patience, self.workers = net, optimizer, most, patience, workers
        keep = workers.keep if workers.rank == 0 else None
        self.file = None if keep is None else keep / f"{name}.safetensors"
        self.done, self.best_epoch, self.best_loss = 0, 0, math.inf
        self.best = deepcopy(net.state_dict())
        numbers = {weight: number for number, (weight, _) in enumerate(net.named_parameters())}
        self.cut = [(weight, numbers[weight], rows) for weight, rows in cut.items()]

    def __iter__(self) -> Iterator[int]:
        """The numbers of the epochs that are left."""
        kept = self.workers.same(self.file is not None)
        self._begin()
        self._agree()
        while self.done < self.most and (self.patience is None or self.done - self.best_epoch < self.patience):
            yield self.done + 1
            self.done += 1
            if kept:
                self._write()
            self._agree()

    def _begin(self) -> None:
        """Go on from the file, if there is one."""
        state = load(self.file).state if self.file is not None and self.file.exists() else None
        state = self.workers.same(state) if self.cut else state
        if state is not None:
            try:
                for tensors, name, _ in self._cut_of(state):
                    if isinstance(tensors[name], Tensor):  # written by one process
                        tensors[name] = tensors[name][self.workers.rank :: self.workers.count].clone()
                self._fill(state)
                self._go_on(state)
            except (RuntimeError, ValueError, KeyError) as error:
                file = self.file or "what the first process has kept"
                told = f"{file} is not of this network ({error}): delete it, and fitting begins anew"
                raise StorageError(told) from None

    def _write(self) -> None:
        state = self._state()
        for number, (tensors, name, rows) in enumerate(list(self._cut_of(state))):
            whole = self.workers.whole_at_first(tensors[name].cpu(), rows)
            tensors[name] = (self.done, number)  # of its file
            if self.file is not None:
                save(self._table(self.done, number), whole)
        if self.file is not None:
            save(self.file, state)
            for older in self.file.parent.glob(f"{self.file.stem} * *.table"):
                if not older.name.startswith(f"{self.file.stem} {self.done} "):
                    remove(older)

    def _fill(self, state: dict[str, Any]) -> None:
        """Read what is in files of its own; where tables are cut up, each process has its part of it."""
        for tensors in (state["net"], state["best"], *state["optimizer"]["state"].values()):
            for name in [name for name, value in tensors.items() if isinstance(value, tuple)]:
                whole: Any = None if self.file is None else load(self._table(*tensors[name])).state
                whole = self.workers.same(whole) if self.cut else whole
                tensors[name] = whole[self.workers.rank :: self.workers.count].clone() if self.cut else whole

    def _table(self, epoch: int, number: int) -> Path:
        assert self.file is not None  # the first process alone writes and reads
        return self.file.with_name(f"{self.file.stem} {epoch} {number}.table")

    def _cut_of(self, state: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, int]]:
        """Where a state has tensors of cut tables: in what, under which name, and of how many rows in all."""
        for weight, number, rows in self.cut:
            yield state["net"], weight, rows
            yield state["best"], weight, rows
            moments = state["optimizer"]["state"].get(number, {})
            yield from ((moments, name, rows) for name, value in moments.items() if getattr(value, "ndim", 0) == 2)

    def judge(self, loss: float) -> None:
        """Keep the weights of this epoch if they are the best so far."""
        if loss < self.best_loss:
            self.best, self.best_loss, self.best_epoch = deepcopy(self.net.state_dict()), loss, self.done + 1

    def _agree(self) -> None:
        """Have what the first process has, but for one's own part of tables."""
        if self.workers.count > 1:
            mine, told = self._state(), self._state()
            for tensors, name, _ in self._cut_of(told):
                tensors[name] = tensors[name].new_empty(0, 0)
            told = self.workers.same(told)
            if self.workers.rank:
                for (tensors, name, _), (own, _, _) in zip(self._cut_of(told), self._cut_of(mine), strict=True):
                    tensors[name] = own[name]
                self._go_on(told)

    def _state(self) -> dict[str, Any]:
        optimizer = self.optimizer.state_dict()
        moments = {number: dict(found) for number, found in optimizer["state"].items()}  # not the optimizer's own
        return {
            "net": dict(self.net.state_dict()),
            "optimizer": {**optimizer, "state": moments},
            "best": dict(self.best),
            "at": (self.done, self.best_epoch, self.best_loss),
            "draws": self._draws(),
        }

    def _go_on(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best, (self.done, self.best_epoch, self.best_loss) = state["best"], state["at"]
        if len(state["draws"]) != len(self._draws()):
            return  # it was on another kind of device, whose draws can't be gone on with
        if (where := self.workers.where).type == "cuda":
            torch.cuda.set_rng_state(state["draws"], where)
        else:
            torch.set_rng_state(state["draws"])

    def _draws(self) -> Tensor:
        where = self.workers.where
        return torch.cuda.get_rng_state(where) if where.type == "cuda" else torch.get_rng_state()
