"""Two companies serve: two processes, real TLS, real HTTP."""

import json
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest

from benchmarks._relay import Relay
from tacit.company.aligned import facts_of
from tacit.company.facts import PREDICTION
from tacit.company.folder import Folder
from tacit.company.shipments import Shipments
from tacit.exchange.checked import Checked, check_sent
from tests.serve.files import copied, expected, to_score, together
from tests.serve.online import settings
from tests.torture.workers import state_of

DEADLINE = 30.0  # seconds, on a busy machine; the service promises less


@pytest.fixture(name="world")
def _world(exchanged, tmp_path):
    world = copied(exchanged.path, tmp_path)
    settings(world, "airline", deadline_ms=60_000)  # a busy machine is no slow partner
    return world


def both(start, world):
    airline, airport = start(world / "airline"), start(world / "airport")
    airline.heard("connected")
    return airline, airport


def rows(world, count, first=0):
    return pl.read_parquet(world / "airline" / "data.parquet").select("id", "plane")[first : first + count].to_dicts()


def sealed(world, name):
    return [line for line in facts_of(Folder(world / name)).records(PREDICTION) if line["run"] == "small"]


def test_scores_are_those_of_predict_bit_for_bit_and_all_of_it_is_on_record(world, start, monkeypatch):
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    table = to_score(world, world / "new.parquet", rows=300)
    together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    shutil.copytree(state_of(world / "airport"), state_of(world / "airline"), dirs_exist_ok=True)
    airline, airport = both(start, world)
    said = airline.scores(table.to_dicts())
    scores, joint = expected(world, table)
    assert said["scores"] == pl.read_parquet(world / "scores.parquet")["score"].to_list() == scores.tolist()
    assert said["basis"] == np.where(joint, "joint", "fallback").tolist()
    reasons = dict(zip(table["id"].to_list(), said["reason"], strict=True))
    assert reasons.pop("x1") == reasons.pop("x2") == "not every party has this id"
    assert reasons.pop(None) == "this row has no id"
    assert set(reasons.values()) == {None}
    alone = [airline.scores([row])["scores"][0] for row in table.head(5).to_dicts()]
    assert alone == scores[:5].tolist()
    assert (airline.stop(), airport.stop()) == (0, 0)
    said = [(one["what"], one["rows"]) for one in sealed(world, "airline")]
    assert said == [("tokens", 302), ("room for tokens", 10_000), ("tokens", 302)]
    *_, room, left = sealed(world, "airport")
    assert (room["what"], left["what"], left["rows"], left["different"]) == (
        "room for embeddings", "embeddings", 302, 300,
    )  # fmt: skip
    assert Shipments(world / "airport" / "embeddings").versions() == {1: 900}, "these had all left in training"


def test_a_partner_that_is_killed_is_missed_and_comes_back(world, start):
    settings(world, "airline", cache_seconds=0)
    airline, airport = both(start, world)
    some = rows(world, 3)
    joint = airline.scores(some)
    assert joint["basis"] == ["joint"] * 3
    airport.process.kill()
    airline.heard("not connected")
    began = time.monotonic()
    alone = airline.scores(some)
    assert time.monotonic() - began < DEADLINE
    assert (alone["basis"], alone["reason"]) == (["fallback"] * 3, ["airport is not connected"] * 3)
    assert airline.request("GET", "/ready")[0] == 200, "a fallback is declared"
    again = start(world / "airport")
    airline.heard("connected", count=2)
    assert airline.scores(some) == joint
    airline.process.kill()  # and the other way round: the airport finds the airline again by itself
    again.heard("not connected")
    airline = start(world / "airline")
    airline.heard("connected")
    assert airline.scores(some) == joint
    assert again.metrics()["tacit_serve_budget_different_rows_left"] == 999_997, "rows are paid for once"
    assert (airline.stop(), again.stop()) == (0, 0)
    used = [one["rows"] for one in sealed(world, "airport") if one["what"] == "room for embeddings"]
    assert used == [10_000, 10_000], "each service had entered it before it answered"


