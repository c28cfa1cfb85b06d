"""The demo in three acts: common rows, split learning as in the papers, one exchange; real flights, real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tacit.config import FEATURE_LIMIT, LEARNING_RATES
from tacit.lab import one_exchange, two_companies
from tacit.lab.data import flights
from tacit.lab.trial import Course, Problem, Trial, attack, decode, problem_of, train
from tacit.lab.two_companies import Company
from tacit.progress import Progress
from tacit.split.protect.embedding.gaussian import gaussian
from tacit.split.protect.gradient import protection

SPLIT = 60_000  # flights of the second act
EPOCHS = 3
# Of a flight the airport sends one of four groups, each at least 15% of all. The contract's default, one of eight of at
# least 2%, tells a conjunction of hour and weather at more than the limit (`python -m benchmarks limit`).
BITS, SMALLEST = 2, 0.15
LIMIT = FEATURE_LIMIT
"""The airport's limit in the third act."""

PROTECTIONS: dict[str, dict[str, float]] = {
    "none": {},
    "iso": {"t": 100.0},
    "max_norm": {},
    "marvell": {"scale": 4.0},
    "matched": {"leak_auc": 0.6, "visits": EPOCHS},
}
"""Of gradients, in the second act, with their strengths."""

BETWEEN = "marvell"
"""The protection under which two processes train in any case."""


def run(
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    apart: bool = False,
    progress: Progress,
    show: Callable[[str, dict[str, Any]], None] = lambda *_: None,
) -> dict[str, Any]:
    """All three acts, as plain values; `show` gets each one as soon as it is over.

    Args:
        out: where both companies' folders are made.
        rows: about so many common flights; all where it is left out.
        seed: of everything that is drawn but keys and coins.
        apart: whether all trainings of the second act go between two processes.
        progress: told what is being done.
        show: told the name of an act and what came of it.
    """
    airline, airport = one_exchange.prepare(
        out, rows=rows, seed=seed, bits=BITS, smallest=SMALLEST, feature_limit=LIMIT
    )
    told = {"match": two_companies.align(airline, airport, progress)}
    show("match", told["match"])
    told["split"] = _split(out / "split", min(rows or SPLIT, SPLIT), seed, apart, progress)
    show("split", told["split"])
    told["exchange"] = _exchange(airline, airport, told["match"]["common"], seed, progress)
    show("exchange", told["exchange"])
    return told


def _exchange(airline: Company, airport: Company, common: int, seed: int, progress: Progress) -> dict[str, Any]:
    told = one_exchange.learn(airline, airport, progress=progress)
    progress("scoring three flights", 0, 0)
    scored = one_exchange.three_flights(airline, airport, seed=seed)
    return {**told, "common": common, "limit": LIMIT, "groups": 2**BITS, "smallest": SMALLEST, "scored": scored}


# --- the second act --------------------------------------------------------------------------------------------------


def _split(out: Path, rows: int, seed: int, apart: bool, progress: Progress) -> dict[str, Any]:
    """Five protections of the same training, each attacked in every way; and what embeddings tell."""
    table = two_companies.some(flights.common(), rows)
    problem = problem_of(flights.joint(table).data("flights", None, seed))
    size = two_companies.batch_size_of(rows)
    course = Course(EPOCHS, size, bottom_rate=LEARNING_RATES["features"], last=12, seed=seed)
    between = list(PROTECTIONS) if apart else [BETWEEN]
    found: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(1) as other, _one_thread():
        companies = other.submit(_between_companies, out, between, rows, seed)
        for name, options in PROTECTIONS.items():
            if name not in between:
                trained = train(name, problem, course, protect=protection(name, **options), progress=progress)
                found[name] = _row(attack(trained, progress=progress))
        embedding = _embedding(problem, course, progress)
        while not companies.done():
            progress("training between two processes", 0, 0)
            wait([companies], timeout=1)
        found |= companies.result()
    return {
        "flights": len(problem.train) + len(problem.test), "epochs": EPOCHS, "seconds": found[BETWEEN]["seconds"],
        "rows": [found[name] for name in PROTECTIONS], "embedding": embedding,
    }  # fmt: skip


def _embedding(problem: Problem, course: Course, progress: Progress) -> dict[str, Any]:
    """What linear decoders read of the airport's columns under `matched`, from bare embeddings and from noised ones."""
    told = {}
    for name, protect in (("bare", []), ("noised", [gaussian(snr=4.0, clip=8.0)])):
        gradient = protection("matched", **PROTECTIONS["matched"])
        trained = train(
            "embeddings " + name, problem, course, protect=gradient, protect_embedding=protect, progress=progress
        )
        told[name] = {"read": decode(trained), "test_auc": trained.test_auc}
    return told


def _between_companies(out: Path, names: list[str], rows: int, seed: int) -> dict[str, dict[str, Any]]:
    """Trainings between two processes, over TLS and with journals, attacked while they run: a line for each."""
    found = {}
    for name in names:
        (out / name).mkdir(parents=True, exist_ok=True)
        companies = two_companies.prepare(
            out / name, epochs=EPOCHS, rows=rows, seed=seed, limit=None, gradient=_setting(name), embedding="[]"
        )
        told = two_companies.meet(*companies, progress=lambda *_: None)
        leaks = {one["attack"]: {key: one[key] for key in _KEPT} for one in told["attacks"]}
        found[name] = {
            **_line(name, told["test_auc"], leaks, told["worst"]["attack"]),
            "seconds": told["train_seconds"],
        }
    return found


def _setting(name: str) -> str:
    """A protection as a label party's settings spell it."""
    return (
        "{ " + ", ".join([f'name = "{name}"', *(f"{key} = {value}" for key, value in PROTECTIONS[name].items())]) + " }"
    )


_KEPT = ("value", "low", "high", "baseline")


def _row(trial: Trial) -> dict[str, Any]:
    """The same line of a training in one process."""
    leaks = {}
    for one in trial.findings:
        baseline = None if one.baseline is None else one.baseline.value
        figures = (one.leak.value, one.leak.low, one.leak.high, baseline)
        leaks[one.attack] = dict(zip(_KEPT, figures, strict=True))
    return _line(trial.protection, trial.test_auc, leaks, trial.worst.attack)


def _line(name: str, test_auc: float, leaks: dict[str, dict[str, float | None]], worst: str) -> dict[str, Any]:
    options = ", ".join(f"{key}={value:g}" for key, value in PROTECTIONS[name].items())
    spelled = f"{name}({options})"
    return {"protection": spelled, "test_auc": test_auc, "leak_auc": leaks, "worst": {"attack": worst, **leaks[worst]}}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Leave a core to the two companies, which train meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
