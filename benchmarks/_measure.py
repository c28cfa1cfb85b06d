"""Timing two things side by side, so that a busy machine disturbs both alike."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Result", "captured", "free_port", "interleaved", "ratio", "seconds"]


@dataclass(frozen=True)
class Result:
    """One measured figure.

    Attributes:
        bench: the benchmark's name.
        case: what was measured.
        value: the median.
        unit: "x" for a ratio, else a unit of time or rate.
        goal: what it should be at most, if there is a goal.
        at_least: whether the goal is a lower one: for rates.
    """

    bench: str
    case: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "bench": self.bench, "case": self.case, "value": self.value, "unit": self.unit,
            "goal": self.goal, "holds": self.holds,
        }  # fmt: skip


def seconds(work: Callable[[], Any]) -> float:
    """The wall-clock time of one call; on CUDA, until the device has done it."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def interleaved(*works: Callable[[], Any], rounds: int = 30, warmup: int = 3) -> list[list[float]]:
    """Times of several pieces of work, called by turns: one list for each, of one time for each round."""
    for _ in range(warmup):
        for work in works:
            work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, kept in zip(works, times, strict=True):
            kept.append(seconds(work))
    return times


def ratio(work: Callable[[], Any], reference: Callable[[], Any], *, rounds: int = 30) -> float:
    """How many times as long `work` takes as `reference`: the ratio of their medians."""
    ours, theirs = interleaved(work, reference, rounds=rounds)
    return statistics.median(ours) / statistics.median(theirs)


def captured(work: Callable[[], Any], generator: torch.Generator, *, repeats: int = 200) -> float:
    """Seconds for one replay of a captured CUDA graph of `work`, over many replays."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        work()

    def replays() -> None:
        for _ in range(repeats):
            graph.replay()

    return statistics.median(interleaved(replays, rounds=9)[0]) / repeats


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
