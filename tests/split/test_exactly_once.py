"""The two ends of an exactly-once channel, branch by branch, over a line that says what the test wants."""

from collections import deque
from dataclasses import replace

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import ProtocolError, StorageError
from tacit.split.correspondence import Correspondence
from tacit.split.exactly_once import CONFIRMED, AnsweringChannel, AskingChannel, check_same
from tacit.split.journal import Journal
from tacit.wire.codec import CONTROL, Limit

CUT = Limit(torch.float32, (2, 3))
LIMITS = {"embedding": CUT, "gradient": CUT, "done": CONTROL}


class StarvedError(BaseException):
    """Somebody waits for a message that nobody sent: a process would wait there."""


class Line:
    """Hands out what it was given, and remembers what was sent, refused, and how durable the journal was then."""

    def __init__(self, journal):
        self.journal = journal
        self.inbox, self.sent, self.durable, self.refused = deque(), [], [], []

    def recv(self):
        if not self.inbox:
            raise StarvedError
        return self.inbox.popleft()

    def look(self):
        return self.inbox.popleft() if self.inbox else None

    def send(self, message):
        self.sent.append(message.fingerprint)
        self.durable.append(self.journal.durable)

    def refuse(self, error):
        self.refused.append(error)

    def deliver(self, message, seconds):
        self.send(message)
        return bool(self.inbox) and self.inbox.popleft().fingerprint == message.fingerprint


class Watched(Journal):
    """A journal that knows how many of its records are durable."""

    durable = 0

    def sync(self):
        super().sync()
        self.durable = len(list(self.records()))


def request(step, value=0.0):
    return Message(step, "embedding", torch.full((2, 3), step + value), bytes(16))


def answer(step, value=0.5):
    return Message(step, "gradient", torch.full((2, 3), step + value), bytes(16))


@pytest.fixture(name="start")
def _start(tmp_path):
    """Starts a party, anew over the same journal each time; returns its channel, its line and the points it passes."""
    journals = []

    def start(role, turn=0, **more):
        for old in journals:
            old.close()
        journal = Watched(tmp_path / "journal", sync=False)
        journals.append(journal)
        exchange = Correspondence(journal, "peer", role=role, limits=LIMITS)
        line, points = Line(journal), []
        kind = AskingChannel if role == "features" else AnsweringChannel
        return kind(exchange, line, turn=turn, trace=points.append, **more), line, points

    yield start
    for journal in journals:
        journal.close()


# --- the feature party's end -----------------------------------------------------------------------------------------


def ask(channel, line, *steps):
    """Whole turns, undisturbed."""
    for step in steps:
        channel.send(request(step))
        line.inbox.append(answer(step))
        assert channel.recv("gradient", step).fingerprint == answer(step).fingerprint


def test_a_request_is_durable_before_it_is_sent_and_an_answer_is_written_before_it_is_used(start):
    channel, line, points = start("features")
    ask(channel, line, 0, 1)
    assert line.durable == [1, 3]
    assert points == 2 * ["request computed", "request written", "request sent", "answer received", "answer written"]
    assert (channel.turn, channel.exchange.complete) == (2, 2)


def test_a_party_that_starts_again_reads_its_turns_and_asks_only_the_open_one(start):
    channel, line, _ = start("features")
    ask(channel, line, 0, 1)
    channel.send(request(2))
    channel, line, points = start("features")
    for step in (0, 1):
        channel.send(request(step))
        assert channel.recv("gradient", step).fingerprint == answer(step).fingerprint
    assert line.sent == []
    channel.send(request(2))
    assert line.sent == [request(2).fingerprint]
    assert points == ["request sent"]
    assert len(list(channel.exchange.journal.records())) == 5


def test_a_request_that_comes_out_otherwise_the_second_time_is_not_sent(start):
    channel, _, _ = start("features")
    channel.send(request(0))
    channel, line, _ = start("features")
    with pytest.raises(StorageError, match="embedding of step 0: computed again it is not what was sent before"):
        channel.send(request(0, 1e-6))
    assert line.sent == []


def test_the_last_answer_once_more_is_passed_over(start):
    channel, line, _ = start("features")
    ask(channel, line, 0)
    line.inbox.extend([answer(0), answer(0)])
    ask(channel, line, 1)
    assert not line.inbox
    assert channel.exchange.complete == 2


@pytest.mark.parametrize(
    "wrong",
    [answer(0, 0.6), answer(2), request(1), replace(answer(1), kind="done")],
    ids=["another answer to the last request", "the next step", "a request", "another kind"],
)
def test_anything_else_than_the_answer_ends_it_and_is_not_written_down(start, wrong):
    channel, line, _ = start("features")
    ask(channel, line, 0)
    channel.send(request(1))
    line.inbox.append(wrong)
    with pytest.raises(ProtocolError, match=r"expected the gradient of step 1, got the .* not at the same step"):
        channel.recv("gradient", 1)
    assert (channel.turn, channel.exchange.asked, channel.exchange.complete) == (1, 2, 1)
    line.inbox.append(answer(1))
    assert channel.recv("gradient", 1).fingerprint == answer(1).fingerprint


