"""`tacit check`: what it finds on a sound folder, and that it names each thing that was broken, with what to do."""

import json
import os
import re
import socket
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import polars as pl
import pytest

from benchmarks._relay import Relay
from tacit.company.folder import Folder, create
from tacit.company.meeting import alignment_limits
from tacit.company.ready import checks, reach
from tacit.errors import LinkError
from tacit.wire import certificates, network


def by_name(found):
    return {one.name: one for one in found}


def examine(folder):
    return by_name(checks(folder.path))


def broken(folder):
    """The names of what is wrong, but for the clock of this machine."""
    return [name for name, one in examine(folder).items() if one.verdict == "problem"]


def edit(folder, name, old, new):
    path = folder.path / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture(name="door")
def _door(companies):
    """The airline listens for the airport, as `tacit align` does."""
    airline, airport = companies
    trusted = {"airport": airport.identity.cert_pem}
    server = network.listen(airline.config.address, airline.identity, trusted, alignment_limits())
    yield server
    server.close()


# --- a folder --------------------------------------------------------------------------------------------------------


def test_a_sound_label_party(companies):
    airline, _ = companies
    before = sorted(airline.path.rglob("*"))
    found = examine(airline)
    assert broken(airline) == []
    assert list(found) == [
        "keys", "certificate", "pinned peer airport", "party.toml", "contract.toml", "data", "plan", "disk", "port",
    ]  # fmt: skip
    assert "only they can tell" in found["port"].words
    assert sorted(airline.path.rglob("*")) == before, "nothing was changed"


def test_a_sound_feature_party_reaches_the_label_party(companies, door):
    found = examine(companies[1])
    assert found["the way to airline"].verdict == "ok", found["the way to airline"]
    assert "shows the pinned certificate and takes ours" in found["the way to airline"].words
    assert broken(companies[1]) == []


def test_a_long_round_trip_is_told_with_what_helps(companies, door):
    port = int(door.address.rpartition(":")[2])
    with Relay(port, delay=0.05) as relay:
        edit(companies[1], "party.toml", f":{port}", f":{relay.port}")
        found = examine(companies[1])["the way to airline"]
        assert found.verdict == "ok"
        assert 60 < int(re.search(r"a round trip takes about (\d+) ms", found.words)[1]) < 1000
        assert 'mode = "one_shot"' in found.words


def test_no_folder(tmp_path):
    (last,) = checks(tmp_path)
    assert (last.name, last.verdict) == ("folder and keys", "problem")
    assert "no party.toml" in last.words


@pytest.mark.parametrize(
    ("hurt", "name", "words"),
    [
        (lambda path: (path / "keys" / "party.key").chmod(0o644), "folder and keys", "chmod 600"),
        (lambda path: (path / "keys" / "secret").unlink(), "folder and keys", "put it back"),
        (lambda path: (path / "airline.crt").unlink(), "keys", "put the right pair back"),
        (lambda path: (path / "trusted" / "airport.crt").unlink(), "pinned peers", "tacit trust PEER.crt"),
        (lambda path: (path / "contract.toml").unlink(), "contract.toml", "tacit contract --new"),
        (lambda path: (path / "contract.toml").write_text("epochs = 1"), "contract.toml", "is missing: add it"),
        (lambda path: (path / "party.toml").write_text("nme = 1"), "party.toml", "is missing: add it"),
        (lambda path: (path / "data.parquet").unlink(), "data", "put it there"),
        (lambda path: (path / "data.parquet").write_bytes(b"no table"), "data", "write it anew"),
        (lambda path: (path / "trusted" / "other.crt").mkdir(), "pinned peers", "look at who owns it"),
        (lambda path: edit(Folder(path), "party.toml", "127.0.0.1:", "a..b:"), "port", "[network] listen"),
    ],
    ids=["key mode", "secret gone", "certificate gone", "nobody trusted", "no contract", "odd contract", "odd settings",
         "no data", "odd data", "a folder trusted", "no name"],
)  # fmt: skip
def test_what_is_broken_is_named_with_what_to_do(companies, hurt, name, words):
    airline, _ = companies
    hurt(airline.path)
    found = examine(airline)
    assert found[name].verdict == "problem", found
    assert words in found[name].words, found[name]


def test_a_column_that_is_not_there(companies):
    airline, _ = companies
    edit(airline, "party.toml", '"y"', '"late"')
    found = examine(Folder(airline.path))["data"]
    assert found.verdict == "problem"
    assert "no column 'late'; it has: id, y, x" in found.words


