"""What a label party keeps to itself while its door is open, and what it tells its owner alone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.exchange.train import train_one_shot
from tacit.exchange.way import problem
from tacit.report.document import Leak, Report
from tacit.report.seals import write_report
from tests.exchange.companies import Companies, table

ROWS, PICKED = 1500, 900
OWN = 'label = "late", numeric = ["plane"]'


def companies(path, *, limits="limit = 0.75"):
    """The airport has picked some of the airline's rows."""
    made = Companies(path, table(ROWS))
    table(ROWS).head(PICKED).write_parquet(path / "airport" / "data.parquet")
    made.set("airline", limits=limits, columns=OWN)
    made.set("airport", columns='numeric = ["wind", "rain"]', more='learn = { learner = "linear" }\n')
    made.align()
    return made


def trained(made, **more):
    outcomes = made.together(
        lambda name, waiting: train_one_shot(made.folder(name), waiting=waiting, **(more if name == "airline" else {}))
    )
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return outcomes["airline"]


def test_from_the_door_to_the_last_acknowledgement_nothing_of_labels_can_be_opened(tmp_path):
    """Its table, its book, its facts and its secret are elsewhere meanwhile."""
    made, shut = companies(tmp_path), []
    airline, kept, away = tmp_path / "airline", tmp_path / "kept", tmp_path / "away"
    kept.mkdir()
    shutil.move(airline / "data.parquet", kept)
    (airline / "data.parquet").symlink_to(kept / "data.parquet")

    def trace(point):
        if point == "answers written":
            kept.rename(away)  # the file itself stays as it is
            for name in ("coins", "facts.sqlite", "keys/secret"):
                shutil.move(airline / name, away)
                shut.append(name)
        if point == "acknowledgement sent":
            for name in shut:
                shutil.move(away / name.rpartition("/")[2], airline / name)
            away.rename(kept)

    outcome = trained(made, trace=trace)
    assert len(shut) == 3
    assert "test_auc" in outcome.figures


def test_what_is_measured_of_labels_closes_no_door(tmp_path):
    """The partner knows which of its rows were sent as they are: were these too many, it could ask about one more."""
    made = companies(tmp_path)
    trained(made)
    folder, where = made.folder("airline"), made.run("airline")
    report = Report.model_validate_json((where / "report.json").read_bytes())
    measured = report.model_copy(update={"verdict": "broken"})
    write_report(measured, where)
    assert problem(folder, where, measured) is None
    bounded = measured.model_copy(
        update={"worst": Leak(attack="label bound", on="exchange", value=0.8, low=0.8, high=0.8)}
    )
    write_report(bounded, where)
    assert "its limit is broken" in str(problem(folder, where, bounded))


@pytest.fixture(name="private")
def _private(tmp_path):
    """Companies of which one had no room in its budget for some rows, and no longer has others."""
    made = companies(tmp_path, limits="limit = 0.6\nodds = 7.4\nbudget = 0.75")
    made.agree('rare = "positive"', run="before")
    trained(made)  # under other coins
    made.agree(run="small")
    made.set("airline", limits="limit = 0.75\nbudget = 0.75", columns=OWN)
    path = tmp_path / "airline" / "data.parquet"
    picked = table(ROWS)["id"][:3]
    pl.read_parquet(path).filter(~pl.col("id").is_in(picked.implode())).write_parquet(path)
    trained(made)
    return made


def test_its_owner_alone_hears_of_rows_that_could_not_be_paid_for_and_of_those_that_are_gone(private):
    status = json.loads((private.run("airline") / "status.json").read_bytes())
    train = len(np.load(private.run("airport") / "flips" / "sent.npy"))
    assert status["gone"] == 3
    assert train - 3 <= status["unpaid"] <= train
    told = CliRunner().invoke(app, ["status", "--folder", str(private.path / "airline")]).output
    assert "3 aligned rows are no longer in the table" in told
    assert f"{status['unpaid']:,} rows had no room in the budget" in told
    for name in ("report.json", "report.html", "label_bound.json"):
        shown = (private.run("airline") / name).read_text()
        assert "no longer in the table" not in shown
        assert "unpaid" not in shown
    heard = (private.run("airport") / "log.jsonl").read_text() + (private.run("airport") / "status.json").read_text()
    assert "unpaid" not in heard
    assert "gone" not in heard
