"""A peer that has the right certificate and does something else, over real TLS, against a real service."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tacit.align.ids import hash_of
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.company.meeting import dial, said_hello, server
from tacit.contracts import Message
from tacit.errors import LinkError, RefusedError
from tacit.serve.conversation import ROWS, feature_limits, label_limits, purpose
from tacit.serve.halves import load_embedder, load_scorer
from tacit.serve.tokens import token_key, tokens_of
from tacit.wire.codec import AtMost, Limit, control, read_control
from tests.serve.files import copied
from tests.serve.online import settings
from tests.torture.workers import state_of

ROW = [{"id": "f1", "plane": 0.5}]
PATIENCE = 120


@pytest.fixture(name="world")
def _world(exchanged, tmp_path, monkeypatch):
    world = copied(exchanged.path, tmp_path)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    settings(world, "airline", deadline_ms=60_000, cache_seconds=0)
    return world


def receive(link):
    message = link.recv(PATIENCE)
    assert message is not None
    return message


# --- a label party that asks for something else ----------------------------------------------------------------------


class Asking:
    """An airline that says what it likes to a real airport."""

    def __init__(self, world, **hello):
        self.folder = Folder(world / "airline")
        self.scorer = load_scorer(self.folder, "test")
        limits = label_limits(self.scorer.widths)
        self._open = server(self.folder, self.folder.terms, limits)
        self.door = self._open.__enter__()
        self._versions = self.scorer.versions | hello
        key = token_key(aligned(self.folder))
        self.tokens = tokens_of(key, np.arange(32 * 2 * ROWS, dtype=np.uint32).view(np.uint8).reshape(-1, 32)[:8192])

    def link(self):
        link = self.door.accept(PATIENCE)
        said_hello(link, self.folder, self.folder.terms, purpose("serve", self._versions))
        assert read_control(receive(link)).keys() == {"half"}
        return link

    def close(self):
        self._open.__exit__(None, None, None)


@pytest.fixture(name="asking")
def _asking(world):
    asking = Asking(world)
    yield asking
    asking.close()


def tokens(payload, step=1, kind="tokens"):
    return Message(step, kind, torch.from_numpy(np.array(payload)), b"")


def known(asking, *ids):
    hashes = np.frombuffer(b"".join(hash_of([one]) for one in ids), np.uint8).reshape(-1, 32)
    return tokens_of(token_key(aligned(asking.folder)), hashes)


def test_a_thousand_requests_for_one_row_give_the_same_bytes(world, asking, start):
    start(world / "airport")
    link = asking.link()
    one = known(asking, "f1", "f7")
    answers = set()
    for step in range(1, 1001):
        link.send(tokens(one, step))
        said = receive(link)
        assert (said.kind, said.step) == ("embedding", step)
        answers.add(said.payload.numpy().tobytes())
    link.send(tokens(one[::-1], 1001))
    swapped = receive(link).payload.numpy()
    assert answers == {swapped[::-1].tobytes()}
    assert swapped[:, 0].tolist() == [1, 1]


def test_unknown_rows_are_zeros_of_the_same_size(world, asking, start):
    start(world / "airport")
    link = asking.link()
    link.send(tokens(np.concatenate([known(asking, "f1"), asking.tokens[:3]])))
    said = receive(link).payload.numpy()
    assert said.shape == (4, 1 + asking.scorer.widths["airport"])
    assert said[:, 0].tolist() == [1, 0, 0, 0]
    assert not said[1:].any()
    link.send(tokens(asking.tokens[:ROWS], 2))
    assert not receive(link).payload.numpy().any()


def test_a_request_that_makes_no_sense_is_refused_and_the_link_stays(world, asking, start):
    start(world / "airport")
    link = asking.link()
    twice = np.concatenate([known(asking, "f1")] * 2)
    for step, payload in enumerate((twice, np.empty((0, 16), np.uint8)), start=1):
        link.send(tokens(payload, step))
        said = receive(link)
        assert (said.kind, said.step) == ("refusal", step)
        assert read_control(said)["field"] == "tokens"
    link.send(tokens(twice[:1], 3))
    assert receive(link).kind == "embedding"


@pytest.mark.parametrize(
    "message",
    [
        tokens(np.zeros((ROWS + 1, 16), np.uint8)),
        tokens(np.zeros((2, 15), np.uint8)),
        tokens(np.zeros((2, 16), np.float32)),
        tokens(np.zeros((2, 16), np.uint8), kind="points"),
        control("hello", 2, {"more": True}),
        control("refusal", 0, {"field": "x", "reason": "\x1b[2J" * 50}),
    ],
    ids=["too many", "narrow", "other numbers", "another kind", "a hello", "a refusal"],
)
def test_what_may_not_come_ends_the_link_and_the_airport_comes_again(world, asking, start, message):
    airport = start(world / "airport")
    link = asking.link()
    link.send(message)
    if len(message.payload) <= ROWS:  # a frame that is longer than any that was agreed on ends the link unread
        said = airport.heard("link refused")
        assert "\x1b" not in said["reason"]
        link.close()
    link = asking.link()
    link.send(tokens(known(asking, "f1")))
    assert receive(link).payload[0, 0] == 1


def test_another_model_gets_nothing(world, start):
    asking = Asking(world, airport="0" * 32)
    try:
        airport = start(world / "airport")
        for _ in range(2):  # it tries again: the other side may come to the same model
            link = asking.door.accept(PATIENCE)
            with pytest.raises(RefusedError, match="not of one training"):
                said_hello(link, asking.folder, asking.folder.terms, purpose("serve", asking._versions), PATIENCE)
            link.close()
        assert not [one for one in airport.process.events if one["event"] == "connected"]
    finally:
        asking.close()


# --- a feature party that answers something else ---------------------------------------------------------------------


class Lying:
    """An airport that says what it likes to a real airline."""

    def __init__(self, world):
        self.folder = Folder(world / "airport")
        self.embedder = load_embedder(self.folder, "test")
        self.limits = {**feature_limits(), "tokens": Limit(torch.uint8, (AtMost(ROWS), 16))}

    def link(self, version=None, half=None):
        link = dial(self.folder, self.folder.terms, self.limits)
        hello = purpose("serve", {"airline": version or self.embedder.version})
        said_hello(link, self.folder, self.folder.terms, hello)
        link.send(control("hello", 1, {"half": half or self.embedder.digest}))
        return link


@pytest.fixture(name="lying")
def _lying(world):
    return Lying(world)


def embedding(message, change=lambda rows: rows, step=None, kind="embedding", width=2):
    rows = torch.ones(len(message.payload), width, dtype=torch.uint8)
    return Message(message.step if step is None else step, kind, change(rows), b"")


def answered(airline, link, answer, rows=ROW):
    """Ask the airline while a hand-made airport answers; what it says."""
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(airline.scores, rows)
        for message in answer(receive(link)):
            link.send(message)
        return asked.result()


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: [embedding(asked, lambda rows: rows[:, :-1])],
        lambda asked: [embedding(asked, lambda rows: rows[:0])],
        lambda asked: [embedding(asked, lambda rows: torch.cat([rows, rows]))],
        lambda asked: [embedding(asked, lambda rows: 2 * rows)],
        lambda asked: [embedding(asked, step=asked.step + 1)],
        lambda asked: [embedding(asked, step=0)],
        lambda asked: [embedding(asked, width=4)],
        lambda asked: [embedding(asked, kind="points")],
        lambda asked: [control("hello", 1, {"half": "x"})],
        lambda asked: [control("refusal", 0, {"field": "x", "reason": "y"})],
    ],
    ids=["narrow", "too few", "too many", "neither known nor unknown", "another step", "step 0", "wide", "another kind",
         "a hello", "good-bye"],
)  # fmt: skip
def test_what_was_not_asked_for_is_not_used(world, lying, start, answer):
    airline = start(world / "airline")
    airline.heard("http")
    link = lying.link()
    airline.heard("connected")
    said = answered(airline, link, answer)
    assert said["basis"] == ["fallback"]
    airline.heard("not connected")
    link.close()
    start(world / "airport")
    airline.heard("connected", count=2)
    assert airline.scores(ROW)["basis"] == ["joint"], "and an honest one is welcome"


def test_an_answer_that_never_comes_and_one_that_comes_twice(world, lying, start):
    settings(world, "airline", deadline_ms=5000)
    airline = start(world / "airline")
    airline.heard("http")
    link = lying.link()
    airline.heard("connected")
    assert answered(airline, link, lambda _: [])["reason"] == ["airport did not answer in time"]
    asked = []
    link.send(embedding(Message(1, "tokens", torch.zeros(1, 16, dtype=torch.uint8), b"")))  # late, and still welcome
    other = [{"id": "f2", "plane": 0.5}]
    said = answered(airline, link, lambda message: [asked.append(message) or embedding(message)], other)
    assert (said["basis"], asked[0].step) == (["joint"], 2)
    link.send(embedding(asked[0]))
    assert "was not asked for" in airline.heard("link refused")["reason"]


def test_a_refusal_of_a_request_is_about_that_alone(world, lying, start):
    airline = start(world / "airline")
    airline.heard("http")
    link = lying.link()
    airline.heard("connected")
    said = answered(airline, link, lambda asked: [control("refusal", asked.step, {"field": "<b>", "reason": "\x1b"})])
    assert said["reason"] == ["airport refused (other)"], "words of a peer go into no answer"
    assert answered(airline, link, lambda asked: [embedding(asked)])["basis"] == ["joint"]


def test_another_model_and_another_half_are_refused(world, lying, start):
    airline = start(world / "airline")
    airline.heard("http")
    with pytest.raises(RefusedError, match="not of one training"):
        lying.link(version="0" * 32)
    lying.link().close()
    airline.heard("connected")
    link = lying.link(half="ab" * 32)
    assert receive(link).kind == "refusal"
    assert airline.heard("link refused", field="half")
    assert airline.scores(ROW)["basis"] == ["fallback"]
    with pytest.raises(LinkError):
        link.recv(PATIENCE)


@pytest.mark.parametrize("number", [np.float32(np.nan), np.float32(np.inf)])
def test_numbers_that_are_not_finite_are_refused(split, number, tmp_path, start, monkeypatch):
    world = copied(next(iter(split.values())).path.parent, tmp_path)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    airline = start(world / "airline")
    airline.heard("http")
    lying = Lying(world)
    link = lying.link()
    airline.heard("connected")
    width = lying.embedder.width

    def answer(asked):
        rows = np.ones((len(asked.payload), 1 + width), np.uint8)
        rows[:, 1:] = np.full(width // number.itemsize, number).view(np.uint8)
        return [Message(asked.step, "embedding", torch.from_numpy(rows), b"")]

    with ThreadPoolExecutor(1) as client:
        asked = client.submit(airline.scores, [{"id": 3}])
        for message in answer(receive(link)):
            link.send(message)
        assert asked.result()["basis"] == ["none"]
    assert "not finite" in airline.heard("link refused")["reason"]
