"""Split runs of the labels of an exchange: of what both tell together no bound is stated."""

import pytest

from tacit.company.facts import SplitRun
from tacit.company.folder import Folder
from tacit.company.split_history import counted_facts, told_beside
from tacit.errors import StorageError
from tacit.one_shot.certificate import certify
from tacit.one_shot.flips import flips
from tacit.one_shot.records import Charge, Summary
from tests.one_shot.companies import Companies, table


@pytest.fixture(name="airline")
def _airline(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "state"))
    return Companies(tmp_path / "companies", table(60)).folder("airline")


def entered(folder, label, run="step by step"):
    with counted_facts(folder, None) as facts:
        facts.enter(SplitRun(run, run, "00", label, "matched(leak_auc=0.6, visits=3)", 3))


def certified(folder):
    total = Summary("row", (), (Charge(60, 0.6, 1.5, "flips"),), 60)
    return certify(flips(0.6), 60, total, None, told_beside(folder, None))


def test_where_nothing_else_told_the_labels_there_is_a_bound_on_everything(airline):
    entered(airline, "another column")
    assert certified(airline).beside == ""
    assert "receives everything that this party has sent" in certified(airline).sentence


@pytest.mark.parametrize("label", ["late", None], ids=["this column", "one that is not known"])
def test_the_certificate_names_the_split_run_and_its_protection(airline, label):
    entered(airline, label)
    said = certified(airline).sentence
    assert said.startswith(
        "No bound is stated for these labels: the same labels went out in the split run 'step by step'"
    )
    assert "under matched(leak_auc=0.6, visits=3)" in said
    assert "everything that this party has sent" not in said
    assert "what this party has sent in exchanges" in said


def test_a_file_that_has_forgotten_a_split_run_is_an_older_copy(airline):
    entered(airline, "late")
    (airline.path / "facts.sqlite").unlink()
    with pytest.raises(StorageError, match="knows of 0 split runs, and something left in 1"):
        told_beside(Folder(airline.path), None)
