"""The ledger in a run: a budget over all runs, and what is missing is refused."""

import shutil

import pytest

from tacit.company.gate import decisions
from tacit.errors import LimitError, LinkError, StorageError, UsageError
from tacit.ledger.ledger import Ledger
from tacit.ledger.summary import auc_of
from tacit.wire.record import RecordedRun

MATCHED = 'protect.gradient = { name = "matched", leak_auc = 0.6 }\nlive = { every = 0 }'
STRONGER = 'protect.gradient = { name = "matched", leak_auc = 0.55 }'  # both together stay under a budget of 0.63


def halt(answers):
    """A trace that ends a training for now, after so many answers."""
    left = [answers]

    def trace(point):
        left[0] -= point == "answer sent"
        if not left[0]:
            raise LinkError("for now")

    return trace


def foreseen(companies, run):
    return [one["foreseen"]["value"] for one in decisions(companies.airline / "runs" / run)]


# --- a budget over all runs ------------------------------------------------------------------------------------------


@pytest.fixture(name="spent", scope="module")
def _spent(prepared, tmp_path_factory):
    """After a first run under a budget, with what it has left of it."""
    companies = prepared(tmp_path_factory.mktemp("budget") / "companies")
    companies.set(f"{MATCHED}\nbudget = 0.63")
    for outcome in companies.train():
        assert not isinstance(outcome, Exception), outcome
    summary = Ledger(companies.airline / "ledger").summary()
    assert [one["decision"] for one in companies.told()] == ["keep"] * 4
    assert summary.worst_case == pytest.approx(0.6), "what was promised is what is counted"
    return companies, summary.each[0].sum_kl


@pytest.fixture(name="second")
def _second(spent, tmp_path):
    """Agreed on a second training over the same rows."""
    return spent[0].copy(tmp_path / "companies").another_run("second"), spent[1]


def test_a_second_run_over_the_same_rows_gets_what_the_first_has_left(second):
    companies, used = second
    airline, _ = companies.set(STRONGER).train()
    told = decisions(companies.airline / "runs" / "second")
    assert [one["decision"] for one in told] == ["keep"] * 4
    own = airline.party.protect.sum_kl
    assert told[0]["foreseen"]["value"] == pytest.approx(auc_of(used + own))
    assert Ledger(companies.airline / "ledger").summary().runs == 2


def test_where_both_together_would_pass_the_budget_the_second_run_pauses(second):
    companies, _ = second
    airline, _ = companies.train()
    assert isinstance(airline, LimitError)
    assert "the budget 0.63 can't be held" in str(airline)
    assert Ledger(companies.airline / "ledger").summary().each[1].answers == 0
    airline, _ = companies.set("budget = 0.8").train()
    told = decisions(companies.airline / "runs" / "second")
    assert [one["decision"] for one in told] == ["pause", "resume", "keep", "keep", "keep"]


def test_a_budget_that_is_used_up_is_refused_before_anything_is_sent(second):
    companies, _ = second
    airline, _ = companies.set("budget = 0.51").train()
    assert isinstance(airline, UsageError)
    assert "former runs have used it up for 640 of 800 rows" in str(airline)


def test_a_second_run_that_is_killed_has_the_same_left(second, kills):
    companies = second[0].set(STRONGER)
    alone = companies.copy(companies.path.parent / "alone")
    kill = kills(40, 33, 21)
    for trained in (companies.train(airline=kill), alone.train()):
        assert not any(isinstance(outcome, Exception) for outcome in trained)
    assert kill.done == 3
    assert foreseen(companies, "second") == foreseen(alone, "second")


@pytest.mark.parametrize("protect", ['name = "none"', 'name = "marvell", leak_auc = 0.6'], ids=["none", "marvell"])
def test_what_has_no_bound_for_a_row_is_refused_under_a_budget_and_there_is_one_by_default(gated, protect):
    gated.set(f"protect.gradient = {{ {protect} }}").unset("budget")
    airline, _ = gated.train()
    assert isinstance(airline, UsageError)
    assert "a budget of 0.75 is to be kept" in str(airline)
    assert "budget = 1" in str(airline)
    assert not gated.told()


def test_a_budget_is_kept_where_nothing_is_recorded(gated):
    gated.set(f"{MATCHED}\nbudget = 0.55\nrecord = {{ last = 0, follow = 0 }}")
    airline, _ = gated.train()
    assert isinstance(airline, LimitError)
    assert gated.told()[0]["decision"] == "pause"
    gated.set("budget = 0.65")
    airline, _ = gated.train()
    assert not isinstance(airline, Exception), airline
    assert [one["decision"] for one in gated.told()] == ["pause", "resume", "keep", "keep", "keep"]


def test_former_runs_count_in_the_limit(second):
    """The first run may have told 0.6 of every row: under a limit of 0.6 nothing is left, under 0.8 some is."""
    companies, used = second
    airline, _ = companies.set("limit = 0.6").train()
    assert isinstance(airline, UsageError)
    assert "former runs may have told the labels of rows of this run up to 0.600" in str(airline)
    airline, _ = companies.set("limit = 0.8\nbudget = 0.9").train()
    first = decisions(companies.airline / "runs" / "second")[0]
    assert first["foreseen"]["value"] >= auc_of(used), "what was told before is in the figure"


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.fixture(name="halted")
def _halted(gated):
    """A run under a limit that was ended for now."""
    gated.set('protect.gradient = { name = "matched", leak_auc = 0.6 }\nlimit = 0.8\nlive = { every = 0 }')
    gated.train(airline=halt(6))
    assert gated.told()[0]["decision"] == "keep"
    return gated


def test_a_run_that_the_ledger_does_not_know_is_refused(halted):
    shutil.rmtree(halted.airline / "ledger")
    airline, _ = halted.train()
    assert isinstance(airline, StorageError)
    assert "its ledger has 0 records" in str(airline)
    for counted in halted.state.glob("ledger-airline-*"):
        counted.unlink()
    airline, _ = halted.train()
    assert isinstance(airline, StorageError)
    assert "only 0 are written down" in str(airline)
    assert "or the run began before there was one" in str(airline)


def test_a_run_whose_decisions_are_lost_sends_nothing_else_in_their_place(halted):
    for name, says in (("gate.jsonl", "2 of its 2 lines are missing"), ("gate.jsonl.seal", "gone with its seal")):
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
