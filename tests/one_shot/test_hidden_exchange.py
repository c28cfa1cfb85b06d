"""`labels = "hidden_sums"`: two companies train, the label party sees no groups, and every label is paid for once."""

import json
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from tacit.company.departures import book_of
from tacit.company.one_shot_report import exchange_report
from tacit.company.train import train_one_shot
from tacit.errors import UsageError
from tacit.one_shot.book import open_book

from .companies import Companies, OverError, table

pytest.importorskip("coincurve", reason="libsecp256k1 comes with the extra [sums]")

LABEL = 'label = "late", numeric = ["plane"]'


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory):
    companies = Companies(tmp_path_factory.mktemp("hidden"), table(1000))
    companies.agree('labels = "hidden_sums"\ngroup_size = 16\npartitions = 2')
    companies.set("airline", limits="limit = 0.75\nodds = 12.0\nbudget = 0.8", columns=LABEL)
    companies.align()
    outcomes = companies.together(
        lambda name, waiting: train_one_shot(companies.folder(name), waiting=waiting), patience=600
    )
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return companies, outcomes


def test_sums_of_hidden_groups_help_and_are_certified(trained):
    _, outcomes = trained
    airline = outcomes["airline"]
    assert airline.figures["test_auc"] > airline.alone["test_auc"] + 0.05
    assert airline.certificate.auc <= 0.75
    assert airline.certificate.odds <= 12.0
    assert "but for a probability of 0.005" in airline.certificate.sentence
    assert "as long as nobody computes discrete logarithms" in airline.certificate.sentence
    assert airline.certificate.parameters["mechanism"] == "hidden sums"


def states_of(companies):
    folder = companies.run("airline") / "hidden" / "airport"
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("partition-*"))]


def test_every_partition_was_answered_once_and_paid_for_once(trained):
    companies, _ = trained
    states = states_of(companies)
    assert [state["name"] for state in states] == ["answered"] * 2
    assert [len(state["sums"]) for state in states] == [50] * 2
    book = open_book(companies.path / "airline" / "coins", companies.folder("airline").secret)
    assert book.releases == 1
    assert book.summary(0.005).auc <= 0.75
    assert book.check().releases == 1
    book.close()


def test_what_was_told_are_averages_of_labels_with_noise(trained):
    companies, _ = trained
    sent = np.load(companies.run("airport") / "flips" / "sent.npy")
    assert sent.shape == (800,)
    answered = [np.mean(state["sums"]) / 16 for state in states_of(companies)]
    assert sent.mean() == pytest.approx(np.mean(answered))
    values = {one + other for one in states_of(companies)[0]["sums"] for other in states_of(companies)[1]["sums"]}
    assert {round(32 * value) for value in sent} <= values


def test_no_groups_left(trained):
    companies, _ = trained
    assert not (companies.run("airport") / "groups").exists()
    left = [json.loads(line) for line in (companies.run("airport") / "log.jsonl").read_text().splitlines()]
    assert "groups" not in {line.get("what") for line in left}
    assert "shuffled ciphertexts" in {line.get("what") for line in left}


def test_what_nameless_sums_can_show_is_in_the_book_and_in_the_audit(trained):
    companies, _ = trained
    hidden, embedding = book_of(companies.folder("airport")).all()
    assert (hidden.kind, embedding.kind) == ("hidden sums", "embedding")
    assert hidden.form == "sums of 50 hidden groups in 2 partitions: of all rows together 100 bits at most"
    released = json.loads((companies.run("airport") / "release" / "release.json").read_bytes())
    assert released["audit"]["notes"][0] == f"besides, {hidden.form} (run small)"


def test_both_reports_say_what_the_bound_takes_and_what_left(trained):
    companies, _ = trained
    mine = exchange_report(companies.folder("airline"))
    assert "discrete logarithms" in " ".join(mine.assumptions)
    assert "arithmetic" not in " ".join(mine.assumptions)
    assert mine.verdict == "held"
    theirs = exchange_report(companies.folder("airport"))
    assert any("hidden groups" in note for note in theirs.exchange.release.notes)
    assert "shuffled ciphertexts" in {one.what for one in theirs.exchange.departures}


def test_started_again_it_has_the_same(trained):
    companies, outcomes = trained
    assert train_one_shot(companies.folder("airline")).figures == outcomes["airline"].figures


def test_a_second_run_is_over_the_budget_before_anybody_connects(trained):
    companies, _ = trained
    companies.agree('labels = "hidden_sums"\ngroup_size = 16\npartitions = 2', run="second")
    companies.align()
    with pytest.raises(UsageError, match=r"budget = \d+: with this release 800 of the units"):
        train_one_shot(companies.folder("airline"), waiting=_over)


def _over(*_):
    raise OverError


def test_of_a_person_one_row_is_in_each_partition_and_the_person_pays_once(tmp_path):
    companies = Companies(tmp_path, table(1000))
    companies.agree('labels = "hidden_sums"\ngroup_size = 16\npartitions = 2\nunit = "person"')
    companies.set("airline", limits="limit = 0.75\nodds = 12.0", columns=LABEL)
    companies.align()
    outcomes = companies.together(
        lambda name, waiting: train_one_shot(companies.folder(name), waiting=waiting), patience=600
    )
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    certificate = outcomes["airline"].certificate
    assert certificate.total_auc == certificate.auc <= 0.75
    assert "two persons" in certificate.sentence
    rows, ids = np.load(companies.run("airport") / "rows.npy"), pl.read_parquet(companies.path / "airport/data.parquet")
    persons = ids["person"].to_numpy()[rows[:800]]
    groups = np.load(companies.run("airport") / "hidden groups" / "groups.npy")
    for partition in groups.T:
        inside = persons[partition >= 0]
        assert len(set(inside)) == len(inside) > 0.9 * len(set(persons))
    assert (groups[:, 0] != groups[:, 1]).any()


def test_two_processes_train_and_one_that_is_killed_goes_on_to_the_same(tmp_path):
    companies = Companies(tmp_path, table(1000))
    companies.agree('labels = "hidden_sums"\ngroup_size = 16\npartitions = 2')
    companies.set("airline", limits="limit = 0.75\nodds = 12.0\nbudget = 0.8", columns=LABEL)
    companies.align()
    first = companies.run("airline") / "hidden" / "airport" / "partition-0.json"

    def started(name):
        return subprocess.Popen([sys.executable, "-m", "tacit", "train", "--folder", str(companies.path / name)])

    airline, airport = started("airline"), started("airport")
    try:
        while not first.exists():  # a batch came; whatever is being done with it ends here
            assert airline.poll() is None
            assert airport.poll() is None
            time.sleep(0.05)
        airline.kill()
        airline.wait()
        before = json.loads(first.read_bytes())
        airline = started("airline")
        assert [airline.wait(), airport.wait()] == [0, 0]
    finally:
        for process in (airline, airport):
            process.kill()
            process.wait()
    after = states_of(companies)
    assert after[0]["batch"] == before["batch"]
    assert [state["name"] for state in after] == ["answered"] * 2
    assert json.loads((companies.run("airline") / "figures.json").read_bytes())["figures"]["test_auc"] > 0.8
