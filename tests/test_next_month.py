"""The same two companies, a month later: two commands, with tables that have grown, in both ways to train."""

import json

import numpy as np
import pytest

from benchmarks._companies import two_companies
from tacit.company.agreed import agree
from tests.exchange.companies import Companies, table
from tests.test_waiting import LINEAR, Command
from tests.torture.world import free_port


class Two:
    """Companies that train step by step."""

    def __init__(self, path):
        self.path = path
        rows = table(1200)
        tables = [rows.select("id", y="late"), rows.select("id", x="wind")]
        self.folders = two_companies(path, [one.head(900) for one in tables], port=free_port())
        self.tables = dict(zip(("airline", "airport"), tables, strict=True))

    def folder(self, name):
        return dict(zip(("airline", "airport"), self.folders, strict=True))[name]

    def run(self, name, run):
        return self.path / name / "runs" / run


def exchanged(path):
    made = Companies(path, table(1200).head(900))
    made.set("airport", columns='numeric = ["wind", "rain"]', more=LINEAR)
    made.tables = dict.fromkeys(("airline", "airport"), table(1200))
    return made


def both(companies, *words):
    started = [Command(companies, name, *words) for name in ("airline", "airport")]
    ended = [one.ended() for one in started]
    assert [code for code, _ in ended] == [0, 0], ended


@pytest.mark.parametrize("make", [exchanged, Two], ids=["one exchange", "split training"])
def test_a_table_that_has_grown_takes_two_commands(make, tmp_path):
    companies = make(tmp_path)
    for name in companies.tables:
        agree(companies.folder(name))
    both(companies, "align", "--wait", "5m")
    both(companies, "train", "--wait", "5m")
    for name, grown in companies.tables.items():
        grown.write_parquet(tmp_path / name / "data.parquet")
    both(companies, "align", "--run", "august", "--wait", "5m")
    plan = Command(companies, "airline", "train", "--plan", "--json")
    planned = json.loads(plan.process.communicate(timeout=300)[0])
    assert (planned["run"], planned["rows"]) == ("august", 1200)
    both(companies, "train", "--wait", "5m")
    for name in ("airline", "airport"):
        statuses = sorted((tmp_path / name / "runs").glob("*/status.json"))
        assert [one.parent.name for one in statuses] == ["august", "small"]
        assert [json.loads(one.read_bytes())["state"] for one in statuses] == ["finished", "finished"]
    if make is Two:
        return
    figures = planned["plan"]["figures"]
    assert figures["rows"] == 960, "0.8 of those that are aligned"
    train = {run: set(_ids(companies, run)) for run in ("small", "august")}
    assert figures["new"] == len(train["august"] - train["small"]), "rows that had left before cost nothing"


def _ids(companies, run):
    """The ids whose labels left in a run, as the airport knows them."""
    from tacit.company.aligned import facts_of

    folder = companies.folder("airport")
    found = facts_of(folder).of_run(run)
    keys = facts_of(folder).keys(found)
    return [key.tobytes() for key in keys[: len(np.load(companies.run("airport", run) / "flips" / "sent.npy"))]]
