"""A server on a port of its own, run folders as a party writes them, and a client that knows only HTTP."""

import http.client
import json
import re
import threading
from contextlib import contextmanager

import pytest

from tacit.report.web.serving import Dashboard

WAIT = 20  # seconds: far more than anything here takes


class Client:
    """Requests to a server, with its token unless told otherwise."""

    def __init__(self, server):
        self.server = server

    def get(self, path, *, token=True, method="GET", **headers):
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=WAIT)
        said = {"Authorization": f"Bearer {self.server.access.token}"} if token else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            line.request(method, path, headers=said)
            answer = line.getresponse()
            answer.content = answer.read()
        finally:
            line.close()
        return answer

    def page(self, path, **headers):
        answer = self.get(path, **headers)
        assert answer.status == 200, (path, answer.status, answer.content[:300])
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        return answer.content.decode()

    def cards(self):
        """The cards of all places, by their names."""
        return {card["name"]: card for card in self.server.shelf.cards()}

    def charts(self, path):
        """What the charts of a page draw, by their names."""
        found = re.findall(r'<figure class="chart" id="([^"]+)">.*?</figure>', self.page(path), flags=re.DOTALL)
        drawn = re.findall(r'<script type="application/json">(.*?)</script>', self.page(path), flags=re.DOTALL)
        told = [json.loads(one, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) for one in drawn]
        names = re.findall(r'<p class="told" id="([^"]+)-told">', self.page(path))
        assert len(names) == len(told) <= len(found)
        return dict(zip(names, told, strict=True))


@contextmanager
def serving(*roots, **options):
    server = Dashboard(list(roots), port=0, **{"every": 0.15, **options})
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Client(server)
    finally:
        server.stop()
        thread.join(WAIT)
        assert not thread.is_alive()


def status(**changes):
    told = {"run": "flights", "party": "airline", "role": "label", "state": "training", "pid": 2**31 - 1, "turns": 100,
            "time": "2026-11-15T18:44:11+00:00", "turn": 10, "epoch": 0, "epochs": 3, "journal_bytes": 5, "steps": 30,
            "history": [{"epoch": 0, "test_auc": 0.61}]}  # fmt: skip
    return {**told, **changes}


def look(step, **found):
    found = found or {"norm": 0.45, "cosine": 0.55}
    return json.dumps({"step": step, "turn": step, "epoch": 0, "found": found, "figures": {"loss": 0.3}}) + "\n"


def make_run(folder, *, looks=3, **changes):
    """A run's folder in the middle of a training."""
    folder.mkdir(parents=True)
    (folder / "live.jsonl").write_text("".join(look(step) for step in range(looks)))
    (folder / "status.json").write_text(json.dumps(status(**changes)))
    return folder


@pytest.fixture(name="make_run", scope="session")
def _make_run():
    return make_run


@pytest.fixture(name="serving", scope="session")
def _serving():
    return serving


@pytest.fixture(name="look", scope="session")
def _look():
    return look


@pytest.fixture(name="shown", scope="module")
def _shown(tmp_path_factory):
    """A server that shows one run, for tests that only read."""
    root = tmp_path_factory.mktemp("shown")
    folder = make_run(root / "airline" / "runs" / "flights", looks=50)
    (folder / "report.html").write_text("<!doctype html><title>a report</title><script>alert(1)</script>")
    with serving(root) as client:
        client.folder = folder
        client.id = client.cards()["airline / flights"]["id"]
        yield client
