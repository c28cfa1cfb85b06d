"""Several parties, and several versions of a model."""

import os
import re
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest

from tacit.company.folder import Folder
from tacit.serve.halves import load_embedder, load_scorer
from tests.companies import contract, two_companies
from tests.one_shot.companies import Companies, table
from tests.serve.files import copied, expected
from tests.serve.online import settings
from tests.torture.workers import state_of
from tests.torture.world import free_port

QUICK = 'learn = {{ learner = "linear", floor = false, noise = {} }}\nalign.allow_edits = true\n'


@pytest.fixture(scope="module", name="three")
def _three(tmp_path_factory):
    companies = Companies(tmp_path_factory.mktemp("three"), table(900), ("airport", "weather"))
    companies.set("airport", columns='categorical = ["port"]', more=QUICK.format(0.0))
    companies.set("weather", columns='numeric = ["wind", "rain"]', more=QUICK.format(0.0))
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


def test_two_versions_of_a_model_are_live(exchanged, tmp_path, start):
    new, old, run = copied(exchanged.path, tmp_path / "new"), older(tmp_path / "old"), "older"
    for world in (new, old):
        settings(world, "airline", deadline_ms=60_000)
    airline = start(new / "airline", how=str(old / "airline"))
    for world in (new, old):
        start(world / "airport")
    airline.heard("connected", count=2)
    asked = pl.read_parquet(new / "airline" / "data.parquet").select("id", "plane").head(5)
    scores, _ = expected(new, asked)
    assert airline.scores(asked.to_dicts())["scores"] == scores.tolist()
    status, said = airline.ask([{"id": 3}], version=run)
    assert (status, said["basis"], said["versions"]["run"]) == (200, ["joint"], run)
    status, said = airline.ask(asked.to_dicts(), version="small")
    assert (status, said["scores"]) == (200, scores.tolist())
    status, said = airline.ask([{"id": 3}])
    assert (status, said["field"]) == (400, "plane"), "the first version has other columns"


def test_versions_with_one_name_are_refused(exchanged, tmp_path, start):
    world = copied(exchanged.path, tmp_path)
    refused = start(world / "airline", how=str(world / "airline"))
    assert refused.process.wait(120) == 4
    assert "different names" in refused.process.events[-1]["message"]


def test_no_request_is_lost_while_a_service_reads_its_folder_again(exchanged, tmp_path, start):
    world = copied(exchanged.path, tmp_path)
    settings(world, "airline", deadline_ms=60_000)
    airline, airport = start(world / "airline"), start(world / "airport")
    airline.heard("connected")
    asked = pl.read_parquet(world / "airline" / "data.parquet").select("id", "plane").head(1).to_dicts()
    unknown = [{"id": "x", "plane": 0.0}]
    over = threading.Event()

    def ask(_):
        found = []
        while not over.is_set():
            found.append(airline.ask(asked)[0])
        return found

    with ThreadPoolExecutor(4) as clients:
        under_way = [clients.submit(ask, one) for one in range(4)]
        assert airline.scores(unknown)["basis"] == ["fallback"]
        settings(world, "airline", fallback=False)
        airline.signal(signal.SIGHUP)
        airline.heard("reloaded")
        airline.heard("connected", count=2)
        over.set()
        assert {status for one in under_way for status in one.result()} == {200}
    assert airline.scores(unknown)["basis"] == ["none"]
    assert airline.scores(asked)["basis"] == ["joint"]
    (world / "airline" / "contract.toml").rename(world / "contract.toml")
    airline.signal(signal.SIGHUP)
    assert "contract.toml is missing" in airline.heard("reload failed")["reason"]
    assert airline.scores(asked)["basis"] == ["joint"], "it goes on with what it has"
    (world / "contract.toml").rename(world / "airline" / "contract.toml")
    party = world / "airline" / "party.toml"
    here = re.search(r'listen = "(.*):\d+"', party.read_text())[1]
    with socket.create_server((here, 0)) as taken:
        party.write_text(re.sub(r'listen = ".*"', f'listen = "{here}:{taken.getsockname()[1]}"', party.read_text()))
        airline.signal(signal.SIGHUP)
        airline.heard("reload failed", count=2)
        airline.heard("connected", count=3)
        assert airline.scores(asked)["basis"] == ["joint"], "its partner finds it where it was"
    assert (airline.stop(), airport.stop()) == (0, 0)