def test_a_slow_partner_is_not_waited_for(world, start):
    settings(world, "airline", cache_seconds=0, deadline_ms=400)
    airline, airport = both(start, world)
    airport.signal(signal.SIGSTOP)
    began = time.monotonic()
    said = airline.scores(rows(world, 2))
    assert 0.3 <= time.monotonic() - began < DEADLINE
    assert (said["basis"], said["reason"]) == (["fallback"] * 2, ["airport did not answer in time"] * 2)
    airport.signal(signal.SIGCONT)
    end = time.monotonic() + 120
    while airline.scores(rows(world, 2))["basis"] != ["joint"] * 2:
        assert time.monotonic() < end
    assert not [one for one in airline.process.events if one["event"] == "not connected"], "the link has lasted"


def test_an_answer_that_came_too_late_serves_the_next_request(world, start):
    settings(world, "airline", deadline_ms=200)
    airline, airport = both(start, world)
    airport.signal(signal.SIGSTOP)
    assert airline.scores(rows(world, 1))["basis"] == ["fallback"]
    airport.signal(signal.SIGCONT)
    end = time.monotonic() + 120
    while airline.scores(rows(world, 1))["basis"] != ["joint"]:
        assert time.monotonic() < end
    assert airline.metrics()['tacit_serve_messages_total{partner="airport"}'] == 1


@pytest.mark.parametrize(
    ("limit", "field"),
    [({"different_rows": 4}, "budget"), ({"rows_a_minute": 5}, "rate")],
)
def test_over_a_budget_or_a_rate_the_fallback_answers_and_the_link_stays(world, start, limit, field):
    settings(world, "airport", **limit)
    airline, airport = both(start, world)
    first = airline.scores(rows(world, 4))
    assert first["basis"] == ["joint"] * 4
    over = airline.scores(rows(world, 3, first=4))
    assert (over["basis"], over["reason"]) == (["fallback"] * 3, [f"airport refused ({field})"] * 3)
    assert airline.scores(rows(world, 4)) == first, "what came before is still there"
    assert airport.heard("request refused")["field"] == field
    assert airport.metrics()[f'tacit_serve_requests_total{{outcome="{field}"}}'] == 1
    assert airline.metrics()['tacit_serve_connected{partner="airport",run="small"}'] == 1


def test_a_budget_lasts_over_the_end_of_a_service(world, start):
    settings(world, "airport", different_rows=4)
    airline, airport = both(start, world)
    assert airline.scores(rows(world, 4))["basis"] == ["joint"] * 4
    assert (airline.stop(), airport.stop()) == (0, 0)
    airline, airport = both(start, world)
    assert airline.scores(rows(world, 4))["basis"] == ["joint"] * 4, "these are paid for"
    assert airline.scores(rows(world, 1, first=4))["basis"] == ["fallback"]
    assert airport.stop() == 0
    (world / "airport" / "runs" / "small" / "served.bin").unlink()
    gone = start(world / "airport")
    assert gone.process.wait(60) == 4
    assert "served.bin knows of 0 rows, and 4 have left" in gone.process.events[-1]["message"]


def test_what_was_asked_for_once_is_not_asked_again_for_a_while(world, start):
    airline, airport = both(start, world)
    said = [airline.scores(rows(world, 2)) for _ in range(5)]
    assert said == said[:1] * 5
    assert airport.metrics()['tacit_serve_rows_total{known="yes"}'] == 2


def test_a_row_that_has_changed_is_entered_anew(world, start):
    settings(world, "airline", cache_seconds=0)
    settings(world, "airport", refresh_seconds=1)
    airline, airport = both(start, world)
    one = rows(world, 1)
    before = airline.scores(one)["scores"]
    table = pl.read_parquet(world / "airport" / "data.parquet").with_columns(pl.col("wind") + 3.0)
    table.write_parquet(world / "airport" / "new.parquet")
    (world / "airport" / "new.parquet").rename(world / "airport" / "data.parquet")
    end = time.monotonic() + 120
    while airline.scores(one)["scores"] == before:
        assert time.monotonic() < end
    assert airport.stop() == 0
    assert sealed(world, "airport")[-1]["different"] == 2
    book = Shipments(world / "airport" / "embeddings")
    assert book.versions() == {1: 899, 2: 1}
    assert check_sent(Folder(world / "airport"), book) == Checked(1, 900, 0, 0)


