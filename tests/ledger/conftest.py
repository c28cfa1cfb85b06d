"""Small runs that are answered as a party would answer them: along the plan that the training itself follows."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.align.batches import Plan, digest
from tacit.contracts import Event
from tacit.ledger.ledger import Ledger
from tacit.ledger.run import Run

SMALL = Run(
    name="r", contract="contract", alignment="alignment", role="label", count=203, batch_size=16, epochs=3, seed=7,
    test_share=0.2,
)  # fmt: skip
MATCHED = Event("matched", {"leak_auc": 0.6, "visits": 3})
FIGURES = {"power": 1.5, "row_kl": 0.02, "untouched_rows": 0.0}


def plan_of(run):
    return Plan(run.count, run.batch_size, run.epochs, run.seed, run.test_share, run.test_rows)


def tasks(run, first=0):
    """All answers of a run from a turn on: kind, step, turn, rows."""
    for task in plan_of(run).tasks():
        if task.what != "done" and task.turn >= first:
            yield task.what, run.due(task.what, task.turn), task.turn, task.rows


def by_hand(run, turns=10**9):
    """Visits of each row, from the tasks of the training alone."""
    counted = Counter()
    for kind, _, turn, rows in tasks(run):
        if turn < turns and (kind == "train" or run.role == "features"):
            counted.update(rows.tolist())
    return counted


def answer_all(book, run, *, first=0, turns=10**9, event=MATCHED, figures=FIGURES):
    for kind, step, turn, rows in tasks(run, first):
        if turn < turns:
            book.answer(kind, step, turn, digest(rows), event, figures)


def keys(rows, offset=0):
    return np.arange(offset, offset + rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def other(name, **changes):
    return replace(SMALL, name=name, **changes)


@pytest.fixture(scope="session")
def made():
    """All of the above, by its name."""
    everything = (plan_of, tasks, by_hand, answer_all, keys, other)
    return SimpleNamespace(SMALL=SMALL, MATCHED=MATCHED, FIGURES=FIGURES, **{one.__name__: one for one in everything})


@pytest.fixture
def where(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def full(where):
    """A folder with a finished run; the path."""
    with Ledger(where) as ledger:
        book = ledger.begin(SMALL, keys(SMALL.count))
        answer_all(book, SMALL)
    return where
