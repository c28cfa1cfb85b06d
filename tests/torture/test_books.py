"""What the kill trials say about ledgers: a missing, other or additional entry is noticed."""

import shutil

import numpy as np
import pytest

from tacit.align.batches import Plan, digest
from tacit.company.folder import Folder
from tacit.contracts import Event
from tacit.ledger.ledger import Ledger
from tacit.ledger.run import Run
from tests.companies import align_rows
from tests.torture.books import check_ledgers
from tests.torture.world import FEATURES, PARTIES, RUN, Size, TrialError

SIZE = Size(rows=200, epochs=2, batch_size=16)


class Fake:
    """A finished training, as `check_ledgers` sees one."""

    def __init__(self, folder):
        self.folder = folder
        self.sent = {f"{FEATURES} gradient {step}" for step in range(20)}
        self.sent |= {f"{FEATURES} figures {step}" for step in range(6)}

    def party(self, name):
        return self.folder / name

    def run_folder(self, name):
        return self.folder / name / "runs" / RUN

    def answers(self):
        return {key: {"one"} for key in self.sent}


def entered(folder, name, *, steps=10**9, power=1.0):
    """A party's folder with an alignment and a ledger of its messages, as far as they are in it."""
    where = folder / name / "runs" / RUN
    where.mkdir(parents=True, exist_ok=True)
    align_rows(Folder(folder / name), np.arange(200), id="a", seed=5, digest="d")
    role = "features" if name == FEATURES else "label"
    run = Run(
        name=RUN, contract="c", alignment="a", role=role, count=200, batch_size=16, epochs=2, seed=5, test_share=0.2
    )
    done = {"train": 0, "evaluate": 0}
    with Ledger(folder / name / "ledger") as ledger:
        book = ledger.begin(run, None)
        for task in Plan(200, 16, 2, 5, 0.2).tasks():
            if task.what == "train" or (task.what == "evaluate" and role == "features"):
                if done[task.what] < steps:
                    event = Event("iso", {"t": power})
                    book.answer(task.what, done[task.what], task.turn, digest(task.rows), event, {"power": power})
                done[task.what] += 1


@pytest.fixture
def training(tmp_path):
    for part in ("reference", "trial"):
        for name in PARTIES:
            entered(tmp_path / part, name)
    return Fake(tmp_path / "trial")


def test_equal_ledgers_pass_and_say_how_many_rows_they_have(training, tmp_path):
    assert check_ledgers(training, tmp_path / "reference", SIZE) == 2 * 2 * 160 + 2 * 40


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"steps": 19}, "other entries"), ({"power": 2.0}, "other entries")],
    ids=["one less", "another figure"],
)
@pytest.mark.parametrize("name", PARTIES)
def test_a_difference_from_the_undisturbed_run_is_noticed(training, tmp_path, name, changes, said):
    shutil.rmtree(training.party(name) / "ledger")
    entered(training.folder, name, **changes)
    with pytest.raises(TrialError, match=rf"the ledger of {name} has {said}"):
        check_ledgers(training, tmp_path / "reference", SIZE)


def test_an_answer_that_was_entered_and_never_sent_or_sent_and_not_entered_is_noticed(training, tmp_path):
    training.sent.remove(f"{FEATURES} gradient 7")
    with pytest.raises(TrialError, match="counts other visits"):
        check_ledgers(training, tmp_path / "reference", SIZE)
