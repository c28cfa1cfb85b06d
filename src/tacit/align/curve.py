"""Points of Curve25519 as rows of an array: from hashes to points, and points times a key on all cores.

X25519 itself does the multiplication, clamped key and all: it commutes, (P a) b = (P b) a, and that is all that private
set intersection needs. Both engines give the same bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.align import _mb8, _worker, _x25519
from tacit.errors import ProtocolError, TacitError, UsageError

Points = NDArray[np.uint8]
"""Points or hashes, one in each row.  (count, 32)"""

ENGINES = ("cryptography", "mb8")
_SIZE = 32
_BLOCK = 2048  # points in one request to a worker: some tens of milliseconds of work
_PRIME = np.frombuffer(_x25519.PRIME.to_bytes(_SIZE, "little"), dtype="<u8")
_LOW_ORDER = np.array([[u >> 64 * word & (2**64 - 1) for word in range(4)] for u in _x25519.LOW_ORDER], dtype="<u8")


def hash_to_points(hashes: Points, *, domain: bytes) -> Points:
    """A point on the curve (never on its twist) for each hash, of no meaning in another domain.  (count, 32)"""
    return _rows(_x25519.points(_checked("hashes", hashes).tobytes(), domain))


def check_points(points: Points) -> Points:
    """The points; what an honest peer never sends is refused.

    A coordinate of p = 2^255 - 19 or more has a second spelling, which X25519 would silently reduce; and the product of
    a point of low order says nothing about the key that it was multiplied by.
    """
    words = _checked("points", points).view("<u8")
    above = (words[:, 3] == _PRIME[3]) & (words[:, 2] == _PRIME[2]) & (words[:, 1] == _PRIME[1])
    wrong = np.flatnonzero((words[:, 3] > _PRIME[3]) | (above & (words[:, 0] >= _PRIME[0])))
    if len(wrong):
        raise ProtocolError(
            f"point {wrong[0]} of {len(points)} is not below 2^255 - 19: the peer sends what is no coordinate, so it "
            "runs another protocol or is not honest"
        )
    for place in np.flatnonzero(np.isin(words[:, 0], _LOW_ORDER[:, 0])):
        if (words[place] == _LOW_ORDER).all(axis=1).any():
            raise ProtocolError(f"point {place} of {len(points)} has low order: an honest peer never sends one")
    return points


def byte_order(rows: Points) -> NDArray[np.int64]:
    """The order of the rows by their bytes, as places; equal rows keep their order."""
    words = np.ascontiguousarray(rows).view(">u8").astype(np.uint64)
    order = np.argsort(words[:, 0], kind="stable")
    leading = words[order, 0]
    tied = np.flatnonzero(leading[1:] == leading[:-1])
    one, other = (np.take(words, order[places], axis=0) for places in (tied, tied + 1))
    if (one != other).any():  # the first 8 bytes did not decide
        order = np.lexsort(words.T[::-1])
    return order


class Engine:
    """Multiplies points on several cores, or on the calling thread where there are no workers.

    The work is done in processes that import neither torch nor numpy. They get their share through pipes, and end with
    the engine, or with this process if it is killed. The kind is "cryptography", or "mb8" where `best_engine` finds it.
    """

    ahead = 3  # chunks under way at a time

    def __init__(self, kind: str = "cryptography", *, workers: int = 0) -> None:
        if kind not in ENGINES:
            raise UsageError(f"no engine is called {kind!r}: choose one of {', '.join(ENGINES)}")
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise UsageError(f"Engine(workers={workers!r}): pass a number of processes, 0 or more")
        if kind == "mb8" and (reason := _mb8.unavailable()):
            raise UsageError(f"the engine mb8 can't be used: {reason}; or choose the engine 'cryptography'")
        self.kind = kind
        self.workers = workers
        self.note: str | None = None  # where `best_engine` had to choose the slower one, why; else None
        self._processes = [_start(kind) for _ in range(workers)]
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._processes:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(workers, "tacit-points") if workers else None
        self._multiply = None if workers else _worker.multiplier(kind)
        self._closed = threading.Event()

    def multiply(self, points: Points, key: bytes) -> Points:
        """Each point times the key; one of low order, or not on the curve, is a `ProtocolError`."""
        return next(self.multiply_each([points], key))

    def blind(self, hashes: Points, key: bytes, *, domain: bytes) -> Points:
        """The point of each hash times the key: `hash_to_points` and `multiply` in one go."""
        return next(self.blind_each([hashes], key, domain=domain))

    def multiply_each(self, chunks: Iterable[Points], key: bytes) -> Iterator[Points]:
        """`multiply` for one chunk after the other, while the next ones are already under way."""
        return self._each(_worker.MULTIPLY, b"", map(check_points, chunks), key)

    def blind_each(self, chunks: Iterable[Points], key: bytes, *, domain: bytes) -> Iterator[Points]:
        """`blind` for one chunk after the other, while the next ones are already under way."""
        return self._each(_worker.BLIND, domain, chunks, key)

    def close(self) -> None:
        """End the processes. What is under way is given up."""
        self._closed.set()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
            process.wait()
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):  # part of a request was not written when the worker was ended
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _each(self, task: int, domain: bytes, chunks: Iterable[Points], key: bytes) -> Iterator[Points]:
        if len(key) != _SIZE:
            raise UsageError(f"a key of {len(key)} bytes: X25519 takes 32, as secrets.token_bytes(32) gives them")
        waiting: deque[list[Callable[[], bytearray | None]]] = deque()
        for chunk in chunks:
            rows = _checked("points", chunk)
            blocks = (rows[at : at + _BLOCK].tobytes() for at in range(0, len(rows), _BLOCK))
            waiting.append([self._begin(task, domain, block, key) for block in blocks])
            if len(waiting) >= self.ahead:
                yield _finish(waiting.popleft())
        while waiting:
            yield _finish(waiting.popleft())

    def _begin(self, task: int, domain: bytes, block: bytes, key: bytes) -> Callable[[], bytearray | None]:
        """Have a block worked at, and give what waits for it."""
        if self._threads is None:
            assert self._multiply is not None
            done = _worker.work(self._multiply, task, domain, block, key)
            return lambda: done
        try:
            return self._threads.submit(self._ask, task, domain, block, key).result
        except RuntimeError as error:
            raise UsageError("the engine was closed: make a new one for each alignment") from error

    def _ask(self, task: int, domain: bytes, block: bytes, key: bytes) -> bytearray | None:
        """Send a request to a worker that is free, and return its answer."""
        process = self._free.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(_worker.HEADER.pack(task, len(domain), len(block), key) + domain + block)
            process.stdin.flush()
            answer = bytearray(process.stdout.read(1 + len(block)))
        except OSError as error:
            raise self._lost(process) from error
        finally:
            self._free.put(process)
        if len(answer) <= len(block):
            raise self._lost(process)
        return answer[1:] if answer[0] else None

    def _lost(self, process: subprocess.Popen[bytes]) -> TacitError:
        if self._closed.is_set():
            return UsageError("the engine was closed while it had work: close it after the alignment")
        return TacitError(
            f"a worker process of the engine {self.kind} ended with code {process.wait()} in the middle of its work: "
            "see its own message above, check the memory of the machine, and align again"
        )


def best_engine(workers: int | None = None) -> Engine:
    """The fastest engine that this machine has, with one process for each core if not told otherwise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    reason = _mb8.unavailable()
    engine = Engine("cryptography" if reason else "mb8", workers=cores if workers is None else workers)
    engine.note = reason
    return engine


def _start(kind: str) -> subprocess.Popen[bytes]:
    """A worker that finds this very package, wherever it was imported from."""
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _worker.__name__, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _finish(blocks: list[Callable[[], bytearray | None]]) -> Points:
    """The products of one chunk."""
    found = []
    for block in blocks:
        products = block()
        if products is None:
            raise ProtocolError(
                "a point is not on the curve, or was chosen so that its product would tell about the key: an honest "
                "peer sends neither"
            )
        found.append(products)
    return _rows(bytearray().join(found))


def _rows(joined: bytes | bytearray) -> Points:
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, _SIZE)


def _checked(name: str, rows: Points) -> Points:
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _SIZE:
        raise UsageError(f"{name} are {rows.dtype} {rows.shape}: pass 32 bytes for each, uint8 (count, 32)")
    return np.ascontiguousarray(rows)
