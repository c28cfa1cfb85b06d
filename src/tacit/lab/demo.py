"""The point of the project in one table: the same model, trained under four protections, attacked in every way."""

from __future__ import annotations

from typing import Any

from tacit.contracts import Protection
from tacit.lab.data import flights
from tacit.lab.trial import Course, Progress, Trial, as_dict, attack, problem_of, train
from tacit.protect.gradient.marvell import marvell
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.max_norm import max_norm
from tacit.protect.gradient.none import none


def row(trial: Trial) -> dict[str, Any]:
    """A line of the table in its JSON form: what each attack reached, by its name."""
    leaks = {one.attack: {key: as_dict(one)[key] for key in _KEPT} for one in trial.findings}
    worst = {"attack": trial.worst.attack, **leaks[trial.worst.attack]}
    figures = {"protection": trial.protection, "test_auc": trial.test_auc, "noise": trial.noise}
    return {**figures, "leak_auc": leaks, "worst": worst}


_KEPT = ("value", "low", "high", "baseline")


def protections(epochs: int) -> dict[str, Protection]:
    """The four that are compared."""
    return {
        "none()": none(),
        "max_norm()": max_norm(),
        "marvell(scale=4)": marvell(scale=4.0),
        f"matched(leak_auc=0.6, visits={epochs})": matched(leak_auc=0.6, visits=epochs),
    }


def run(
    *, epochs: int = 3, rows: int | None = None, seed: int = 0, progress: Progress = lambda *_: None
) -> list[Trial]:
    """Train and attack under each protection."""
    problem = problem_of(flights.load(rows=rows, by_day=False))
    course = Course(epochs=epochs, batch_size=1024, seed=seed)
    return [
        attack(train(name, problem, course, protect=protect, progress=progress), progress=progress)
        for name, protect in protections(epochs).items()
    ]
