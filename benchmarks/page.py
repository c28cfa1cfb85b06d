"""What the live page takes to read: runs of many looks, as ratios to parsing the same lines as plain JSON.

Set TACIT_BENCH_POINTS for another number of points than a million.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks._measure import Result, interleaved, seconds
from tacit.report.reading import find
from tacit.report.run import RunReader
from tacit.report.web import pages

POINTS = 1_000_000
RUNS = 100
_ATTACKS = ("norm", "cosine", "hint", "majority", "top_share", "residual", "likelihood")
_EVERY = len(_ATTACKS) + 1  # points of one look: every attack, and the loss


def run() -> Iterator[Result]:
    """One run of a million points: the first reading, one more look, its page; then a hundred runs as cards."""
    points = int(os.environ.get("TACIT_BENCH_POINTS", POINTS))
    with tempfile.TemporaryDirectory() as place:
        yield from _large(Path(place), points)
    with tempfile.TemporaryDirectory() as place:
        yield from _many(Path(place), max(1, points // (RUNS * _EVERY)))


def _large(folder: Path, points: int) -> Iterator[Result]:
    live = _write(folder / "airline" / "runs" / "large", points // _EVERY)
    (found,) = find([folder])
    plain = statistics.median(interleaved(lambda: _parsed([live]), rounds=3, warmup=0)[0])
    first = statistics.median(interleaved(lambda: RunReader(found).refresh(), rounds=3, warmup=0)[0])
    yield Result("page", f"{points:,} points: first reading over plain JSON", first / plain, "x", goal=4.0)
    one = RunReader(found)
    one.refresh()
    shown = statistics.median(interleaved(lambda: pages.run(one), rounds=9)[0])
    yield Result("page", "its page, over plain JSON of all of it", shown / plain, "x", goal=0.25)
    times = []
    for step in range(9):
        _look(live, points * 128 + step)
        times.append(seconds(one.refresh))
    yield Result(
        "page", "one more look, over plain JSON of all of it", statistics.median(times) / plain, "x", goal=0.01
    )


def _many(folder: Path, looks: int) -> Iterator[Result]:
    files = [_write(folder / f"party{number}" / "runs" / "one", looks) for number in range(RUNS)]
    places = find([folder])

    def cards() -> list[dict[str, Any]]:
        readers = [RunReader(place) for place in places]
        return [one.card() for one in readers if one.refresh()]

    again = [RunReader(place) for place in places]
    for one in again:
        one.refresh()
    works: list[Callable[[], Any]] = [lambda: _parsed(files), cards, lambda: [one.refresh() for one in again]]
    plain, first, unchanged = (statistics.median(times) for times in interleaved(*works, rounds=3, warmup=1))
    yield Result(
        "page", f"{RUNS} runs of {looks * _EVERY:,} points: cards over plain JSON", first / plain, "x", goal=4.0
    )
    yield Result("page", "the same when nothing has changed", unchanged / plain, "x", goal=0.1)


def _write(folder: Path, looks: int) -> Path:
    """A run's folder with so many looks; the path of its looks."""
    folder.mkdir(parents=True)
    status = {
        "run": folder.name, "party": "airline", "role": "label", "state": "training", "turns": 128 * looks + 1,
        "turn": 1, "steps": 128 * looks, "epoch": 0, "epochs": 1, "time": "2026-01-01T00:00:00+00:00", "pid": 0,
    }  # fmt: skip
    (folder / "status.json").write_text(json.dumps(status))
    live, draw = folder / "live.jsonl", random.Random(0)
    with live.open("w") as file:
        for step in range(64, 64 + 128 * looks, 128):
            found = {name: 0.5 + draw.gauss(0, 0.02) for name in _ATTACKS}
            line = {"step": step, "turn": step, "epoch": 0, "found": found, "figures": {"loss": draw.random()}}
            file.write(json.dumps(line) + "\n")
    return live


def _look(live: Path, step: int) -> None:
    line = {"step": step, "turn": step, "epoch": 0, "found": dict.fromkeys(_ATTACKS, 0.5), "figures": {"loss": 0.1}}
    with live.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _parsed(files: list[Path]) -> int:
    """Every line of some files as JSON, and no more than that."""
    count = 0
    for path in files:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
                count += 1
    return count
