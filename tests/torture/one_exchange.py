"""`kill -9` in one-shot training: at every named point and at any moment, on either side, again and again.

At the end flips, models, embeddings, label bounds and the label party's book are those of a run that nobody disturbed.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from tacit.report.status import read_run
from tests.torture.bench import Result
from tests.torture.kills import Fates, train_under_kills, until_enough
from tests.torture.processes import Process, Processes
from tests.torture.world import FEATURES, LABEL, PARTIES, RUN, Size, Training, check, prepare

__all__ = ["POINTS", "kills_in_one_exchange"]

_FITTED = (
    "embedding stored", "acknowledgement logged", "acknowledgement sent", "head made", "head written", "fallback made",
    "fallback written",
)  # fmt: skip
_LEARNT = (
    "flips made", "flips written", "learned made", "learned written", "release made", "release written",
    "release entered", "acknowledged",
)  # fmt: skip
POINTS: dict[str, tuple[str, ...]] = {
    LABEL: ("flips entered", "flips answered", "flips logged", "flips sent", *_FITTED),
    FEATURES: _LEARNT,
}
"""The points that the trace of `tacit.exchange.train.train_one_shot` names, by party."""

_ROWS, _BITS, _CHUNK = 1000, 3, 250  # an embedding goes in four parts
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
exchange.bits = {_BITS}
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
        'role = "features"\nnetwork.connect = "127.0.0.1:1"\nlearn = { learner = "linear" }',
        'categorical = ["gate"], numeric = ["wind", "rain", "cloud"]',
    ),
}


class _Exchange(Training):
    """A one-shot training of the two, whose embedding is sent in several parts."""

    def another(self, name: str, folder: Path, **how: Any) -> Process:
        """Start a process in some folder, as that party."""
        return super().another(name, folder, chunk=_CHUNK, **how)

    def results(self, name: str) -> dict[str, Any]:
        """Everything that a party ends with: its run's files, what it says has left, and its book but for times."""
        where = self.run_folder(name)
        found: dict[str, Any] = {
            str(file.relative_to(where)): file.read_bytes()
            for file in sorted(where.rglob("*"))
            if file.is_file() and file.name not in _PASSING
        }
        found["departures"] = [
            [one[fact] for fact in ("what", "to", "rows", "bytes")] for one in read_run(where)["left"]
        ]
        book_of = "coins" if name == LABEL else "embeddings"
        with closing(sqlite3.connect(self.party(name) / book_of / "book.sqlite")) as book:
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
    often = {"embedding stored", "acknowledgement logged", "acknowledgement sent"}
    fates = Fates(wanted, random.Random(seed), told, POINTS, often, passes=3, longest=_LONGEST)
    numbers, starts = count(), []

    def train() -> None:
        training = _Exchange.copy(processes, aligned.folder, folder / f"trial-{next(numbers)}")
        starts.append(sum(len(side.starts) for side in train_under_kills(training, fates, _PATIENCE)))
        _same(training, expected, answers)
        training.stop()
        shutil.rmtree(training.folder)

    by_point = until_enough(fates, at_once, train)
    total = fates.done.total()
    return Result(
        f"{total} kills in {len(starts)} trainings: flips, models, embeddings, label bounds and books identical",
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


def _same(training: _Exchange, expected: dict[str, dict[str, Any]], answers: dict[str, set[str]]) -> None:
    """Fail where a finished training differs from the undisturbed one."""
    for name in PARTIES:
        found = training.results(name)
        other = sorted(key for key in found | expected[name] if found.get(key) != expected[name].get(key))
        check(not other, f"{name} ends with another {', '.join(other)} than undisturbed")
    said = training.answers()
    strange = [key for key, each in said.items() if answers.get(key) != each]
    check(not strange, f"other answers than in the undisturbed run: {strange[:3]}")
