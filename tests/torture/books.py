"""The ledgers of a finished training: equal to those of the undisturbed one, and to a count that does without them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tacit.align.batches import Plan
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.ledger.ledger import Ledger
from tacit.ledger.log import Reader
from tacit.ledger.run import ANSWERS
from tests.torture.world import FEATURES, LABEL, PARTIES, Size, Training, check

__all__ = ["check_ledgers", "counted"]

_TEST_SHARE = 0.2  # what a contract has that does not say


def check_ledgers(training: Training, reference: Path, size: Size) -> int:
    """Fail where a party's ledger is not that of the undisturbed run, or not what a count by hand gives.

    Args:
        training: that came to its end.
        reference: the folder of the undisturbed one.
        size: of both.

    Returns:
        How many rows were answered about.
    """
    answered = 0
    for name in PARTIES:
        book = Ledger(training.party(name) / "ledger")
        seen = book.check()
        check(not seen.torn, f"the ledger of {name} ends with {seen.torn} bytes that are no record")
        same = _entries(book.folder) == _entries(reference / name / "ledger")
        check(same, f"the ledger of {name} has other entries than in the undisturbed run")
        (declared,), (undisturbed,) = book.runs(), Ledger(reference / name / "ledger").runs()
        check(declared.row_kl == undisturbed.row_kl, f"the ledger of {name} adds up otherwise than undisturbed")
        visits = Counter({row: int(times) for row, times in enumerate(declared.visits()) if times})
        check(visits == counted(training, name, size), f"the ledger of {name} counts other visits than the steps had")
        found = book.summary()
        check(found.visits == Counter(visits.values()), f"the summary of {name}'s ledger adds up otherwise")
        answered += found.answers
    return answered


def counted(training: Training, name: str, size: Size) -> Counter[int]:
    """How often each row was in a message: the label party's as they were handed to the network, one by one.

    A feature party's requests are not watched; each must have been made for the label party's answers to be there.
    """
    rows = aligned(Folder(training.party(name)))
    plan = Plan(rows.count, size.batch_size, size.epochs, rows.seed, _TEST_SHARE)
    sent = training.answers()
    found: Counter[int] = Counter()
    steps = {"train": 0, "evaluate": 0}
    for task in plan.tasks():
        if task.what == "done":
            continue
        step, kind = steps[task.what], "gradient" if task.what == "train" else "figures"
        steps[task.what] += 1
        answered = f"{FEATURES} {kind} {step}" in sent
        if answered and (name != LABEL or task.what == "train"):
            found.update(task.rows.tolist())
    return found


def _entries(folder: Path) -> list[bytes]:
    """Every answer as it lies in a ledger, without what binds it to those before: secrets differ between folders."""
    return [frame.body for frame in Reader(folder).new() if frame.kind in ANSWERS]
