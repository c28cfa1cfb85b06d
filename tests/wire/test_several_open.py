"""Several requests open at once: written down first, asked again after a kill, answered in order, never too many."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from tacit.company.meeting import make_room
from tacit.contracts import Message
from tacit.errors import ProtocolError, StorageError
from tacit.wire import network
from tacit.wire.codec import AtMost, Limit, encode
from tacit.wire.exactly_once import CONFIRMED, AnsweringChannel, AskingChannel
from tacit.wire.exchange import Exchange
from tacit.wire.journal import Journal

CUT = Limit(torch.float32, (2, 3))
LIMITS = {"embedding": CUT, "gradient": CUT}
DEPTH = 3


class Line:
    """Hands out what came over each link, and remembers what was sent over which."""

    def __init__(self):
        self.link = None
        self.inbox, self.sent, self.refused = deque(), [], []

    def connect(self, *messages):
        """A new link, and what comes over it; what came over the last one and was not taken is gone."""
        self.link = object()
        self.inbox = deque(messages)
        self.sent = []

    def recv(self):
        return self.inbox.popleft()

    def look(self, seconds=0.5):
        return self.inbox.popleft() if self.inbox else None

    def send(self, message):
        self.sent.append(message.fingerprint)

    def refuse(self, error):
        self.refused.append(str(error))
        self.link = None
        self.inbox.clear()


def request(step, value=0.0):
    return Message(step, "embedding", torch.full((2, 3), step + value), bytes(16))


def answer(step, value=0.5):
    return Message(step, "gradient", torch.full((2, 3), step + value), bytes(16))


def requests(*steps):
    return [request(step).fingerprint for step in steps]


def answers(*steps):
    return [answer(step).fingerprint for step in steps]


@pytest.fixture(name="start")
def _start(tmp_path):
    """Starts a party, anew over the same journal each time; returns its channel and its line."""
    journals = []

    def start(role, depth=DEPTH, **more):
        for old in journals:
            old._release()  # as a kill does
        journals.append(Journal(tmp_path / "journal", sync=False))
        exchange = Exchange(journals[-1], "peer", role=role, limits=LIMITS, depth=depth)
        kind = AskingChannel if role == "features" else AnsweringChannel
        return kind(exchange, line := Line(), turn=0, **more), line

    yield start
    for journal in journals:
        journal.close()


# --- the feature party's end -----------------------------------------------------------------------------------------


def test_so_many_requests_may_be_open_and_no_more(start):
    channel, line = start("features")
    for step in range(DEPTH):
        channel.send(request(step))
    assert line.sent == requests(0, 1, 2)
    with pytest.raises(ProtocolError, match="turn 3 can't be asked: 3 requests are written down"):
        channel.send(request(3))
    line.connect(answer(0), answer(1))
    assert channel.recv("gradient", 0).fingerprint == answer(0).fingerprint
    channel.send(request(3))
    assert channel.recv("gradient", 1).fingerprint == answer(1).fingerprint
    assert (channel.exchange.asked, channel.exchange.complete) == (4, 2)


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_after_a_kill_exactly_the_open_requests_are_asked_again(start, answered):
    channel, line = start("features")
    for step in range(DEPTH):
        channel.send(request(step))
    line.connect(*(answer(step) for step in range(answered)))
    for step in range(answered):
        channel.recv("gradient", step)
    channel, line = start("features")
    assert (channel.exchange.asked, channel.exchange.complete) == (DEPTH, answered)
    for step in range(DEPTH):
        channel.send(request(step))
    assert line.sent == requests(*range(answered, DEPTH))
    line.connect(*(answer(step) for step in range(answered, DEPTH)))
    for step in range(DEPTH):
        assert channel.recv("gradient", step).fingerprint == answer(step).fingerprint
    assert len(list(channel.exchange.journal.records())) == 2 * DEPTH


def test_after_a_kill_an_open_request_must_come_out_the_same(start):
    channel, _ = start("features")
    for step in range(2):
        channel.send(request(step))
    channel, line = start("features")
    channel.send(request(0))
    with pytest.raises(StorageError, match="embedding of step 1: computed again it is not what was sent before"):
        channel.send(request(1, 1e-6))
    assert line.sent == requests(0)


@pytest.mark.parametrize(
    "wrong",
    [answer(2), answer(0), answer(0, 0.6), answer(3), answer(7)],
    ids=["out of order", "twice", "another one to an answered request", "not asked yet", "never asked"],
)
def test_a_label_party_that_answers_anything_but_what_is_due_is_refused(start, wrong):
    channel, line = start("features")
    for step in range(DEPTH):
        channel.send(request(step))
    line.connect(answer(0), wrong)
    channel.recv("gradient", 0)
    with pytest.raises(ProtocolError, match=r"expected the gradient of step 1, got the gradient of step \d"):
        channel.recv("gradient", 1)
    assert channel.exchange.complete == 1
    assert len(list(channel.exchange.journal.records())) == DEPTH + 1


# --- the label party's end -------------------------------------------------------------------------------------------


def serve(channel, *steps):
    for step in steps:
        assert channel.recv("embedding", step).fingerprint == request(step).fingerprint
        channel.send(answer(step))


def test_open_requests_are_answered_in_their_order_one_after_the_other(start):
    channel, line = start("label")
    line.connect(*(request(step) for step in range(DEPTH)))
    written = []
    for step in range(DEPTH):
        serve(channel, step)
        written.append(channel.exchange.asked)
    assert line.sent == answers(0, 1, 2)
    assert written == [1, 2, 3], "what waits is in memory alone"
    assert line.refused == []


def test_one_request_too_many_is_refused_and_the_others_are_answered_when_it_comes_again(start):
    channel, line = start("label")
    line.connect(*(request(step) for step in range(DEPTH + 1)))
    serve(channel, 0)
    assert line.refused == ["4 requests came and none of them has an answer yet: the contract's depth is 3"]
    assert line.sent == []
    assert channel.exchange.complete == 1, "it is written down, and not for one who does not wait"
    line.connect(request(0), request(1), request(2))
    serve(channel, 1, 2)
    assert line.sent == answers(0, 1, 2)
    assert len(line.refused) == 1


def test_whoever_repeats_itself_without_waiting_is_refused_as_well(start):
    channel, line = start("label")
    line.connect(request(0), request(0), request(0), request(0))
    serve(channel, 0)
    assert len(line.refused) == 1


def test_what_was_read_ahead_is_forgotten_with_its_link(start):
    channel, line = start("label")
    line.connect(request(0), request(1), request(2))
    serve(channel, 0)
    line.connect(request(1), request(2, 1.0))  # it was not written down: a peer that was killed before may say it
    serve(channel, 1)
    assert line.sent == answers(1)
    assert channel.recv("embedding", 2).fingerprint == request(2, 1.0).fingerprint


def test_over_a_new_link_nothing_comes_before_what_is_due_there(start):
    """The peer has lost the answers to 0 and 1: the one to 2 must not come first."""
    channel, line = start("label")
    line.connect(request(0), request(1), request(2))
    serve(channel, 0, 1)
    channel.recv("embedding", 2)
    line.connect()  # while it computes
    channel.send(answer(2))
    assert line.sent == []
    line.inbox.extend([request(0), request(1), request(2), request(3)])
    serve(channel, 3)
    assert line.sent == answers(0, 1, 2, 3)
    assert line.refused == []


def test_an_answer_that_was_computed_by_another_start_waits_until_it_is_asked_for(start):
    channel, line = start("label")
    line.connect(request(0), request(1))
    channel.recv("embedding", 0)
    channel, line = start("label")
    line.connect()
    serve(channel, 0)
    assert line.sent == []
    line.inbox.extend([request(0), request(1)])
    serve(channel, 1)
    assert line.sent == answers(0, 1)


def test_a_changed_request_is_refused_whether_it_is_answered_open_or_waiting(start):
    channel, line = start("label")
    line.connect(request(0), request(0, 1.0), request(1))
    serve(channel, 0)
    assert line.refused == []
    with pytest.raises(IndexError):  # refused, and nobody is there any more
        channel.recv("embedding", 1)
    assert "asked for the embedding of step 0 before, with other content" in line.refused[0]


def test_a_late_peer_is_served_to_the_end(start):
    channel, line = start("label")
    line.connect(request(0), request(1))
    serve(channel, 0, 1)
    line.connect(request(0), request(1), CONFIRMED)
    assert [channel.linger() for _ in range(3)] == [False, False, True]
    assert line.sent == [*answers(0, 1), CONFIRMED.fingerprint]


# --- what is remembered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3])
def test_so_many_transcripts_are_kept_as_a_peer_may_be_behind(start, depth):
    channel, line = start("label", depth=depth)
    for step in range(6):
        line.connect(request(step))
        serve(channel, step)
    exchange = channel.exchange
    assert sorted(exchange.recent()) == list(range(6 - depth, 7))
    again = Exchange(exchange.journal, "peer", role="label", limits=LIMITS, depth=depth)
    assert again.recent() == exchange.recent()


# --- room on the way -------------------------------------------------------------------------------------------------


def test_two_that_both_send_more_than_a_link_holds_do_not_wait_for_each_other(tls_server):
    """Six requests of 20 MB are sent before an answer is taken; each is answered with as much."""
    server, airline, airport = tls_server
    whole = {kind: Limit(torch.float32, (40_000, 128)) for kind in ("embedding", "gradient", "evaluation")}
    depth, payload = 6, torch.ones(40_000, 128)
    with ThreadPoolExecutor(1) as pool:
        left = network.connect(server.address, airport, "airline", airline.cert_pem, whole)
        right = server.accept(10)
        for link in (left, right):
            make_room(link, SimpleNamespace(depth=depth), whole)
        right.limits = whole

        def answering():
            for step in range(depth):
                assert right.recv(20).step == step
                right.send(Message(step, "gradient", payload, bytes(16)))

        answered = pool.submit(answering)
        try:
            for step in range(depth):
                left.send(Message(step, "embedding", payload, bytes(16)))
            assert [left.recv(20).step for _ in range(depth)] == list(range(depth))
            answered.result(20)
        finally:
            left.close()
            right.close()


def test_a_message_has_as_many_frames_as_its_limit_says():
    for rows in (0, 1, 8191, 8192, 40_000):
        message = Message(0, "embedding", torch.ones(rows, 128), bytes(16))
        assert Limit(torch.float32, (AtMost(rows), 128)).frames == len(encode(message))
