"""A page that has changed is seen at once, and one that has not is not sent again."""

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
def _live(tmp_path, serving, make_run, look, monkeypatch):
    """A server, and a run that goes on; a page is made anew only where something has changed."""
    monkeypatch.setattr("tacit.report.web.app._FRESH", 1e12)
    folder = make_run(tmp_path / "a" / "runs" / "b")
    with serving(tmp_path) as client:
        client.root, client.folder, client.look = tmp_path, folder, look
        client.id = client.cards()["a / b"]["id"]
        yield client


def test_a_line_that_is_added_makes_another_page(live):
    path = f"/run/{live.id}"
    tag, first = live.get(path).headers["ETag"], live.get("/").headers["ETag"]
    for said in (tag, f'"other", {tag}', tag.removeprefix("W/")):
        assert live.get(path, If_None_Match=said).status == 304
    for step in (100, 101, 102):
        add(live.folder / "live.jsonl", live.look(step))
        answer = live.get(path, If_None_Match=tag)
        assert answer.status == 200
        tag = answer.headers["ETag"]
        assert live.charts(path)["leak"]["curves"][0]["x"][-1] == step
        assert live.get(path, If_None_Match=tag).status == 304
    assert live.get("/", If_None_Match=first).status == 200


def test_a_page_is_kept_in_no_cache_and_is_another_one_in_another_theme(live):
    answer = live.get(f"/run/{live.id}")
    assert answer.headers["Cache-Control"] == "no-store"
    tag = answer.headers["ETag"]
    assert live.get(f"/run/{live.id}", If_None_Match=tag, Cookie="tacit-theme=dark").status == 200
    assert b'<html lang="en" data-theme="dark">' in live.get("/", Cookie="tacit-theme=dark").content
    assert b'<html lang="en">' in live.get("/", Cookie="tacit-theme=<script>").content


def test_a_page_says_how_long_ago_things_were_though_nothing_changes(live, monkeypatch):
    monkeypatch.setattr("tacit.report.web.app._FRESH", 1e-9)
    tag = live.get("/").headers["ETag"]
    assert live.get("/", If_None_Match=tag).status == 200


def test_runs_that_begin_and_that_are_gone_are_seen(live, make_run):
    tag = live.get("/").headers["ETag"]
    folder = make_run(live.root / "c" / "runs" / "d")
    until(lambda: live.get("/", If_None_Match=tag).status == 200)
    new = live.cards()["c / d"]["id"]
    assert f'href="/run/{new}"' in live.page("/")
    shutil.rmtree(folder)
    until(lambda: f'href="/run/{new}"' not in live.page("/"))
    assert live.get(f"/run/{new}").status == 404


def test_a_process_that_ends_without_a_word_makes_another_page(tmp_path, serving, make_run):
    process = subprocess.Popen(["sleep", "60"])
    try:
        make_run(tmp_path / "a" / "runs" / "b", pid=process.pid)
        with serving(tmp_path) as client:
            assert "Its process is gone" not in client.page("/")
            tag = client.get("/").headers["ETag"]
            process.kill()
            process.wait()
            assert client.get("/", If_None_Match=tag).status == 200
            assert "Its process is gone" in client.page("/")
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
    assert live.get("/").status == 500
    assert live.id in live.page("/")