def test_a_stored_answer_of_another_step_is_not_used(start):
    channel, line, _ = start("features")
    ask(channel, line, 0)
    channel, line, _ = start("features")
    channel.send(request(0))
    with pytest.raises(ProtocolError, match="expected the gradient of step 1, got the gradient of step 0"):
        channel.recv("gradient", 1)
    assert channel.turn == 0


def test_a_confirmation_goes_out_when_everything_is_durable(start):
    channel, line, _ = start("features")
    ask(channel, line, 0)
    assert not channel.confirm(1.0)  # nobody says it back
    assert line.sent[-1] == CONFIRMED.fingerprint
    assert line.durable[-1] == 2
    line.inbox.append(CONFIRMED)
    assert channel.confirm(1.0)
    said = len(line.sent)
    assert channel.confirm(1.0)
    assert len(line.sent) == said, "what was heard is not said again"
    channel, _, _ = start("features")
    assert channel.confirm(1.0), "not even by a party that starts again"


def test_an_answer_that_is_judged_wrong_is_not_written_down(start):
    channel, line, _ = start("features", judge=lambda message: "it is wrong" if message.payload[0, 0] > 5 else None)
    channel.send(request(0))
    line.inbox.append(answer(0, 7.0))
    with pytest.raises(ProtocolError, match="gradient of step 0: it is wrong"):
        channel.recv("gradient", 0)
    line.inbox.append(answer(0))
    assert channel.recv("gradient", 0).fingerprint == answer(0).fingerprint


# --- the label party's end -------------------------------------------------------------------------------------------


def serve(channel, line, *steps):
    """Whole turns, undisturbed."""
    for step in steps:
        line.inbox.append(request(step))
        assert channel.recv("embedding", step).fingerprint == request(step).fingerprint
        channel.send(answer(step))


def test_an_answer_is_durable_before_it_is_sent(start):
    channel, line, points = start("label")
    serve(channel, line, 0, 1)
    assert line.sent == [answer(0).fingerprint, answer(1).fingerprint]
    assert line.durable == [2, 4]
    assert points[:5] == ["request received", "request written", "answer computed", "answer written", "answer sent"]
    assert points[5:] == points[:5]


def test_a_repeated_request_gets_the_stored_bytes(start):
    channel, line, _ = start("label")
    serve(channel, line, 0, 1)
    line.inbox.extend([request(1), request(0), request(1)])
    serve(channel, line, 2)
    assert line.sent == [answer(step).fingerprint for step in (0, 1, 1, 0, 1, 2)]
    assert line.refused == []
    assert len(list(channel.exchange.journal.records())) == 6


def test_a_changed_request_is_refused_and_a_good_one_after_it_is_answered(start):
    channel, line, _ = start("label")
    serve(channel, line, 0)
    wrong = [request(0, 1e-6), replace(request(0), rows=b"r" * 16), request(2), answer(1), CONFIRMED]
    line.inbox.extend(wrong)
    serve(channel, line, 1)
    assert line.sent == [answer(0).fingerprint, answer(1).fingerprint]
    assert [error.field for error in line.refused] == ["request"] * len(wrong)
    for error, words in zip(line.refused, ["before", "before", "of step 2", "gradient", "done"], strict=True):
        assert words in str(error)
    assert channel.exchange.complete == 2


def test_an_open_request_that_comes_again_waits_for_its_answer_and_a_changed_one_is_refused(start):
    channel, line, _ = start("label")
    line.inbox.append(request(0))
    channel.recv("embedding", 0)
    line.inbox.extend([request(0), request(0, 1.0)])
    for _ in range(2):
        assert not channel.linger()
    assert line.sent == []
    assert [error.field for error in line.refused] == ["request"]
    channel.send(answer(0))
    assert line.sent == [answer(0).fingerprint]


def test_a_label_party_that_starts_again_computes_its_turns_and_sends_only_the_last_answer(start):
    channel, line, _ = start("label")
    serve(channel, line, 0, 1)
    channel, line, points = start("label")
    for step in (0, 1):
        assert channel.recv("embedding", step).fingerprint == request(step).fingerprint
        channel.send(answer(step))
    assert line.sent == [answer(1).fingerprint]
    assert points == ["answer sent"]


