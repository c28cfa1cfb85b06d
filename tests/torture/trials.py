"""All trials by name, and running them: each comes out with what was seen, or with why it failed."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tacit.errors import UsageError
from tests.torture import changed_tables, network
from tests.torture.bench import Bench, Progress, Result
from tests.torture.damage import DAMAGE
from tests.torture.kills import kills, last_turn, plain_command
from tests.torture.one_exchange import kills_in_one_exchange
from tests.torture.processes import Processes
from tests.torture.refusals import REFUSALS
from tests.torture.world import Size, TrialError

__all__ = ["SHORT", "TRIALS", "Outcome", "Trial", "chosen", "run", "summary"]


@dataclass(frozen=True)
class Trial:
    """Something that is done to a training.

    Attributes:
        group: "kills", "one exchange", "processes", "network", "refusals" or "disk".
        act: does it; raises where the outcome is not as it should be.
        long: whether it takes more than some seconds.
    """

    group: str
    act: Callable[[Bench], Result]
    long: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        name: of the trial.
        group: its group.
        passed: whether everything was as it should be.
        said: what was seen, or why it failed.
        seconds: that it took.
        figures: as plain values.
    """

    name: str
    group: str
    passed: bool
    said: str
    seconds: float
    figures: Mapping[str, Any] = field(default_factory=dict)


def _changed_tables(bench: Bench) -> Result:
    """Every change of a table on each side, for each way to train and each use of it."""
    world, cases = changed_tables.World(bench.processes, bench.folder / "tables"), list(changed_tables.every())
    for done, case in enumerate(cases):
        bench.progress("changed tables", done, len(cases))
        changed_tables.look(world, *case)
    return Result(f"{len(cases)} cases: each row is known by its id", {"cases": len(cases)})


def _one_exchange(bench: Bench) -> Result:
    """Of a training that has nothing to do with the bench's own."""
    wanted = bench.one_shot_kills
    return kills_in_one_exchange(
        bench.processes,
        bench.folder / "one-exchange",
        wanted=wanted,
        seed=bench.seed,
        told=lambda done: bench.progress("kill -9 in one exchange", done, wanted),
        at_once=bench.at_once,
    )


TRIALS: dict[str, Trial] = {
    "kill -9": Trial("kills", kills),
    "kill -9 in one exchange": Trial("one exchange", _one_exchange, long=True),
    "kill -9 in the last turn": Trial("processes", last_turn, long=True),
    "kill -9 of the plain command": Trial("processes", plain_command, long=True),
    "cut of 5 s": Trial("network", partial(network.cut, seconds=5.0), long=True),
    "cut of 60 s": Trial("network", partial(network.cut, seconds=60.0), long=True),
    "silence of 5 s": Trial("network", partial(network.silenced, seconds=5.0), long=True),
    "silence of 60 s": Trial("network", partial(network.silenced, seconds=60.0), long=True),
    "old connections silent for ever": Trial("network", partial(network.forgotten, seconds=25.0), long=True),
    "delay of 40 ms each way": Trial("network", network.delayed, long=True),
    "2% of packets lost": Trial("network", network.lossy, long=True),
    "connections that break and stall": Trial("network", network.broken_again_and_again),
    "connection flood": Trial("network", network.flooded),
    "changed tables": Trial("processes", _changed_tables, long=True),
    **{name: Trial("refusals", act) for name, act in REFUSALS.items()},
    **{name: Trial("disk", act) for name, act in DAMAGE.items()},
}
"""All trials, by name."""

SHORT = tuple(name for name, trial in TRIALS.items() if not trial.long)
"""Those that take some seconds each."""


def chosen(words: str) -> list[str]:
    """The trials whose names contain one of these words, which commas separate; all where there are none."""
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    found = [name for name in TRIALS if not wanted or any(word in name for word in wanted)]
    if not found:
        raise UsageError(f"no trial has {words!r} in its name: the trials are {', '.join(TRIALS)}")
    return found


def run(
    folder: Path,
    names: Sequence[str],
    *,
    count: int = 500,
    one_shot: int = 200,
    seed: int = 0,
    size: Size | None = None,
    progress: Progress = lambda *_: None,
    at_once: int = 2,
) -> list[Outcome]:
    """Make these trials.

    Args:
        folder: an empty one for all parties' folders; those of trials that failed stay there.
        names: of the trials.
        count: kills in all.
        one_shot: kills in trainings of one exchange.
        seed: of the tables, and of when and where is killed.
        size: of the training.
        progress: told what is being done.
        at_once: trainings at a time.
    """
    with Processes(folder / "processes.log") as processes:
        bench = Bench(
            folder, processes, size=size or Size(), kills=count, one_shot_kills=one_shot, seed=seed,
            progress=progress, at_once=at_once,
        )  # fmt: skip
        alone = [name for name in names if TRIALS[name].group in ("kills", "one exchange")]  # they keep all cores busy
        outcomes = [_try(bench, name) for name in alone]
        others = [name for name in names if name not in alone]
        with ThreadPoolExecutor(at_once) as pool:
            for outcome in pool.map(partial(_try, bench), others):
                outcomes.append(outcome)
                progress(outcome.name, len(outcomes), len(names))
        return outcomes


def _try(bench: Bench, name: str) -> Outcome:
    trial, began = TRIALS[name], time.monotonic()
    try:
        found = trial.act(bench)
    except TrialError as error:
        return Outcome(name, trial.group, False, str(error), time.monotonic() - began)
    except Exception:
        return Outcome(name, trial.group, False, traceback.format_exc(), time.monotonic() - began)
    return Outcome(name, trial.group, True, found.said, time.monotonic() - began, found.figures)


def summary(outcomes: Sequence[Outcome], *, seed: int) -> dict[str, Any]:
    """All of it as plain values, with the figures that matter most in front."""
    killed: Mapping[str, Any] = next((each.figures for each in outcomes if each.group == "kills"), {})
    refused = [each for each in outcomes if each.group == "refusals"]
    return {
        "passed": all(each.passed for each in outcomes),
        "kills_survived": killed.get("kills", 0),
        "one_shot_kills_survived": sum(
            each.figures.get("kills", 0) for each in outcomes if each.group == "one exchange"
        ),
        "models_identical": killed.get("identical"),
        "distinct_answers_per_step": killed.get("distinct_answers"),
        "recovery_median_s": killed.get("recovery_median_s"),
        "recovery_p95_s": killed.get("recovery_p95_s"),
        "refused": sum(each.passed for each in refused),
        "refusals": len(refused),
        "seed": seed,
        "trials": [asdict(each) for each in outcomes],
    }
