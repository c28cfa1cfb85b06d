"""`kill -9` at random moments and at every named point of a step, on either side, again and again."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.torture.bench import Bench, Result
from tests.torture.processes import ROOT, WORKER, Process, read_events
from tests.torture.workers import state_of
from tests.torture.world import FEATURES, LABEL, PARTIES, Training, check

__all__ = ["POINTS", "Fates", "Side", "kills", "last_turn", "plain_command"]

POINTS = {
    LABEL: (
        "request received", "request written", "answer computed", "answer written", "answer sent", "applied",
        "checkpoint written", "journal rotated",
    ),
    FEATURES: (
        "request computed", "request written", "request sent", "answer received", "answer written", "applied",
        "checkpoint written", "journal rotated",
    ),
}  # fmt: skip
"""The points of a turn that the trace of `tacit.split.train.train` names, by party."""

_OFTEN = frozenset(point for points in POINTS.values() for point in points) - {"checkpoint written", "journal rotated"}
_TRAIN = ("-m", "tacit", "train", "--no-audit", "--quiet")
_PATIENCE = 240.0  # seconds for one training with all its kills


@dataclass
class Fates:
    """What each start of a process is going to die of; kills at named points come first, then any moment.

    Attributes:
        left: kills still to be done.
        draw: where and when.
        told: how many there were, after each.
        points: at which a party may be killed.
        often: those that a party passes many times.
        passes: of such a point before the kill, at most.
        longest: seconds after a start at which a process is killed at the latest, where no point is given.
        done: kills that happened: by party and point, or by party and "any moment".
    """

    left: int
    draw: random.Random
    told: Callable[[int], None]
    points: Mapping[str, Sequence[str]] = field(default_factory=lambda: POINTS)
    often: Collection[str] = _OFTEN
    passes: int = 14
    longest: float = 1.2
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._due = {name: [*points] for name, points in self.points.items()}

    def take(self, name: str) -> tuple[str, int, float] | None:
        """For one start: a point and its pass, or a delay in seconds; None where enough were killed."""
        with self.lock:
            if self.left <= 0:
                return None
            self.left -= 1
            if self.draw.random() < 0.5:
                return "", 0, self.draw.uniform(0.0, self.longest)
            if not self._due[name]:
                self._due[name] = [*self.points[name]]
            point = self._due[name].pop(self.draw.randrange(len(self._due[name])))
            return point, self.draw.randint(1, self.passes) if point in self.often else 1, 0.0

    def happened(self, name: str, point: str) -> None:
        """A kill was done."""
        with self.lock:
            self.done[name, point or "any moment"] += 1
            self.told(self.done.total())

    def give_back(self) -> None:
        """The process came to its end before its kill."""
        with self.lock:
            self.left += 1


class Side:
    """One party of one training, which is started again whenever it was killed."""

    def __init__(self, training: Training, name: str, fates: Fates) -> None:
        self.training = training
        self.name = name
        self.fates = fates
        self.starts: list[Process] = []
        self.over = False
        self.problem = ""
        self._begin()

    def _begin(self) -> None:
        fate = self._fate = self.fates.take(self.name)
        point, passes, delay = fate or ("", 1, 0.0)
        self.starts.append(self.training.start(self.name, kill_at=point, count=max(1, passes)))
        self._until = time.monotonic() + delay if fate and not point else None

    def look(self) -> None:
        """See whether it is time to kill it, or to start it again."""
        process = self.starts[-1]
        if self._until is not None and time.monotonic() >= self._until:
            process.kill()
            self._until = None
        if not process.over:
            return
        if process.code == -9 and self._fate is not None:
            self.fates.happened(self.name, self._fate[0])
            self._begin()
            return
        if self._fate is not None:
            self.fates.give_back()
        self.over = True
        if process.code != 0:
            self.problem = f"{self.name} ended with {process.code}: {self.training.complaint(process)}"

    @property
    def recoveries(self) -> list[float]:
        """Seconds from each start after a kill to its first new turn, where it got so far."""
        settled = {
            event["pid"]: event["time"]
            for event in read_events(self.training.events(self.name))
            if event["event"] == "settled"
        }
        return [settled[each.pid] - each.began for each in self.starts[1:] if each.pid in settled]


def train_under_kills(training: Training, fates: Fates, patience: float) -> list[Side]:
    """One training from its beginning to its end, with many kills on the way; fails where that takes too long."""
    sides = [Side(training, name, fates) for name in PARTIES]
    until = time.monotonic() + patience
    while not all(side.over for side in sides):
        for side in sides:
            if not side.over:
                side.look()
            check(not side.problem, side.problem)
        check(time.monotonic() < until, f"a training with kills did not end in {patience:.0f} s")
        time.sleep(0.005)
    check(not training.alarms(), f"an alarm without a reason: {training.alarms()}")
    return sides


def until_enough(fates: Fates, at_once: int, train: Callable[[], None]) -> dict[str, int]:
    """Train again and again, some at a time, until enough processes were killed; kills by party and point."""
    failed = threading.Event()

    def worker() -> None:
        while fates.left > 0 and not failed.is_set():
            try:
                train()
            except BaseException:
                failed.set()  # the other trainings need not go on
                raise

    with ThreadPoolExecutor(at_once) as pool:
        while fates.left > 0:  # a process that came to its end before its kill gives it back
            for job in [pool.submit(worker) for _ in range(at_once)]:
                job.result()
    by_point = {
        f"{name}: {point}": fates.done[name, point]
        for name, points in fates.points.items()
        for point in (*points, "any moment")
    }
    missed = [point for point, done in by_point.items() if not done]
    check(fates.done.total() < 16 * 8 or not missed, f"never killed at {', '.join(missed)}")
    return by_point


def _one(bench: Bench, fates: Fates) -> dict[str, Any]:
    """One training under kills, compared with the undisturbed one."""
    training = bench.fresh()
    sides = train_under_kills(training, fates, _PATIENCE)
    most = bench.same(training)
    events = read_events(training.run_folder(FEATURES) / "log.jsonl")
    connected = sum(event["event"] == "connected" for event in events)
    recoveries = [seconds for side in sides for seconds in side.recoveries]
    bench.discard(training)
    return {
        "recoveries": recoveries,
        "distinct": most,
        "connections": connected,
    }


def last_turn(bench: Bench) -> Result:
    """Killed when nothing comes after that would show a loss: in the last turn, and with the last checkpoint made."""
    turns, every = bench.size.turns, bench.size.every
    waited = {}
    for name, point, passes in (
        (LABEL, "answer written", turns),
        (FEATURES, "answer written", turns),
        (FEATURES, "journal rotated", -(-turns // every)),
    ):
        training = bench.fresh()
        process = training.start(name, kill_at=point, count=passes)
        training.start(LABEL if name == FEATURES else FEATURES)
        check(process.wait(_PATIENCE) == -9, f"{name} was not killed at {point}: {training.complaint(process)}")
        again = time.monotonic()
        training.finish(_PATIENCE)
        waited[f"{name}: {point}"] = time.monotonic() - again
        bench.same(training)
        bench.discard(training)
    told = ", ".join(f"{where}: all over {seconds:.0f} s later" for where, seconds in waited.items())
    return Result(told, {"seconds": waited})


def plain_command(bench: Bench) -> Result:
    """`tacit train` as anybody runs it, killed once on each side; and how long a start with all imports takes."""
    training = bench.halfway()
    half = bench.size.turns // 2
    with ExitStack() as stack:
        running = {name: _command(stack, _TRAIN, training, name) for name in PARTIES}
        for place, name in enumerate(PARTIES):
            training.wait_for("progress", lambda turn=half + 1 + place: _turn(training) > turn, _PATIENCE)  # type: ignore[misc]
            running[name].kill()
            running[name].wait(30)
            running[name] = _command(stack, _TRAIN, training, name)
        codes = {name: process.wait(_PATIENCE) for name, process in running.items()}
    check(set(codes.values()) == {0}, f"`tacit train` ended with {codes}")
    bench.same(training)
    bench.discard(training)
    training, began = bench.halfway(), time.monotonic()
    with ExitStack() as stack:
        for name in PARTIES:
            _command(stack, [*WORKER, "--events", str(training.events(name))], training, name)
        settled: list[float] = []

        def look() -> bool:
            settled[:] = [
                event["time"] - began
                for name in PARTIES
                for event in read_events(training.events(name))
                if event["event"] == "settled"
            ]
            return len(settled) == len(PARTIES)

        training.wait_for("both parties", look, _PATIENCE)
    bench.discard(training)
    told = f"both killed once; from a start with all imports to the first new turn {max(settled):.1f} s"
    return Result(told, {"recovery_s": max(settled)})


def _command(stack: ExitStack, words: Sequence[str], training: Training, name: str) -> subprocess.Popen[bytes]:
    """A command in a party's folder, as a process of its own; what still runs at the end is killed."""
    own = {**os.environ, "TACIT_STATE": state_of(training.party(name))}
    process = subprocess.Popen(
        [sys.executable, *words, "--folder", training.party(name)], stdout=subprocess.DEVNULL, env=own, cwd=ROOT
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _turn(training: Training) -> int:
    turn: int = json.loads((training.run_folder(FEATURES) / "status.json").read_text()).get("turn", 0)
    return turn


def kills(bench: Bench) -> Result:
    """Train again and again under kills until there were enough of them."""
    fates = Fates(bench.kills, random.Random(bench.seed), lambda done: bench.progress("kill -9", done, bench.kills))
    trained: list[dict[str, Any]] = []
    by_point = until_enough(fates, bench.at_once, lambda: trained.append(_one(bench, fates)))
    recoveries = sorted(seconds for one in trained for seconds in one["recoveries"])
    total = fates.done.total()
    return Result(
        f"{total} kills in {len(trained)} trainings: all models identical",
        {
            "kills": total,
            "trainings": len(trained),
            "by_point": by_point,
            "identical": True,
            "distinct_answers": max(one["distinct"] for one in trained),
            "recovery_median_s": statistics.median(recoveries) if recoveries else None,
            "recovery_p95_s": recoveries[int(0.95 * len(recoveries))] if recoveries else None,
            "connections": sum(one["connections"] for one in trained),
        },
    )
