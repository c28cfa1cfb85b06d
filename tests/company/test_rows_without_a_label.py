"""Split training with rows that have no label: the partner has picked them, and sees a training like any other."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
import torch

from tacit.align.batches import Plan
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.errors import LabelsError
from tacit.split.label_run import build_label_party
from tacit.split.run import plan_of
from tacit.split.train import train

MISSING = [3, 4, 10, 31, 59]


def both(companies, act):
    with ThreadPoolExecutor(2) as pool:
        return [one.result(timeout=60) for one in [pool.submit(act, Folder(each.path)) for each in companies]]


def labels(companies, change):
    path = companies[0].path / "data.parquet"
    pl.read_parquet(path).with_columns(y=change).write_parquet(path)


def test_a_row_without_a_label_has_one_that_was_drawn_for_good(companies):
    labels(companies, pl.when(pl.col("id").is_in(MISSING)).then(None).otherwise("y"))
    both(companies, Folder.align)
    folder = Folder(companies[0].path)
    rows = aligned(folder)
    party, _ = build_label_party(folder, rows, plan_of(folder.contract, rows))
    again, _ = build_label_party(Folder(folder.path), rows, Plan(rows.count, 8, 1, 5, 0.2))
    ids = rows.table(folder.data, ["id", "y"])
    without = ids["id"].is_in(MISSING).to_numpy()
    assert party.known.tolist() == (~without).tolist()
    assert torch.equal(party.labels, again.labels), "the same in every run"
    assert np.array_equal(party.labels.numpy()[~without], ids["y"].to_numpy()[~without])
    assert set(party.labels.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("change", ["some", "all but one", "of one class"])
def test_the_partner_sees_a_training_like_any_other(companies, change):
    """Rows beyond those that are aligned have labels of both classes, or the table would say nothing."""
    rows = pl.read_parquet(companies[0].path / "data.parquet")
    more = pl.DataFrame({"id": [1000, 1001], "y": [0, 1], "x": [0.0, 0.1]})
    pl.concat([rows, more.select(rows.columns)], how="vertical_relaxed").write_parquet(
        companies[0].path / "data.parquet"
    )
    picked = pl.col("id") < 1000
    labels(
        companies,
        {
            "some": pl.when(pl.col("id").is_in(MISSING)).then(None).otherwise("y"),
            "all but one": pl.when(picked & (pl.col("id") != 7)).then(None).otherwise("y"),
            "of one class": pl.when(picked).then(1).otherwise("y"),
        }[change],
    )
    both(companies, Folder.align)
    airline, airport = both(companies, train)
    assert (len(airline.history), len(airport.history)) == (1, 1)
    where = airport.folder / "status.json"
    assert json.loads(where.read_text())["state"] == "finished"
    assert ("test_auc" in airline.history[0]) is (change == "some")


def test_a_third_class_is_refused_by_the_whole_table(companies):
    """Whether one of the rows that the partner has picked has it would else be seen."""
    for company in companies:
        path = company.path / "contract.toml"
        path.write_text(path.read_text().replace('loss = "binary"', 'loss = "softmax"'))
    settings = companies[0].path / "party.toml"
    settings.write_text(settings.read_text().replace('.name = "none"', ' = { name = "iso", t = 3.0 }'))
    rows = pl.read_parquet(companies[0].path / "data.parquet")
    other = rows.head(1).with_columns(id=pl.lit(1000, pl.Int64), y=pl.lit(2, pl.Int64))
    pl.concat([rows, other]).write_parquet(companies[0].path / "data.parquet")
    with pytest.raises(LabelsError, match="3 classes, and protections and limits of labels are for two"):
        Folder(companies[0].path).align()
