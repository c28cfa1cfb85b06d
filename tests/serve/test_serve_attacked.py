"""What a hostile partner or client of a service tried, and what comes of it now."""

import asyncio
import time
from contextlib import suppress

import numpy as np
import pytest

from tacit.company.folder import Folder
from tacit.errors import LinkError
from tacit.serve import door
from tacit.serve.halves import load_scorer
from tacit.serve.live import LiveModel
from tacit.wire.codec import read_control
from tests.serve.files import copied
from tests.serve.online import settings
from tests.serve.test_serve_hostile import PATIENCE, Asking, Lying, embedding, known, receive, tokens
from tests.torture.workers import state_of

ROW = {"id": "f1", "plane": 0.5}


@pytest.fixture(name="world")
def _world(exchanged, tmp_path, monkeypatch):
    world = copied(exchanged.path, tmp_path)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    settings(world, "airline", deadline_ms=60_000)
    return world


@pytest.fixture(name="asking")
def _asking(world):
    asking = Asking(world)
    yield asking
    asking.close()


# --- a label party ---------------------------------------------------------------------------------------------------


def test_refusals_do_not_tell_which_rows_are_there(world, asking, start):
    """When no different row is left, known and unknown ones are refused alike, alone and together."""
    settings(world, "airport", different_rows=2)
    start(world / "airport")
    link, paid = asking.link(), known(asking, "f1", "f3")

    def ask(step, *parts):
        link.send(tokens(np.concatenate(parts), step))
        said = receive(link)
        return "answered" if said.kind == "embedding" else read_control(said)["reason"]

    unknown = [asking.tokens[step : step + 1] for step in range(30)]
    assert ask(1, paid[:1], unknown[0]) == "answered"
    assert ask(2, paid[1:]) == "answered"
    told = [ask(step, unknown[step] if step % 2 else known(asking, f"f{step}")) for step in range(4, 30)]
    told += [ask(30, paid, unknown[1]), ask(31, paid, known(asking, "f5"))]
    assert len(set(told)) == 1, told
    assert "2 different rows" in told[0]
    assert ask(32, paid) == "answered", "these are paid for"


def test_a_peer_does_not_fill_the_log(world, asking, start):
    airport = start(world / "airport")
    link = asking.link()
    for step in range(1, 1001):
        link.send(tokens(np.empty((0, 16), np.uint8), step))
        assert receive(link).kind == "refusal"
    lines = [one for one in airport.process.events if one["event"] == "request refused"]
    assert 1 <= len(lines) <= 200
    assert airport.metrics()['tacit_serve_requests_total{outcome="tokens"}'] == 1000


# --- a feature party -------------------------------------------------------------------------------------------------


def test_one_answer_that_never_comes_ends_a_link_that_is_busy_else(world, monkeypatch):
    settings(world, "airline", deadline_ms=200, cache_seconds=0)
    monkeypatch.setattr(door, "_SILENT", 1.0)
    events, folder = [], Folder(world / "airline")

    def answers(link):
        with suppress(LinkError):
            while message := link.recv(PATIENCE):
                if message.step > 1:
                    link.send(embedding(message))

    async def serve():
        scorer = load_scorer(folder, "test")
        log = lambda event, **details: events.append((event, details.get("reason", "")))  # noqa: E731
        model = LiveModel(folder, folder.run_folder(folder.terms), scorer, log)
        loop = asyncio.get_running_loop()
        link = await loop.run_in_executor(None, Lying(world).link)
        talking, number, end = loop.run_in_executor(None, answers, link), 0, time.monotonic() + 30
        while "not connected" not in dict(events) and time.monotonic() < end:
            number += 1
            await model.scored(model.form.read({"rows": [{"id": f"f{number}", "plane": 0.5}]}))
        await model.close()
        await talking

    asyncio.run(serve())
    assert dict(events)["not connected"] == "airport does not answer"


# --- a client --------------------------------------------------------------------------------------------------------


def test_how_much_may_come_is_settings(world, start):
    settings(world, "airline", waiting_rows=2, request_bytes=200)
    airline = start(world / "airline")
    assert airline.ask([ROW] * 2)[0] == 200
    assert airline.ask([ROW] * 3)[0] == 503
    assert airline.ask([ROW] * 30)[0] == 413
