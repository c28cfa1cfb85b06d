"""Several parties, and a version of a model that follows another one."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import contract, two_companies
from tacit.company.folder import Folder
from tacit.serve.halves import load_embedder, load_scorer
from tests.exchange.companies import Companies, table
from tests.serve.files import copied, expected
from tests.serve.online import settings
from tests.torture.workers import state_of
from tests.torture.world import free_port

QUICK = 'learn = { learner = "linear" }\nalign.allow_edits = true\n'


@pytest.fixture(scope="module", name="three")
def _three(tmp_path_factory):
    companies = Companies(tmp_path_factory.mktemp("three"), table(900), ("airport", "weather"))
    companies.set("airport", columns='categorical = ["port"]', more=QUICK)
    companies.set("weather", columns='numeric = ["wind", "rain"]', more=QUICK)
    companies.align()
    outcomes = companies.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return companies


def test_three_companies_and_one_of_them_away(three, start):
    for name in ("airline", *three.parties):
        shutil.copytree(os.environ["TACIT_STATE"], state_of(three.path / name), dirs_exist_ok=True)
    settings(three.path, "airline", cache_seconds=0, deadline_ms=60_000)
    weather = pl.read_parquet(three.path / "weather" / "data.parquet")
    weather.tail(700).write_parquet(three.path / "weather" / "data.parquet")
    airline, airport = start(three.path / "airline"), start(three.path / "airport")
    airline.heard("connected", partner="airport")
    asked = pl.read_parquet(three.path / "airline" / "data.parquet").select("id", "plane").head(300)
    said = airline.scores(asked.to_dicts())
    assert (set(said["basis"]), set(said["reason"])) == ({"fallback"}, {"weather is not connected"})
    there = start(three.path / "weather")
    airline.heard("connected", partner="weather")
    said = airline.scores(asked.to_dicts())
    joint = asked["id"].is_in(weather.tail(700)["id"].to_list()).to_numpy()
    assert 0 < joint.sum() < 300
    assert said["basis"] == np.where(joint, "joint", "fallback").tolist()
    rows = asked.filter(joint)
    tables = {name: pl.read_parquet(three.path / name / "data.parquet") for name in three.parties}
    embeddings = {
        name: load_embedder(three.folder(name), "test").embed(rows.select("id").join(tables[name], on="id"))
        for name in three.parties
    }
    scores = load_scorer(three.folder("airline"), "test").score(rows, embeddings)[:, 0]
    assert np.array(said["scores"])[joint].tolist() == scores.tolist()
    assert [one.stop() for one in (airline, airport, there)] == [0, 0, 0]


def older(path):
    """Two companies with an older run, of a split training."""
    tables = [pl.DataFrame({"id": range(60), "y": [one % 2 for one in range(60)], "x": np.arange(60) / 10})] * 2
    companies = two_companies(path, tables, port=free_port(), text=contract(run="older"))
    with ThreadPoolExecutor(2) as both:
        list(both.map(Folder.align, companies, timeout=120))
        list(both.map(Folder.train, companies, timeout=120))
    shutil.copytree(os.environ["TACIT_STATE"], state_of(path / "airport"))
    return path


def test_a_second_service_takes_over(exchanged, tmp_path, start):
    """Each version of a model has a folder and a service of its own; the first ends when the second is there."""
    old, new = older(tmp_path / "old"), copied(exchanged.path, tmp_path / "new")
    for world in (old, new):
        settings(world, "airline", deadline_ms=60_000)
    first, partner = start(old / "airline"), start(old / "airport")
    first.heard("connected")
    status, said = first.ask([{"id": 3}])
    assert (status, said["basis"], said["versions"]["run"]) == (200, ["joint"], "older")
    second = start(new / "airline")
    start(new / "airport")
    second.heard("connected")
    assert first.scores([{"id": 3}]) == said
    assert [one.stop() for one in (first, partner)] == [0, 0]
    asked = pl.read_parquet(new / "airline" / "data.parquet").select("id", "plane").head(5)
    scores, _ = expected(new, asked)
    assert second.scores(asked.to_dicts())["scores"] == scores.tolist()
    status, said = second.ask([{"id": 3}])
    assert (status, said["field"]) == (400, "plane"), "the new model has other columns"


def test_a_run_is_served_by_one_process(exchanged, tmp_path, start):
    world = copied(exchanged.path, tmp_path)
    first = start(world / "airline")
    assert first.request("GET", "/health")[0] == 200
    refused = start(world / "airline")
    assert refused.process.wait(120) == 4
    assert "another process" in refused.process.events[-1]["message"]
