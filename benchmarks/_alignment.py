"""Alignment of two sets against the bare scalar multiplications that it needs, both parties on this machine.

Each party has its own engine with a worker for each core, as two companies would; messages go through the codec. An
alignment of n ids a side needs 4 n multiplications in all. Set TACIT_BENCH_IDS for another n.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks._measure import Result
from benchmarks._memory_links import links
from tacit.align import _mb8, _worker
from tacit.align.curve import ENGINES, Engine, Points, hash_to_points
from tacit.align.psi import CHUNK, SHORT, Matched, intersect
from tacit.contracts import Link
from tacit.wire.codec import CONTROL, AtMost, Limit

__all__ = ["results"]

QUICK = 100_000
ROUNDS = 3
GOAL = 0.7  # ids a second over what the bare multiplications would allow
MILLION = {"cryptography": 120.0, "mb8": 40.0}  # seconds for a million ids a side
RAW_BLOCK = 2048
LIMITS = {
    "commitment": CONTROL,
    "points": Limit(torch.uint8, (AtMost(CHUNK), 32)),
    "matches": Limit(torch.uint8, (AtMost(CHUNK), SHORT)),
}


@dataclass(frozen=True)
class _Time:
    wall: float
    cpu: float  # of this process and its children


def results() -> Iterator[Result]:
    """For each engine that works here: time over that of its multiplications, and seconds for the whole."""
    count = int(os.environ.get("TACIT_BENCH_IDS", QUICK))
    rounds = ROUNDS if count <= QUICK else 1
    for kind in ENGINES:
        if kind == "mb8" and _mb8.unavailable():
            continue
        raws, aligned = [], []
        for _ in range(rounds):
            raws += [_raw(kind)]
            aligned += [_align(kind, count)]
            raws += [_raw(kind)]
        each = statistics.median(raw.wall for raw in raws)
        each_cpu = statistics.median(raw.cpu for raw in raws)
        wall = statistics.median(run.wall for run in aligned)
        cpu = statistics.median(run.cpu for run in aligned)
        case = f"alignment, {kind}, {count:,} ids a side"
        goal = MILLION[kind] if count == 1_000_000 else None
        rate, rate_cpu = 4 * count * each / wall, 4 * count * each_cpu / cpu
        yield Result("parties", f"{case}: ids/s over those of its multiplications", rate, "x", GOAL, at_least=True)
        yield Result("parties", f"{case}: the same in processor time", rate_cpu, "x")
        yield Result("parties", f"{case}: from ids to rows", wall, "s", goal)
        yield Result("parties", f"{kind}: one multiplication, all cores", each * 1e6, "us")


def _hashes(first: int, count: int) -> Points:
    """Different hashes for different numbers, without hashing."""
    found = np.zeros((count, 4), np.uint64)
    found[:, 0] = np.arange(first, first + count)
    return found.view(np.uint8)


def _align(kind: str, count: int) -> _Time:
    """One alignment: half of the ids are common."""
    cores = len(os.sched_getaffinity(0))
    one, two = links(LIMITS, names=("one", "two"))
    sets = [_hashes(0, count), _hashes(count // 2, count)]

    def party(link: Link, hashes: Points, engine: Engine) -> Matched:
        return intersect(link, hashes, engine=engine, cap=count, minimum=1)

    engines = [Engine(kind, workers=cores) for _ in sets]
    for engine in engines:  # the workers are up
        engine.blind(_hashes(0, 64), bytes(range(32)), domain=b"bench")
    start = _clock()
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(party, (one, two), sets, engines))
    wall = time.perf_counter() - start.wall
    for engine in engines:
        engine.close()
    cpu = _clock().cpu - start.cpu
    if [len(each) for each in found] != [count - count // 2] * 2:
        raise RuntimeError("the alignment found other ids than it should")
    return _Time(wall, cpu)


def _raw(kind: str) -> _Time:
    """One bare multiplication, on all cores at once."""
    cores = len(os.sched_getaffinity(0))
    points = hash_to_points(_hashes(0, RAW_BLOCK), domain=b"bench").tobytes()
    blocks = 8 if kind == "cryptography" else 40
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as processes:
        list(processes.map(_multiply, [kind] * cores, [points] * cores, [1] * cores))
        start = time.perf_counter()
        cpus = list(processes.map(_multiply, [kind] * cores, [points] * cores, [blocks] * cores))
        wall = time.perf_counter() - start
    done = cores * blocks * RAW_BLOCK
    return _Time(wall / done, sum(cpus) / done)


def _multiply(kind: str, points: bytes, times: int) -> float:
    """Processor time of that many blocks."""
    start = time.process_time()
    for _ in range(times):
        _worker.multiplier(kind)(points, bytes(range(32)))
    return time.process_time() - start


def _clock() -> _Time:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return _Time(time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used))
