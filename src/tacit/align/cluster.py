"""Points times a key on several machines of one party: Ray carries blocks there and brings products back.

Ray (extra `cluster`) moves objects between the machines of one cluster by its own means; the key and the hashes of this
party's ids are among them, so all machines must be the party's own. Nothing of this is ever sent to another party.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tacit.align import _worker
from tacit.align.curve import Engine
from tacit.errors import LinkError, TacitError, UsageError

_PATIENCE = 10.0  # seconds for the head of a cluster to answer
_TRIES = 10  # workers that may be lost with one block before that is an error
_FEWEST, _MOST = 3, 12  # chunks under way: those of both sides' engines together must stay below an alignment's window


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address for as long as it is needed.

    Args:
        address: of the head ("10.0.0.1:6379"); "auto" for the one that this machine belongs to, "local" to start one
            here that ends with it. Where this process is connected already, that connection is used and kept.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UsageError("Ray is not installed: pip install 'tacit[cluster]'") from None
    mine = not ray.is_initialized()
    if mine:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {"include_dashboard": False} if address == "local" else {}
        try:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if host and port.isdecimal():  # where nobody listens Ray itself would try for many minutes
                socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except (OSError, RuntimeError, ValueError) as error:
            raise LinkError(
                f"no cluster answers at {address!r} ({error}): start one with `ray start --head`, give the address "
                "that it prints and, where it asks for a token, RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
            ) from error
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def cluster_engine(address: str) -> Iterator[Engine]:
    """An engine whose workers are all cores of a cluster; see `joined`."""
    with joined(address) as ray, _ClusterEngine(ray) as engine:
        yield engine


class _ClusterEngine(Engine):
    """Engine whose blocks are computed by workers; one whose worker is lost is computed anew by another."""

    def __init__(self, ray: Any) -> None:
        super().__init__()
        self._ray = ray
        self._work = ray.remote(num_cpus=1, max_retries=_TRIES)(_worker.work_anywhere)
        self._keys: dict[bytes, Any] = {}
        self.ahead = min(_MOST, max(_FEWEST, int(ray.cluster_resources().get("CPU", 1)) // 4))

    def close(self) -> None:
        super().close()
        self._keys.clear()  # the object store forgets them with the last reference

    def _begin(self, task: int, domain: bytes, block: bytes, key: bytes) -> Callable[[], bytearray | None]:
        if key not in self._keys:
            self._keys[key] = self._ray.put(key)  # by reference: what is passed by value stands in a task's record
        return partial(self._product, self._work.remote(task, domain, block, self._keys[key]))

    def _product(self, reference: Any) -> bytearray | None:
        try:
            found: bytearray | None = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise TacitError(
                f"the cluster could not multiply ({type(error).__name__}: {str(error).strip().splitlines()[-1]}): see "
                "that every machine has this version of Tacit and stays up, and align again"
            ) from None
        return found
