"""Groups that sums are asked for show who is alike: they are attacked, entered and told of like an embedding."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.company.one_shot_report import exchange_report
from tacit.errors import LimitError
from tacit.one_shot.shipments import Shipments
from tacit.views.status import read_run

from .companies import Companies, OverError, table

COLUMNS = 'categorical = ["port"], numeric = ["wind", "rain"]'
QUICK = 'learn = { learner = "linear", floor = false, ranks = 4, noise = 4.0 }\n'


def with_sums(path, limits):
    companies = Companies(path, table(900))
    companies.agree('labels = "sums"\ngroup_size = 8\npartitions = 8', width=1)
    companies.set(
        "airline", limits="limit = 0.75\nodds = 12.0\nbudget = 0.8", columns='label = "late", numeric = ["plane"]'
    )
    companies.set("airport", limits=limits, columns=COLUMNS, more=QUICK)
    companies.align()
    return companies


def test_groups_that_tell_more_than_the_limit_never_leave(tmp_path):
    companies = with_sums(tmp_path, "limit = 0.3")
    outcomes = companies.train()
    assert isinstance(outcomes["airport"], LimitError)
    assert "the groups" in str(outcomes["airport"])
    assert "nothing was sent" in str(outcomes["airport"])
    assert isinstance(outcomes["airline"], OverError), "nobody asked it for anything"
    assert not Shipments(tmp_path / "airport" / "embeddings").all()
    assert read_run(companies.run("airport")).get("left", []) == []


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory):
    companies = with_sums(tmp_path_factory.mktemp("groups"), "")
    outcomes = companies.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return companies, outcomes["airport"]


def test_groups_are_entered_before_the_embedding_and_are_among_the_departures(trained):
    companies, _ = trained
    groups, embedding = Shipments(companies.path / "airport" / "embeddings").all()
    assert (groups.kind, groups.rows, embedding.kind, embedding.rows) == ("groups", 720, "embedding", 900)
    assert groups.worst > 0.5
    left = read_run(companies.run("airport"))["left"]
    assert [(one["what"], one["to"], one["rows"], one["bytes"]) for one in left] == [
        ("groups", "airline", 720, 720 * 8 * 8),
        ("embedding", "airline", 900, 900),
    ]
    assert [one.what for one in exchange_report(companies.folder("airport")).exchange.departures] == [
        "groups",
        "embedding",
    ]


def test_an_audit_attacks_the_groups_again(trained):
    companies, outcome = trained
    report = exchange_report(companies.folder("airport"), again=True)
    assert report.exchange.release.worst == pytest.approx(outcome.audit["worst"])
    assert {"groups"} & {column.decoder for column in report.exchange.release.columns}


def test_a_later_run_is_attacked_together_with_the_groups(trained):
    companies, first = trained
    companies.agree(run="later", width=1)
    companies.set("airline", limits="limit = 0.6\nbudget = 0.95\nodds_budget = 1000.0", columns='label = "late"')
    companies.align()
    outcome = companies.train()["airport"]
    assert not isinstance(outcome, BaseException), outcome
    told = json.loads((companies.run("airport", "later") / "release" / "release.json").read_bytes())
    assert "8 partitions into groups that left before" in told["audit"]["notes"][0]
    assert outcome.audit["worst"] > first.audit["worst"] - 0.1, "what the groups tell is told"
    assert np.load(companies.run("airport") / "groups" / "groups.npy").shape == (720, 8)