def test_a_split_training_has_no_fallback(split, tmp_path, start):
    world = copied(next(iter(split.values())).path.parent, tmp_path)
    settings(world, "airline", deadline_ms=60_000)
    airline = start(world / "airline")
    asked = [{"id": 3}, {"id": "59"}, {"id": 777}]
    status, _, said = airline.request("GET", "/ready")
    assert (status, json.loads(said)["ready"]) == (503, False)
    assert airline.scores(asked)["basis"] == ["none"] * 3
    start(world / "airport")
    airline.heard("connected")
    said = airline.scores(asked)
    assert said["basis"] == ["joint", "joint", "none"]
    assert said["scores"][2] is None
    assert said["reason"][2] == "not every party has this id"
    assert airline.request("GET", "/ready")[0] == 200


def test_what_is_under_way_is_answered_before_the_end(world, start):
    settings(world, "airline", deadline_ms=4000)
    airline, airport = both(start, world)
    airport.signal(signal.SIGSTOP)
    with ThreadPoolExecutor(4) as clients:
        under_way = [clients.submit(airline.scores, rows(world, 1, first=place)) for place in range(4)]
        end = time.monotonic() + 120
        while airline.metrics().get('tacit_serve_cache_total{found="no",partner="airport"}', 0) < 4:
            assert time.monotonic() < end
        airline.signal(signal.SIGTERM)
        assert [one.result()["basis"] for one in under_way] == [["fallback"]] * 4
    airport.signal(signal.SIGCONT)
    assert airline.process.wait(60) == 0


def test_more_than_can_wait_is_told_to_come_again(world, start):
    settings(world, "airline", waiting_rows=3)
    airline, airport = both(start, world)
    airport.signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as client:
        first = client.submit(airline.scores, rows(world, 3))
        end = time.monotonic() + 120
        while airline.metrics().get('tacit_serve_cache_total{found="no",partner="airport"}', 0) < 3:
            assert time.monotonic() < end
        body = json.dumps({"rows": rows(world, 1, first=5)})
        status, headers, said = airline.request("POST", "/score", body, {"Content-Type": "application/json"})
        assert (status, headers["retry-after"]) == (503, "1")
        assert "too many rows" in json.loads(said)["error"]
        airport.signal(signal.SIGCONT)
        assert first.result()["basis"] == ["joint"] * 3
    assert airline.scores(rows(world, 1, first=5))["basis"] == ["joint"]


def test_many_clients_share_messages(world, start):
    airline, _ = both(start, world)
    table = pl.read_parquet(world / "airline" / "data.parquet").select("id", "plane").head(640)
    scores, _ = expected(world, table)
    with ThreadPoolExecutor(64) as clients:
        said = list(clients.map(lambda row: airline.scores([row]), table.to_dicts()))
    assert [one["basis"] for one in said] == [["joint"]] * 640
    assert [one["scores"][0] for one in said] == scores.tolist()
    assert airline.metrics()['tacit_serve_messages_total{partner="airport"}'] < 640


def test_unknown_rows_look_like_known_ones_to_whoever_sees_the_line(world, start):
    settings(world, "airline", cache_seconds=0)
    port = int((world / "airport" / "party.toml").read_text().split('connect = "127.0.0.1:')[1].split('"')[0])
    with Relay(port) as relay:
        path = world / "airport" / "party.toml"
        path.write_text(path.read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{relay.port}"))
        airline, _ = both(start, world)
        sizes = {}
        for name, ids in {"known": ["f1", "f2"], "unknown": ["x1", "x2"], "both": ["f3", "x3"]}.items():
            airline.scores([{"id": one, "plane": 0.0} for one in ids])  # and keep-alives may come in between
            sizes[name] = set()
            for _ in range(5):
                before = relay.passed
                airline.scores([{"id": one, "plane": 0.0} for one in ids])
                time.sleep(0.05)
                sizes[name].add(relay.passed - before)
        assert min(sizes["known"]) == min(sizes["unknown"]) == min(sizes["both"]), sizes


def test_neither_logs_nor_metrics_hold_an_id(world, start):
    airline, airport = both(start, world)
    airline.scores([{"id": "f12", "plane": 0.0}, {"id": "verysecret", "plane": 1.0}])
    airline.ask([{"id": "verysecret", "plane": "x"}])
    told = [service.request("GET", "/metrics")[2].decode() for service in (airline, airport)]
    told += [json.dumps(service.process.events) for service in (airline, airport)]
    for text in told:
        assert "verysecret" not in text
        assert "f12" not in text
    assert airport.request("POST", "/score", "{}")[0] == 404, "a feature party has no scores"
    assert json.loads(airport.request("GET", "/health")[2]) == {"alive": True}
    assert airport.request("GET", "/ready")[0] == 200
