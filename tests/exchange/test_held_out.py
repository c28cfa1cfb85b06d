"""Test rows by group in one exchange: whole groups are judged on, and no label of theirs is sent."""

import json

import polars as pl

from tacit.company.aligned import aligned


def test_a_training_holds_whole_groups_out_and_sends_no_label_of_theirs(companies):
    for name in ("airline", "airport"):
        path = companies.path / name / "contract.toml"
        path.write_text(path.read_text().replace("[exchange]", 'test = { by = "person" }\n[exchange]'))
    companies.align()
    outcomes = companies.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    folder = companies.folder("airline")
    rows = aligned(folder)
    persons = rows.table(folder.data, ["person"])["person"]
    assert not set(persons[: rows.train]) & set(persons[rows.train :])
    assert len(pl.Series(persons[rows.train :]).unique()) * 2 == rows.count - rows.train
    report = json.loads((companies.run("airline") / "report.json").read_bytes())
    assert report["exchange"]["label_bound"]["rows"] == rows.train == report["subject"]["rows"]
    assert sum(part["rows"] for part in report["exchange"]["calibration"]) == rows.count - rows.train
