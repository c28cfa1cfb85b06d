"""What the endpoint of a label party says to requests that are wrong, each with its row and field; never a 5xx."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.align.encoder import Columns, Encoder
from tacit.align.ids import read_ids
from tacit.errors import DataError, UsageError
from tacit.serve.asked import Form, WrongRequestError, parsed
from tacit.serve.serve import TOKEN, serve
from tacit.serve.tokens import tokens_of
from tests.serve.files import copied
from tests.serve.fuzz import fuzz
from tests.serve.online import PATIENCE, Service
from tests.torture.workers import state_of

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", name="world")
def _world(exchanged, tmp_path_factory):
    return copied(exchanged.path, tmp_path_factory.mktemp("http"))


@pytest.fixture(scope="module", name="airline")
def _airline(world, processes):
    service = Service(processes, world / "airline", world / "airline.events")
    yield service
    service.process.kill()


def rows(**fields):
    return json.dumps({"rows": [{"id": "f1", "plane": 0.5}, {"id": "f2", "plane": 0.5, **fields}]})


@pytest.mark.parametrize(
    ("body", "status", "said", "where"),
    [
        ("", 400, "not JSON", {}),
        ("{", 400, "not JSON", {}),
        (b"\xff\xfe{}", 400, "not JSON", {}),
        ("[1]", 400, "must be a JSON object", {}),
        ("[" * 100_000, 400, "nested too deeply", {}),
        ('{"rows": [{"id": "f1", "plane": NaN}]}', 400, "NaN is no number", {}),
        ('{"rows": [{"id": "f1", "plane": %s}]}' % ("9" * 5000), 400, "not JSON", {}),
        ('{"more": 1, "rows": []}', 400, "'more' is unknown", {"field": "more"}),
        ('{"rows": []}', 400, "one row or more", {"field": "rows"}),
        ('{"rows": {"id": "f1"}}', 400, "one row or more", {"field": "rows"}),
        ('{"rows": [[]]}', 400, "row 0 must be an object", {"row": 0}),
        (json.dumps({"rows": [{}] * 1001}), 413, "1000 may be in one request", {"field": "rows"}),
        ('{"rows": [{"id": "f1"}]}', 400, "'plane' is missing", {"row": 0, "field": "plane"}),
        (
            '{"rows": [{"id": "f1", "plain": 0.5}]}', 400, "'plane' is missing (null says that there is no value), and "
            "['plain'] are not used", {"row": 0, "field": "plane"},
        ),
        (rows(plane="far"), 400, "must be a finite number or null", {"row": 1, "field": "plane"}),
        (rows(plane=True), 400, "must be a finite number or null", {"row": 1, "field": "plane"}),
        (rows(plane=[1]), 400, "must be a finite number or null", {"row": 1, "field": "plane"}),
        (rows(plane=10**30), 400, "more than 64 bits", {"row": 1, "field": "plane"}),
        (rows().replace("0.5", "1e999"), 400, "must be a finite number or null", {"row": 0, "field": "plane"}),
        (rows(id=1.5), 400, "is an id", {"row": 1, "field": "id"}),
        (rows(id=True), 400, "is an id", {"row": 1, "field": "id"}),
        (rows(id={}), 400, "is an id", {"row": 1, "field": "id"}),
        (rows(id=10**30), 400, "whole number of 64 bits", {"row": 1, "field": "id"}),
        (rows(id="\ud800"), 400, "half a character", {"row": 1, "field": "id"}),
        (rows(id="x" * 257), 400, "an id of more than 256 characters", {"row": 1, "field": "id"}),
        (rows(id="e" + "\u0301" * 31), 400, "more than 30 combining marks", {"row": 1, "field": "id"}),
        ('{"version": "old", "rows": [{}]}', 400, "'version' is unknown", {"field": "version"}),
        (" " * (1 << 20) + "{}", 413, "more than 1048576 bytes", {}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_row_and_field(airline, body, status, said, where):
    answer = airline.request("POST", "/score", body, JSON)
    told = json.loads(answer[2])
    assert (answer[0], said in told.pop("error")) == (status, True), answer
    assert told == where


def test_other_methods_paths_and_types(airline):
    assert airline.request("GET", "/score")[0] == 405
    assert airline.request("POST", "/health", "{}", JSON)[0] == 405
    assert airline.request("GET", "/nothing")[0] == 404
    assert airline.request("POST", "/score", rows(), {"Content-Type": "text/plain"})[0] == 415
    for path, status in {"/nothing": 404, "/score": 405}.items():
        assert "error" in json.loads(airline.request("GET", path)[2]), status
    assert airline.request("POST", "/score", rows(), {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 200


def test_ids_and_numbers_of_other_types_that_mean_the_same_are_welcome(airline):
    same = [{"id": 7, "plane": 1}, {"id": "7", "plane": 1.0}]
    assert len({json.dumps(airline.scores([row])["scores"]) for row in same}) == 1
    assert airline.scores([{"id": "", "plane": None}])["reason"] == ["this row has no id"]


def test_rows_come_straight_from_a_table_with_more_columns(airline):
    """The label and columns that nobody trained with among them; one that is needed must be there by its name."""
    row = {"id": "f1", "plane": 0.5}
    more = {"late": True, "notes": {"any": ["thing", None]}, "": 1e300}
    assert airline.scores([{**row, **more}, row])["scores"] == airline.scores([row, row])["scores"]
    status, said = airline.ask([{**row, **more}, {"id": "f1", "Plane": 0.5, **more}])
    assert (status, said["row"], said["field"]) == (400, 1, "plane")
    assert "'Plane'" in said["error"]


def test_ids_with_very_many_marks_do_not_stop_the_service(airline):
    """Whole requests of them took 14 seconds in which nobody else was answered."""
    marks = "".join(chr(0x0300 + number % 0x50) for number in range(16_384))
    began = time.monotonic()
    body = json.dumps({"rows": [{"id": marks, "plane": 0.5}] * 31}, ensure_ascii=False).encode()
    assert len(body) > 1_000_000
    status, _, said = airline.request("POST", "/score", body, JSON)
    assert (status, json.loads(said)["row"]) == (400, 0)
    longest = ("e" + marks[:30]) * 8  # 248 characters
    assert airline.scores([{"id": f"{longest}{number}", "plane": 0.5} for number in range(500)])["basis"]
    assert time.monotonic() - began < 10  # 0.2 s on a machine of its own


def test_nonsense_is_never_our_fault(airline):
    found = fuzz(airline.port, 400, seed=len(os.environ.get("TACIT_TEST_SEED", "")))
    assert found[200] > 20, found
    assert found[400] > 50, found
    assert airline.request("GET", "/health")[0] == 200


# --- the form of a request alone -------------------------------------------------------------------------------------

TABLE = pl.DataFrame({"text": ["a", "b"], "whole": [1, 2], "yes": [True, False], "x": [0.5, 1.5], "y": [1.0, 2.0]})
TABLE = TABLE.with_columns(since=pl.Series(["2014-01-19", "2014-02-01"]), at=pl.Series(["2014-01-19 08:30", None]))
COLUMNS = Columns(("text", "whole", "yes"), ("x", "y"), ("y",), ("since",), ("at",))
ENCODER = Encoder.fit(TABLE, COLUMNS, np.array([0, 1]))
FORM = Form(("id", "day"), ENCODER, b"key", 3)
FIELDS = ("id", "day", *TABLE.columns)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.sampled_from(["a", "é", 1]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)
right = st.fixed_dictionaries(
    {
        "id": st.none() | st.text() | st.integers(-9, 9), "day": st.sampled_from(["1", 1, None, ""]),
        "text": st.none() | st.text(), "whole": st.none() | st.integers(0, 3), "yes": st.none() | st.booleans(),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False), "y": st.none() | st.integers(-5, 5),
        "since": st.none() | st.dates().map(str) | st.text(), "at": st.none() | st.datetimes().map(str) | st.text(),
    }
)  # fmt: skip
spoilt = st.tuples(right, st.sampled_from((*FIELDS, "more")), values).map(lambda one: {**one[0], one[1]: one[2]})


@given(st.lists(right | spoilt | values, min_size=1, max_size=3))
def test_a_request_is_read_or_its_mistake_is_named(asked):
    try:
        found = FORM.read(parsed(json.dumps({"rows": asked}).encode()))
    except WrongRequestError:
        return
    table = pl.DataFrame([pl.Series(name, found.values[name], dtype=dtype) for name, dtype in FORM.dtypes.items()])
    assert len(ENCODER.encode(table)) == len(asked) == len(found)
    for row, token in zip(asked, found.tokens, strict=True):
        ids = pl.DataFrame({"id": [row["id"]], "day": [row["day"]]}, strict=False)
        try:
            same = tokens_of(b"key", read_ids(ids, ["id", "day"]).hashes)[0].tobytes()
        except DataError:
            same = None  # the row has no id
        assert token == same


# --- who may ask -----------------------------------------------------------------------------------------------------


LONG = "a-word-of-more-than-thirty-two-signs"


def test_what_others_can_reach_needs_a_proxy_and_a_token(world, monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    other = copied(world, world / "other")
    for name in ("airline", "airport"):
        with pytest.raises(UsageError, match="give --behind-proxy where one stands"):
            serve(other / name, http="0.0.0.0:0")
        with pytest.raises(UsageError, match=f"set {TOKEN}"):
            serve(other / name, http="0.0.0.0:0", behind_proxy=True)
    with pytest.raises(UsageError, match="write host and port"):
        serve(other / "airline", http="localhost")
    for token in ("a", "a-long-word", "a" * 31, "a long word that requests must bring", "é" * 40):
        monkeypatch.setenv(TOKEN, token)
        for address in ("0.0.0.0:0", "127.0.0.1:0"):
            with pytest.raises(UsageError, match="no token of 32 signs or more"):
                serve(other / "airline", http=address, behind_proxy=True)
    monkeypatch.setenv(TOKEN, LONG)
    with pytest.raises(UsageError, match="--behind-proxy"):
        serve(other / "airline", http="0.0.0.0:0")
    with pytest.raises(UsageError, match="can't listen at"):
        serve(other / "airline", http="192.0.2.1:80", behind_proxy=True)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7080", "127.0.0.1.evil.example", "", "10.0.0.1"])
def test_without_a_token_a_name_that_was_made_to_lead_here_gets_nothing(airline, host):
    for method, path in (("GET", "/metrics"), ("GET", "/health"), ("POST", "/score")):
        assert airline.request(method, path, rows() if method == "POST" else None, {**JSON, "Host": host})[0] == 400
    assert airline.request("GET", "/health", None, {"Host": "localhost:9"})[0] == 200


@pytest.mark.parametrize(
    "said", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
             {"Sec-Fetch-Site": "same-site"}],
)  # fmt: skip
def test_without_a_token_no_site_asks_by_a_browser(airline, said):
    assert airline.request("POST", "/score", rows(), {**JSON, **said})[0] == 403
    assert airline.request("GET", "/metrics", None, said)[0] == 403
    assert airline.request("POST", "/score", rows(), {**JSON, "Sec-Fetch-Site": "none"})[0] == 200


def test_the_command_with_a_token(world, tmp_path):
    other = copied(world, tmp_path)
    environment = {**os.environ, TOKEN: LONG, "TACIT_STATE": state_of(other / "airline")}
    command = [sys.executable, "-m", "tacit", "serve", "--folder", str(other / "airline"), "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            address = json.loads(process.stdout.readline())["http"]

            def get(path, **headers):
                try:
                    request = urllib.request.Request(address + path, headers=headers)
                    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                        return answer.status
                except urllib.error.HTTPError as error:
                    return error.code

            assert get("/metrics") == get("/metrics", Authorization=f"Bearer {LONG[:-1]}r") == 401
            assert get("/metrics", Authorization=f"Basic {LONG}") == 401
            assert get("/metrics", Authorization=f"bearer {LONG}") == 200
            assert get("/health") == get("/ready") == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
            events = [json.loads(line)["event"] for line in process.stderr.read().splitlines()]
            assert (events[0], events[-1]) == ("serving", "stopped")
        finally:
            process.kill()
