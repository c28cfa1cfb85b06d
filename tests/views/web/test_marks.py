"""Pages see at once what has changed, and fetch only that."""

import json
import shutil
import subprocess
import time

import pytest

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


def test_a_line_that_is_added_changes_the_mark_and_can_be_fetched(live):
    tag, mark = live.get(f"/api/runs/{live.id}").headers["ETag"], live.json("/api/marks")[live.id]
    assert live.json("/api/marks") == {live.id: mark}
    for step in (100, 101, 102):
        add(live.folder / "live.jsonl", live.look(step))
        mark, before = live.json("/api/marks")[live.id], mark
        assert mark != before
        answer = live.get(f"/api/runs/{live.id}", If_None_Match=tag)
        assert answer.status == 200
        assert json.loads(answer.content)["curves"][0]["x"][-1] == step
        tag = answer.headers["ETag"]


def test_marks_that_are_the_same_are_not_sent_again(live):
    answer = live.get("/api/marks")
    assert answer.headers["Cache-Control"] == "no-store"
    assert live.get("/api/marks", If_None_Match=answer.headers["ETag"]).status == 304


def test_runs_that_begin_and_that_are_gone_are_seen(live, make_run):
    folder = make_run(live.root / "c" / "runs" / "d")
    until(lambda: len(live.json("/api/marks")) == 2)
    (new,) = live.json("/api/marks").keys() - {live.id}
    assert live.json(f"/api/runs/{new}")["name"] == "c / d"
    shutil.rmtree(folder)
    until(lambda: live.json("/api/marks").keys() == {live.id})
    assert live.get(f"/api/runs/{new}").status == 404


def test_a_process_that_ends_without_a_word_changes_the_mark(tmp_path, serving, make_run):
    process = subprocess.Popen(["sleep", "60"])
    try:
        make_run(tmp_path / "a" / "runs" / "b", pid=process.pid)
        with serving(tmp_path) as client:
            assert client.json("/api/runs")["places"][0]["alive"]
            before = client.json("/api/marks")
            process.kill()
            process.wait()
            assert client.json("/api/marks") != before
            assert not client.json("/api/runs")["places"][0]["alive"]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("error", [OSError("away"), RuntimeError("Symlink loop"), ValueError("odd")], ids=repr)
def test_a_disk_that_is_away_for_a_moment_ends_nothing(live, monkeypatch, error):
    marks, failed = live.server.shelf.marks, []

    def away():
        if not failed:
            failed.append(1)
            raise error
        return marks()

    monkeypatch.setattr(live.server.shelf, "marks", away)
    assert live.get("/api/marks").status == 500
    assert live.json("/api/marks").keys() == {live.id}