def test_a_stored_request_is_answered_without_anybody_being_there(start):
    channel, line, _ = start("label")
    line.inbox.append(request(0))
    channel.recv("embedding", 0)
    channel, line, points = start("label")
    assert channel.recv("embedding", 0).fingerprint == request(0).fingerprint
    channel.send(answer(0))
    assert line.sent == [answer(0).fingerprint]
    assert points == ["answer computed", "answer written", "answer sent"]


def test_an_answer_that_comes_out_otherwise_the_second_time_is_not_sent(start):
    channel, line, _ = start("label")
    serve(channel, line, 0)
    channel, line, _ = start("label")
    channel.recv("embedding", 0)
    with pytest.raises(StorageError, match="gradient of step 0: computed again"):
        channel.send(answer(0, 0.6))
    assert line.sent == []
    assert channel.turn == 0


def test_a_stored_request_of_another_step_is_not_used(start):
    channel, line, _ = start("label")
    serve(channel, line, 0)
    channel, _, _ = start("label")
    with pytest.raises(ProtocolError, match="expected the embedding of step 3, got the embedding of step 0"):
        channel.recv("embedding", 3)


def test_a_request_that_is_judged_wrong_is_refused_and_not_written_down(start):
    """One that was written down would be found again at every start, and end the party for good."""
    channel, line, _ = start("label", judge=lambda message: "it is wrong" if message.payload[0, 0] > 5 else None)
    line.inbox.extend([request(0, 7.0), request(0)])
    assert channel.recv("embedding", 0).fingerprint == request(0).fingerprint
    assert [str(error) for error in line.refused] == ["embedding of step 0: it is wrong"]
    channel.send(answer(0))
    channel, _, _ = start("label")
    assert channel.recv("embedding", 0).fingerprint == request(0).fingerprint


def test_whoever_lingers_serves_a_late_peer_until_it_confirms(start):
    channel, line, _ = start("label")
    serve(channel, line, 0)
    assert not channel.linger()  # nobody says anything
    line.inbox.extend([request(0), request(0, 1.0), request(1), CONFIRMED, request(0)])
    assert [channel.linger() for _ in range(5)] == [False, False, False, True, True]
    assert line.sent == [*2 * [answer(0).fingerprint], CONFIRMED.fingerprint]
    assert [error.field for error in line.refused] == ["request", "request"]
    assert "the run is over, got the embedding of step 1" in str(line.refused[1])
    assert len(line.inbox) == 1  # after the confirmation nothing is looked at
    channel, _, _ = start("label")
    assert channel.linger()


# --- computed twice --------------------------------------------------------------------------------------------------


def test_on_a_cpu_every_bit_must_come_out_again():
    check_same(request(1), request(1))
    check_same(Message(0, "done", torch.empty(0), b""), Message(0, "done", torch.empty(0), b""))
    smallest = torch.nextafter(request(1).payload, torch.tensor(9.0))
    for other in (
        replace(request(1), payload=smallest),
        replace(request(1), step=2),
        replace(request(1), kind="gradient"),
        replace(request(1), rows=b"r" * 16),
        replace(request(1), payload=request(1).payload.double()),
        replace(request(1), payload=request(1).payload.reshape(3, 2)),
    ):
        with pytest.raises(StorageError, match="not what was sent before"):
            check_same(request(1), other)


def test_on_another_device_numbers_are_not_compared_and_all_else_is():
    """There they may differ after some hundred steps, and noise hangs on every bit."""
    said = Message(1, "embedding", torch.tensor([[2.0, -1.0, 0.0]]), bytes(16))
    now = replace(said, payload=said.payload + 0.1)
    check_same(said, now, on_device=True)
    with pytest.raises(StorageError, match="not what was sent before"):
        check_same(said, now)
    for other in (
        replace(now, rows=b"r" * 16),
        replace(now, step=2),
        replace(now, kind="gradient"),
        replace(now, payload=now.payload.double()),
        replace(now, payload=now.payload.reshape(3, 1)),
    ):
        with pytest.raises(StorageError, match="not what was sent before"):
            check_same(said, other, on_device=True)


@pytest.mark.parametrize("role", ["features", "label"])
def test_on_another_device_what_was_stored_goes_out_and_never_a_second_computation(start, role):
    channel, line, _ = start(role, on_device=True)
    if role == "features":
        channel.send(request(0))
    else:
        line.inbox.append(request(0))
        channel.recv("embedding", 0)
        channel.send(answer(0))
    first = list(line.sent)
    again, line, _ = start(role, on_device=True)
    if role == "features":
        again.send(request(0, value=0.25))
    else:
        assert again.recv("embedding", 0).fingerprint == request(0).fingerprint
        again.send(answer(0, value=0.75))  # it is stored: nobody hears this one
        line.inbox.append(request(0))
        with pytest.raises(StarvedError):
            again.recv("embedding", 1)
    assert set(line.sent) == set(first)
