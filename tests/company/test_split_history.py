"""Split runs of the labels of an exchange: of what both tell together no bound is stated."""

import pytest

from tacit.company.aligned import counted_facts
from tacit.company.facts import SPLIT_RUN, SplitRun
from tacit.company.folder import Folder
from tacit.company.split_history import told_beside
from tacit.errors import StorageError
from tacit.labels.flips import flips
from tacit.labels.label_bound import LabelBound
from tacit.labels.records import Charge, Summary
from tests.exchange.companies import Companies, table


@pytest.fixture(name="airline")
def _airline(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "state"))
    return Companies(tmp_path / "companies", table(60)).folder("airline")


def entered(folder, label, run="step by step"):
    with counted_facts(folder, SPLIT_RUN) as facts:
        facts.enter(SplitRun(run, run, "00", label, "matched(leak_auc=0.6, visits=3)", 3))


def bounded(folder):
    total = Summary("row", (), (Charge(60, 0.6, 1.5, "flips"),), 60)
    return LabelBound.of(flips(0.6), 60, total, None, told_beside(folder, None))


def test_where_nothing_else_told_the_labels_there_is_a_bound_on_everything(airline):
    entered(airline, "another column")
    assert bounded(airline).beside == ""
    assert "holds everything that this party has ever sent" in bounded(airline).sentence


@pytest.mark.parametrize("label", ["late", None], ids=["this column", "one that is not known"])
def test_the_label_bound_names_the_split_run_and_its_protection(airline, label):
    entered(airline, label)
    said = bounded(airline).sentence
    assert said.startswith(
        "No bound is stated for these labels: the same labels went out in the split run 'step by step'"
    )
    assert "under matched(leak_auc=0.6, visits=3)" in said
    assert "everything that this party has ever sent" not in said
    assert "what this party sent in exchanges" in said


def test_a_file_that_has_forgotten_a_split_run_is_an_older_copy(airline):
    entered(airline, "late")
    (airline.path / "facts.sqlite").unlink()
    with pytest.raises(StorageError, match="knows of 0 split runs, and something left in 1"):
        told_beside(Folder(airline.path), None)
