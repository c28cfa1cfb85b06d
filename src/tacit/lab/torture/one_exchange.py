"""`kill -9` in one-shot training: at every named point and at any moment, on either side, again and again.

At the end flips, models, embeddings, certificates and the label party's book are those of a run that nobody disturbed.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from tacit.lab.torture.bench import Result
from tacit.lab.torture.kills import Fates, Side
from tacit.lab.torture.processes import Process, Processes
from tacit.lab.torture.world import FEATURES, LABEL, PARTIES, RUN, Size, Training, check, prepare

__all__ = ["POINTS", "kills_in_one_exchange"]

POINTS = {
    LABEL: ("flips entered", "embedding stored", "head made", "head written", "fallback made", "fallback written"),
    FEATURES: (
        "flips made", "flips written", "learned made", "learned written", "release made", "release written",
        "acknowledged",
    ),
}  # fmt: skip
"""The points that the trace of `tacit.party.one_shot.train_one_shot` names, by party."""

_ROWS, _WIDTH, _CHUNK = 1000, 2, 500  # an embedding goes in four parts
_LONGEST = 4.0  # seconds after a start at which a process is killed at the latest, where no point is given
_PATIENCE = 400.0  # seconds for one training with all its kills
_PASSING = {
    "lock",
    "status.json",
    "log.jsonl",
    "closed",
    "pace.jsonl",
    "manifest.json",
    "report.json",
    "report.json.seal",
    "report.html",
}  # files that tell times; what a report says is in other files too

_CONTRACT = f"""\
mode = "one_shot"
run = "{RUN}"
label_party = "{LABEL}"
feature_parties = ["{FEATURES}"]
alignment.smallest_set = 10
exchange.width = {_WIDTH}
"""
_PARTY = """\
name = "{name}"
{role}
data = {{ path = "data.parquet", ids = ["id"], {columns} }}
training = {{ threads = 1, seed = 7 }}
"""
_ROLES = {
    LABEL: ('role = "label"\nlimit = 0.7\nnetwork.listen = "127.0.0.1:1"', 'label = "late", numeric = ["distance"]'),
    FEATURES: (
        'role = "features"\nnetwork.connect = "127.0.0.1:1"\nlearn = { learner = "linear", noise = 0.1 }',
        'categorical = ["gate"], numeric = ["wind", "rain", "cloud"]',
    ),
}


class _Exchange(Training):
    """A one-shot training of the two, whose embedding is sent in several parts."""

    def another(self, name: str, folder: Path, **how: Any) -> Process:
        """Start a process in some folder, as that party."""
        return super().another(name, folder, chunk=_CHUNK, **how)

    def results(self, name: str) -> dict[str, Any]:
        """Everything that a party ends with: its run's files, and the label party's book but for times."""
        where = self.run_folder(name)
        found: dict[str, Any] = {
            str(file.relative_to(where)): file.read_bytes()
            for file in sorted(where.rglob("*"))
            if file.is_file() and file.name not in _PASSING
        }
        if name == LABEL:
            with closing(sqlite3.connect(self.party(name) / "coins" / "book.sqlite")) as book:
                for (table,) in book.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    columns = [one[1] for one in book.execute(f"PRAGMA table_info({table})") if one[1] != "time"]
                    found[f"book: {table}"] = sorted(book.execute(f"SELECT {', '.join(columns)} FROM {table}"))
        return found


def kills_in_one_exchange(
    processes: Processes,
    folder: Path,
    *,
    wanted: int,
    seed: int,
    told: Callable[[int], None] = lambda _: None,
    at_once: int = 2,
) -> Result:
    """Train again and again under kills until there were enough of them.

    Args:
        processes: starts the parties.
        folder: for all folders; those of a training that failed stay.
        wanted: kills.
        seed: of the tables, and of when and where is killed.
        told: how many there were, after each.
        at_once: trainings at a time.
    """
    aligned, reference = _undisturbed(processes, folder, seed)
    expected, answers = {name: reference.results(name) for name in PARTIES}, reference.answers()
    check(all(len(each) == 1 for each in answers.values()), "undisturbed, and yet two answers to a question")
    fates = Fates(wanted, random.Random(seed), told, POINTS, {"embedding stored"}, passes=3, longest=_LONGEST)
    numbers, starts = count(), []

    def worker() -> None:
        while fates.left > 0:
            training = _Exchange.copy(processes, aligned.folder, folder / f"trial-{next(numbers)}")
            starts.append(_killed(training, fates))
            _same(training, expected, answers)
            training.stop()
            shutil.rmtree(training.folder)

    with ThreadPoolExecutor(at_once) as pool:
        while fates.left > 0:  # a process that came to its end before its kill gives it back
            for job in [pool.submit(worker) for _ in range(at_once)]:
                job.result()
    by_point = {
        f"{name}: {point}": fates.done[name, point] for name in PARTIES for point in (*POINTS[name], "any moment")
    }
    missed = [point for point, done in by_point.items() if not done]
    total = fates.done.total()
    check(total < 16 * 8 or not missed, f"never killed at {', '.join(missed)}")
    return Result(
        f"{total} kills in {len(starts)} trainings: flips, models, embeddings, certificates and books identical",
        {"kills": total, "trainings": len(starts), "starts": sum(starts), "by_point": by_point, "identical": True},
    )


def _undisturbed(processes: Processes, folder: Path, seed: int) -> tuple[Training, _Exchange]:
    """Both companies aligned, and a copy of them that has trained."""
    prepare(folder / "aligned", Size(rows=_ROWS), seed=seed)
    for name, (role, columns) in _ROLES.items():
        party = folder / "aligned" / name
        (party / "party.toml").write_text(_PARTY.format(name=name, role=role, columns=columns))
        (party / "contract.toml").write_text(_CONTRACT)
    aligned = Training(processes, folder / "aligned")
    aligned.finish(verb="align")
    reference = _Exchange.copy(processes, aligned.folder, folder / "reference")
    reference.finish()
    return aligned, reference


def _killed(training: Training, fates: Fates) -> int:
    """One training from its beginning to its end, with many kills on the way; how often a party was started."""
    sides = [Side(training, name, fates) for name in PARTIES]
    until = time.monotonic() + _PATIENCE
    while not all(side.over for side in sides):
        for side in sides:
            if not side.over:
                side.look()
            check(not side.problem, side.problem)
        check(time.monotonic() < until, f"a training with kills did not end in {_PATIENCE:.0f} s")
        time.sleep(0.005)
    return sum(len(side.starts) for side in sides)


def _same(training: _Exchange, expected: dict[str, dict[str, Any]], answers: dict[str, set[str]]) -> None:
    """Fail where a finished training differs from the undisturbed one."""
    for name in PARTIES:
        found = training.results(name)
        other = sorted(key for key in found | expected[name] if found.get(key) != expected[name].get(key))
        check(not other, f"{name} ends with another {', '.join(other)} than undisturbed")
    said = training.answers()
    strange = [key for key, each in said.items() if answers.get(key) != each]
    check(not strange, f"other answers than in the undisturbed run: {strange[:3]}")
    check(not training.alarms(), f"an alarm without a reason: {training.alarms()}")
