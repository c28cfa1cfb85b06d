"""What all trials share: the folders to begin with, the undisturbed run to compare with, and how results are kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tacit.split.journal import Journal
from tests.torture.processes import Processes
from tests.torture.world import FEATURES, LABEL, PARTIES, Size, Training, check, prepare

__all__ = ["Bench", "Progress", "Result"]

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done and how much there is."""


@dataclass(frozen=True)
class Result:
    """What a trial found.

    Attributes:
        said: in a few words.
        figures: as plain values.
    """

    said: str
    figures: dict[str, Any] = field(default_factory=dict)


class Bench:
    """The place where trials are made.

    Args:
        folder: an empty one; trainings that failed stay there to be looked at.
        processes: starts the parties.
        size: of the training.
        kills: how many in all.
        one_shot_kills: how many of those who train in one exchange.
        seed: of the tables, and of when and where is killed.
        progress: told what is being done.
        at_once: trainings at a time.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        *,
        size: Size,
        kills: int,
        one_shot_kills: int,
        seed: int,
        progress: Progress = lambda *_: None,
        at_once: int = 2,
    ) -> None:
        self.folder = folder
        self.processes = processes
        self.size = size
        self.kills = kills
        self.one_shot_kills = one_shot_kills
        self.seed = seed
        self.progress = progress
        self.at_once = at_once
        self._numbers = count()
        self._prepare()

    def _prepare(self) -> None:
        """Align once, train once undisturbed, and once to the middle."""
        self.progress("aligning", 0, 0)
        prepare(self.folder / "aligned", self.size, seed=self.seed)
        aligned = Training(self.processes, self.folder / "aligned")
        aligned.finish(verb="align")
        self.progress("training undisturbed", 0, 0)
        reference = Training.copy(self.processes, aligned.folder, self.folder / "reference")
        reference.finish()
        self._models = {name: reference.model(name) for name in PARTIES}
        self._answers = reference.answers()
        check(len(self._answers) == self.size.turns, f"{len(self._answers)} answers in {self.size.turns} turns")
        check(all(len(each) == 1 for each in self._answers.values()), "undisturbed, and yet two answers to a step")
        halfway = Training.copy(self.processes, aligned.folder, self.folder / "halfway")
        advance(halfway, self.size.turns // 2)

    def fresh(self, **where: int) -> Training:
        """A training that is aligned and has not begun."""
        return self._copy("aligned", where)

    def halfway(self, **where: int) -> Training:
        """A training that stands in its middle; both processes are gone, and both have the newest answer."""
        return self._copy("halfway", where)

    def _copy(self, source: str, where: dict[str, int]) -> Training:
        return Training.copy(
            self.processes, self.folder / source, self.folder / f"trial-{next(self._numbers)}", **where
        )

    def same(self, training: Training) -> int:
        """Fail where a finished training differs from the undisturbed one; the most distinct answers to one step."""
        for name in PARTIES:
            check(training.model(name) == self._models[name], f"the model of {name} differs from the undisturbed run")
        answers = training.answers()
        most = max((len(each) for each in answers.values()), default=0)
        check(most <= 1, f"{most} distinct answers to one step")
        strange = [key for key, each in answers.items() if self._answers.get(key) != each]
        check(not strange, f"other answers than in the undisturbed run: {strange[:3]}")
        return most

    def done(self, training: Training) -> None:
        """Let a training come to its end, compare it, and throw it away."""
        training.finish()
        self.same(training)
        self.discard(training)

    def discard(self, training: Training) -> None:
        """Throw a training away that was found good."""
        training.stop()
        shutil.rmtree(training.folder)


def advance(training: Training, turns: int) -> None:
    """Train for so many turns more and stop, so that both sides have the last answer in their journals."""
    feature = training.start(FEATURES, kill_at="request computed", count=turns + 1)  # the answers before are written
    training.start(LABEL)
    check(feature.wait(90) == -9, f"{FEATURES} ended with {feature.code}: {training.complaint(feature)}")
    training.stop()
    training.running.clear()
    for name in (LABEL, FEATURES):
        Journal(training.run_folder(name) / "journal").close()  # what a kill leaves at the end is cut off
