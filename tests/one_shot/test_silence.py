"""The partner picks the rows that are aligned: whatever their labels, units and history are, it sees the same."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from tests.one_shot.companies import Companies, table

ROWS, PICKED = 2400, 1000
OWN = 'label = "late", numeric = ["plane"]'


def picked():
    """The rows that the partner has: of its choice, it knows that all their labels are 0."""
    rows = table(ROWS)
    return rows.filter(pl.col("late") == 0).head(PICKED)


def companies(path, *, unit="", limits="limit = 0.75"):
    made = Companies(path, table(ROWS))
    picked().write_parquet(path / "airport" / "data.parquet")
    made.agree(unit)
    made.set("airline", limits=limits, columns=OWN)
    quick = 'learn = { learner = "linear", floor = false }\n'
    made.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=quick)
    return made


def labels(made, change):
    """Give the airline other labels for the rows that were picked; every other row keeps its own."""
    path = made.path / "airline" / "data.parquet"
    rows, ids = pl.read_parquet(path), picked()["id"].implode()
    rows.with_columns(late=pl.when(pl.col("id").is_in(ids)).then(change).otherwise("late")).write_parquet(path)


def heard(made, run="small"):
    """All that the airport sees of a training: what came and left, in which order, of which size; and how it ended."""
    where = made.run("airport", run)
    lines = [json.loads(line) for line in (where / "log.jsonl").read_text().splitlines()]
    sent = np.load(where / "flips" / "sent.npy")
    status = json.loads((where / "status.json").read_bytes())
    words = ("event", "peer", "what", "to", "rows", "bytes", "reason")
    seen = [{name: line[name] for name in words if name in line} for line in lines if line["event"] != "part"]
    return seen, sent.shape, sent.dtype, status["state"]


def trained(made):
    made.align()
    outcomes = made.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return outcomes["airline"]


@pytest.fixture(scope="module", name="usual")
def _usual(tmp_path_factory):
    made = companies(tmp_path_factory.mktemp("usual"))
    labels(made, (pl.col("wind") > 0).cast(pl.Int64))
    assert "test_auc" in trained(made).figures
    return heard(made)


@pytest.mark.parametrize("change", [0, 1, None, "one of another class"])
def test_labels_of_the_rows_that_were_picked_are_not_seen(usual, tmp_path, change):
    """Of one class, none at all, or a single one of another class: the training goes on, and figures are undefined."""
    made = companies(tmp_path)
    target = pl.col("id") == picked()["id"][0]
    labels(made, target.cast(pl.Int64) if isinstance(change, str) else pl.lit(change, dtype=pl.Int64))
    outcome = trained(made)
    assert heard(made) == usual
    assert outcome.figures == {} or isinstance(change, str)


def test_a_budget_that_is_spent_is_not_seen(usual, tmp_path):
    made = companies(tmp_path, limits="limit = 0.75\nbudget = 0.75")
    labels(made, (pl.col("wind") > 0).cast(pl.Int64))
    made.agree('rare = "negative"', run="before")
    made.set("airline", limits="limit = 0.6\nodds = 7.4\nbudget = 0.75", columns=OWN)
    trained(made)  # under other coins
    made.agree(run="small")
    made.set("airline", limits="limit = 0.75\nbudget = 0.75", columns=OWN)
    trained(made)
    assert heard(made) == usual
    log = (made.run("airline") / "log.jsonl").read_text()
    assert '"unpaid"' in log, "its owner is told"