@pytest.mark.parametrize(
    ("begun", "days", "verdict"), [(-800, 825, "warning"), (-900, 825, "problem"), (2, 825, "problem"), (-5, 825, "ok")]
)
def test_dates_of_a_certificate(companies, begun, days, verdict):
    airline, _ = companies
    made = certificates.create("airport", days=days, now=datetime.now(UTC) + timedelta(days=begun))
    (airline.path / "trusted" / "airport.crt").write_bytes(made.cert_pem)
    assert examine(airline)["pinned peer airport"].verdict == verdict


def test_an_error_of_several_lines_is_one_sentence(companies):
    airline, _ = companies
    edit(airline, "party.toml", 'role = "label"', 'role = "label"\nlimit = 65')
    words = examine(airline)["party.toml"].words
    assert "\n" not in words
    assert "party.toml can't be used as it is: limit:" in words


def test_all_rows_of_the_own_table_are_looked_at(companies):
    airline, _ = companies
    table = pl.read_parquet(airline.path / "data.parquet")
    last = pl.col("id") == table["id"][-1]
    wrong = table.with_columns(pl.when(last).then(0.5).otherwise(pl.col("y").cast(pl.Float64)).alias("y"))
    wrong.write_parquet(airline.path / "data.parquet")
    found = examine(airline)["data"]
    assert found.verdict == "problem"
    assert f"row {len(table) - 1}" in found.words


# --- the way to the peer ---------------------------------------------------------------------------------------------


def way(folder):
    return examine(folder)["the way to airline"]


def test_nobody_listens(companies):
    found = way(companies[1])
    assert found.verdict == "problem"
    assert "nothing listens for airline" in found.words
    assert "see whether airline runs" in found.words


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b"])
def test_a_name_that_nobody_knows(companies, name):
    _, airport = companies
    edit(airport, "party.toml", "127.0.0.1:", f"{name}:")
    found = way(Folder(airport.path))
    assert "is not known here" in found.words


def test_another_certificate_than_the_pinned_one(companies, door):
    _, airport = companies
    (airport.path / "trusted" / "airline.crt").write_bytes(certificates.create("airline").cert_pem)
    found = way(Folder(airport.path))
    assert "shows another one" in found.words
    assert "by phone; if it made a new one, tacit trust it" in found.words


def test_a_peer_that_does_not_take_our_certificate(companies, tmp_path):
    airline, airport = companies
    stranger = certificates.create("airport")
    server = network.listen(
        airline.config.address, airline.identity, {"airport": stranger.cert_pem}, alignment_limits()
    )
    try:
        found = way(airport)
    finally:
        server.close()
    assert "does not take our certificate" in found.words
    assert "let airline trust the present one with tacit trust" in found.words


@pytest.mark.parametrize(
    ("answer", "words"), [(b"HTTP/1.1 400 no\r\n\r\n", "does not speak TLS"), (b"", "did not answer within 0.5 s")]
)
def test_something_else_listens(companies, answer, words):
    airline, airport = companies
    host, _, port = airline.config.address.rpartition(":")
    over = threading.Event()
    with socket.create_server((host, int(port))) as listening:

        def serve():
            taken, _ = listening.accept()
            with taken:
                if answer:
                    taken.recv(1024)
                    taken.sendall(answer)
                over.wait(10)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        peer = airport.trusted["airline"]
        with pytest.raises(LinkError, match=words):
            reach(airport, airport.config.address, "airline", peer, seconds=0.5)
        over.set()
        thread.join(10)


# --- the port and what runs ------------------------------------------------------------------------------------------


def status(folder, pid, state="training"):
    where = folder.path / "runs" / "small"
    where.mkdir(exist_ok=True)
    now = {"run": "small", "party": "airline", "role": "label", "state": state, "time": "2026-01-01", "pid": pid}
    (where / "status.json").write_text(json.dumps(now))


def test_a_port_that_is_taken_by_another(companies, door):
    found = examine(companies[0])["port"]
    assert found.verdict == "problem"
    assert "Address already in use" in found.words
    assert "another address" in found.words


def test_a_port_that_its_own_run_has(companies, door):
    airline, _ = companies
    status(airline, os.getpid())
    found = examine(airline)
    assert found["port"].verdict == "ok"
    assert f"process {os.getpid()}" in found["port"].words


def test_a_folder_that_was_just_made(tmp_path):
    made = create(tmp_path / "airline", role="label", name="airline")
    assert set(broken(made)) == {"pinned peers", "contract.toml"} | ({"data"} & set(examine(made)))


@pytest.mark.parametrize(("free", "verdict"), [(1 << 40, "ok"), (1 << 20, "warning")])
def test_a_disk_that_is_nearly_full_is_told_before_a_run_begins(companies, monkeypatch, free, verdict):
    monkeypatch.setattr("tacit.company.ready.shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    found = examine(companies[0])["disk"]
    assert found.verdict == verdict
    assert ("make room" in found.words) == (verdict == "warning")
