"""Pages hear of changes at once, hold up nobody, and do not keep a server from ending."""

import asyncio
import json
import shutil
import socket
import subprocess
import time

import pytest

from tacit.web.events import Bell, _Listener
from tacit.web.shelf import Shelf

WAIT = 20


def until(true):
    """Wait for something that comes by itself."""
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def add(path, text):
    with path.open("a") as file:
        file.write(text)


@pytest.fixture(name="live")
def _live(tmp_path, serving, make_run, look):
    """A server, and a run that goes on."""
    folder = make_run(tmp_path / "a" / "runs" / "b")
    with serving(tmp_path) as client:
        client.root, client.folder, client.look = tmp_path, folder, look
        client.id = client.json("/api/runs")["places"][0]["id"]
        yield client


def test_a_line_that_is_added_is_told_and_can_be_fetched(live):
    stream = live.listen()
    assert stream.answer.headers["Content-Type"].startswith("text/event-stream")
    assert stream.answer.headers["Cache-Control"] == "no-store"
    tag = live.get(f"/api/runs/{live.id}").headers["ETag"]
    for step in (100, 101, 102):
        add(live.folder / "live.jsonl", live.look(step))
        assert stream.next() == ("changed", [live.id])
        answer = live.get(f"/api/runs/{live.id}", If_None_Match=tag)
        assert answer.status == 200
        assert json.loads(answer.content)["curves"][0]["x"][-1] == step
        tag = answer.headers["ETag"]
    stream.close()


def test_runs_that_begin_and_that_are_gone_are_told(live, make_run):
    stream = live.listen()
    folder = make_run(live.root / "c" / "runs" / "d")
    name, (new,) = stream.next()
    assert name == "changed"
    assert new != live.id
    assert live.json(f"/api/runs/{new}")["name"] == "c / d"
    shutil.rmtree(folder)
    told = [stream.next()]
    while told[-1][0] == "changed":  # its files go one by one
        told.append(stream.next())
    assert told[-1] == ("gone", [new])
    assert live.get(f"/api/runs/{new}").status == 404
    stream.close()


def test_a_process_that_ends_without_a_word_is_told(tmp_path, serving, make_run):
    process = subprocess.Popen(["sleep", "60"])
    try:
        make_run(tmp_path / "a" / "runs" / "b", pid=process.pid)
        with serving(tmp_path) as client:
            assert client.json("/api/runs")["places"][0]["alive"]
            stream = client.listen()
            process.kill()
            process.wait()
            assert stream.next()[0] == "changed"
            assert not client.json("/api/runs")["places"][0]["alive"]
            stream.close()
    finally:
        process.kill()
        process.wait()


def test_fifty_pages_hear_it_and_one_that_does_not_read_holds_up_nobody(live):
    deaf = socket.create_connection(("127.0.0.1", live.server.port), timeout=WAIT)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    token = live.server.access.token
    for path in ("/api/events", f"/api/runs/{live.id}"):
        deaf.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    streams = [live.listen() for _ in range(50)]
    until(lambda: live.server.bell.listening == 51)
    add(live.folder / "live.jsonl", live.look(100))
    assert {stream.next()[0] for stream in streams} == {"changed"}
    assert live.get("/api/runs").status == 200
    for stream in streams:
        stream.close()
    deaf.close()
    until(lambda: live.server.bell.listening == 0)


@pytest.mark.parametrize("error", [OSError("away"), RuntimeError("Symlink loop"), ValueError("odd")], ids=repr)
def test_a_disk_that_is_away_for_a_moment_ends_no_stream(live, monkeypatch, error):
    stream = live.listen()
    marks, failed = live.server.shelf.marks, []

    def away():
        if len(failed) < 3:
            failed.append(1)
            raise error
        return marks()

    monkeypatch.setattr(live.server.shelf, "marks", away)
    until(lambda: len(failed) == 3)
    add(live.folder / "live.jsonl", live.look(100))
    assert stream.next() == ("changed", [live.id])
    stream.close()


def test_nothing_is_looked_for_while_nobody_listens(live):
    assert not live.server.bell.watching
    stream = live.listen()
    assert live.server.bell.watching
    stream.close()
    until(lambda: not live.server.bell.watching)
    again = live.listen()
    add(live.folder / "live.jsonl", live.look(100))
    assert again.next() == ("changed", [live.id])
    again.close()


def test_a_server_ends_at_once_though_pages_are_open(monkeypatch, tmp_path, serving, make_run):
    """It tells them, and does not wait for them: with that patience it would not end in time."""
    monkeypatch.setattr("tacit.web.serving._GRACE", 10 * WAIT)
    make_run(tmp_path / "a" / "runs" / "b")
    with serving(tmp_path) as client:
        streams = [client.listen() for _ in range(3)]
    for stream in streams:
        assert stream.next() == ("end", [])
        stream.close()


def test_what_a_page_has_not_heard_is_each_id_once():
    async def run():
        one = _Listener()
        for _ in range(1000):
            one.tell({"a", "b"}, set())
        one.tell(set(), {"b"})
        assert one.take() == 'event: changed\ndata: {"ids": ["a"]}\n\nevent: gone\ndata: {"ids": ["b"]}\n\n'
        assert one.take() == ""
        one.tell(set(), {"b"})
        one.tell({"b"}, set())
        assert one.take() == 'event: changed\ndata: {"ids": ["b"]}\n\n'

    asyncio.run(run())


def test_a_quiet_line_shows_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.web.events._ALIVE", 0.01)

    async def run():
        async with Bell(Shelf([tmp_path])).listener() as lines:
            assert await anext(lines) == "retry: 2000\n\n"
            assert await anext(lines) == ": nothing new\n\n"

    asyncio.run(run())
