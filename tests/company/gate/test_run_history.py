"""What past runs leave for later ones: split runs of the same labels; and what is missing is refused."""

import shutil
import sqlite3
from contextlib import closing

import polars as pl
import pytest

from tacit.company.align import align
from tacit.company.aligned import facts_of
from tacit.company.folder import Folder
from tacit.errors import LimitError, LinkError, StorageError, UsageError
from tacit.split.record import RecordedRun
from tacit.split.train import train

MATCHED = 'protect.gradient = { name = "matched", leak_auc = 0.6 }\nlive = { every = 0 }'


def halt(answers):
    """A trace that ends a training for now, after so many answers."""
    left = [answers]

    def trace(point):
        left[0] -= point == "answer sent"
        if not left[0]:
            raise LinkError("for now")

    return trace


# --- split runs of the same labels ------------------------------------------------------------------------------------


@pytest.fixture(name="spent", scope="module")
def _spent(prepared, tmp_path_factory):
    """After a first run of three epochs, and agreed on a second one."""
    companies = prepared(tmp_path_factory.mktemp("runs") / "companies").set(MATCHED)
    for outcome in companies.train():
        assert not isinstance(outcome, Exception), outcome
    return companies.another_run("second")


@pytest.fixture(name="second")
def _second(spent, tmp_path):
    return spent.copy(tmp_path / "companies")


def known(folder):
    return facts_of(Folder(folder)).split_runs()


def test_what_left_is_on_record_on_both_sides(spent):
    (told,), (sent,) = known(spent.airline), known(spent.airport)
    assert (told.run, told.label, told.protection, told.epochs) == ("gated", "y", "matched(leak_auc=0.6, visits=3)", 3)
    assert (sent.run, sent.label, sent.protection, sent.epochs) == ("gated", None, "none", 3)
    assert told.alignment == sent.alignment == b"gated".hex()


def test_matched_is_refused_where_all_runs_of_a_label_have_more_epochs_than_its_visits(second):
    """Before anything is aligned; a run over other rows, or another column of labels, is not looked into."""
    refused = "promise holds over 3 visits.* together have 6 epochs .3 in 'second', 3 in 'gated'.: write visits = 6"
    for begin in (align, train):
        with pytest.raises(UsageError, match=refused):
            begin(second.airline)
    second.set('protect.gradient = { name = "matched", leak_auc = 0.6, visits = 6 }')
    for outcome in second.train():
        assert not isinstance(outcome, Exception), outcome
    assert [one.epochs for one in known(second.airline)] == [3, 3]


def test_a_run_that_has_begun_counts_once(gated):
    gated.set(MATCHED).train(airline=halt(6))
    assert len(known(gated.airline)) == 1
    for outcome in gated.train():
        assert not isinstance(outcome, Exception), outcome
    assert len(known(gated.airline)) == 1


def test_another_column_of_labels_has_visits_of_its_own(second):
    table = pl.read_parquet(second.airline / "data.parquet")
    table.with_columns(other=1 - pl.col("y")).write_parquet(second.airline / "data.parquet")
    settings = second.airline / "party.toml"
    settings.write_text(settings.read_text().replace('label = "y"', 'label = "other"'))
    for outcome in second.train():
        assert not isinstance(outcome, Exception), outcome
    assert [one.label for one in known(second.airline)] == ["y", "other"]


def test_a_run_that_pauses_before_its_first_gradient_is_not_on_record(gated):
    gated.set("limit = 0.6")
    airline, _ = gated.train()
    assert isinstance(airline, LimitError)
    assert not known(gated.airline)
    assert known(gated.airport), "its embeddings have left"


def test_the_alignment_of_a_split_run_is_never_forgotten(spent, tmp_path):
    companies = spent.copy(tmp_path / "companies").align("third").align("fourth")
    facts = facts_of(Folder(companies.airline))
    with closing(sqlite3.connect(facts.path)) as db:
        kept = {id for (id,) in db.execute("SELECT alignment FROM aligned")}
    assert b"gated".hex() in kept
    assert b"third".hex() not in kept


@pytest.mark.parametrize("protect", ['name = "none"', 'name = "marvell", leak_auc = 0.6'], ids=["none", "marvell"])
def test_what_has_no_bound_for_a_row_is_refused_under_a_budget_and_there_is_one_by_default(gated, protect):
    gated.set(f"protect.gradient = {{ {protect} }}").unset("budget")
    for begin in (align, train):
        with pytest.raises(UsageError, match=r"a budget of 0\.75 is to be kept.*budget = 1"):
            begin(gated.airline)
    assert not gated.told()


def test_what_promises_more_than_the_budget_is_refused(gated):
    gated.set(f"{MATCHED}\nbudget = 0.55")
    with pytest.raises(UsageError, match=r"a budget of 0\.55 is to be kept.*promises 0\.6 of any row"):
        align(gated.airline)


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.fixture(name="halted")
def _halted(gated):
    """A run under a limit that was ended for now."""
    gated.set('protect.gradient = { name = "matched", leak_auc = 0.6 }\nlimit = 0.8\nlive = { every = 0 }')
    gated.train(airline=halt(6))
    assert gated.told()[0]["decision"] == "keep"
    return gated


def test_a_run_whose_decisions_are_lost_sends_nothing_else_in_their_place(halted):
    for name, says in (("gate.jsonl", "1 of its 1 lines are missing"), ("gate.jsonl.seal", "gone with its seal")):
        (halted.run(halted.airline) / name).unlink()
        airline, _ = halted.train()
        assert isinstance(airline, StorageError)
        assert says in str(airline)


def test_a_decision_that_was_changed_by_hand_is_refused(halted):
    path = halted.run(halted.airline) / "gate.jsonl"
    path.write_text(path.read_text().replace('"epoch": ', '"epoch": 1'))
    airline, _ = halted.train()
    assert isinstance(airline, StorageError)
    assert "gate.jsonl, line 1" in str(airline)


def test_a_run_whose_transcript_is_lost_goes_on_without_a_limit_alone(gated):
    gated.train(airline=halt(6))
    shutil.rmtree(gated.run(gated.airline) / "transcript")
    airline, _ = gated.train()
    assert not isinstance(airline, Exception), airline
    assert RecordedRun.open(gated.run(gated.airline) / "transcript").unrecorded == 4


def test_under_a_limit_a_run_does_not_go_on_without_what_it_sent(gated):
    gated.set('protect.gradient = { name = "matched", leak_auc = 0.6 }\nlimit = 0.9')
    gated.train(airline=halt(6))
    shutil.rmtree(gated.run(gated.airline) / "transcript")
    airline, _ = gated.train()
    assert isinstance(airline, LimitError), airline
    assert "4 of 4 steps that were sent are not recorded" in str(airline)
