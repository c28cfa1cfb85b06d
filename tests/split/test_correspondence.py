"""Turns as the journal has them: read back, chained, forgotten, and never written out of order."""

import hashlib

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import ProtocolError, RefusedError, StorageError
from tacit.split.correspondence import START, Correspondence
from tacit.split.journal import Journal, Record
from tacit.wire.codec import CONTROL, Limit, encode, kept

CUT = Limit(torch.float32, (2, 3))
LIMITS = {"embedding": CUT, "gradient": CUT, "done": CONTROL}


def message(kind, step, value=0.0):
    return Message(step, kind, torch.full((2, 3), step + value), bytes(16))


def request(step, value=0.0):
    return message("embedding", step, value)


def answer(step, value=0.5):
    return message("gradient", step, value)


def chained(turns):
    """The transcripts, made from the definition."""
    said = {0: START}
    for turn in range(turns):
        both = said[turn] + request(turn).fingerprint + answer(turn).fingerprint
        said[turn + 1] = hashlib.sha256(both).digest()
    return said


def talk(exchange, first, last):
    for turn in range(first, last):
        exchange.write_request(turn, request(turn))
        exchange.write_answer(turn, answer(turn))


@pytest.fixture(name="open_journal")
def _open_journal(tmp_path):
    """Opens the one journal, and gives it free before it is opened again."""
    opened = []

    def open_it():
        for old in opened:
            old.close()
        opened.append(Journal(tmp_path / "journal", sync=False))
        return opened[-1]

    yield open_it
    for journal in opened:
        journal.close()


@pytest.fixture(name="exchange", params=["features", "label"])
def _exchange(request, open_journal):
    return Correspondence(open_journal(), "peer", role=request.param, limits=LIMITS)


def test_at_the_beginning_nothing_was_said(exchange):
    assert (exchange.asked, exchange.complete, exchange.confirmed) == (0, 0, False)
    assert exchange.request(0) is None
    assert exchange.answer(0) is None
    assert exchange.recent() == {0: START}
    assert exchange.transcript(1) is None
    assert exchange.turn_of(request(0)) is None
    assert not exchange.is_last_answer(answer(0))


def test_a_turn_is_asked_and_then_complete(exchange):
    exchange.write_request(0, request(0))
    assert (exchange.asked, exchange.complete) == (1, 0)
    assert exchange.transcript(1) is None
    exchange.write_answer(0, answer(0))
    assert (exchange.asked, exchange.complete) == (1, 1)
    assert exchange.recent() == chained(1)
    assert exchange.request(0).fingerprint == request(0).fingerprint
    assert exchange.answer(0).fingerprint == answer(0).fingerprint


def test_what_is_written_is_known_to_whatever_is_asked_next(open_journal):
    asked = {
        "complete": lambda exchange: exchange.complete == 1,
        "asked": lambda exchange: exchange.asked == 1,
        "transcript": lambda exchange: exchange.transcript(1) == chained(1)[1],
        "recent": lambda exchange: exchange.recent() == chained(1),
        "answer": lambda exchange: exchange.answer(0).fingerprint == answer(0).fingerprint,
        "turn_of": lambda exchange: exchange.turn_of(request(0)) == 0,
        "is_last_answer": lambda exchange: exchange.is_last_answer(answer(0)),
    }
    for peer, right in asked.items():
        exchange = Correspondence(open_journal(), peer, role="label", limits=LIMITS)
        exchange.write_request(0, request(0))
        exchange.write_answer(0, answer(0))
        assert right(exchange), peer


def test_a_second_start_knows_what_the_first_one_said(open_journal, exchange):
    role = "features" if exchange._request_name == "sent" else "label"
    talk(exchange, 0, 3)
    exchange.write_request(3, request(3))
    again = Correspondence(open_journal(), "peer", role=role, limits=LIMITS)
    assert (again.asked, again.complete) == (4, 3)
    assert [again.transcript(turn) for turn in range(4)] == list(chained(3).values())
    assert again.request(3).fingerprint == request(3).fingerprint
    assert again.answer(3) is None
    assert again.turn_of(request(1)) == 1
    assert again.is_last_answer(answer(2))
    assert not again.is_last_answer(answer(1))


def test_from_a_checkpoint_on_the_transcripts_go_on_from_what_it_knows(open_journal):
    first = Correspondence(open_journal(), "peer", role="label", limits=LIMITS)
    talk(first, 0, 3)
    recent = first.recent()
    assert recent == {turn: chained(3)[turn] for turn in (2, 3)}
    talk(first, 3, 5)
    again = Correspondence(open_journal(), "peer", role="label", limits=LIMITS, turn=3, transcripts=recent)
    assert (again.asked, again.complete) == (5, 5)
    assert again.recent() == {turn: chained(5)[turn] for turn in (4, 5)}
    assert again.transcript(1) is None  # before the checkpoint; what was said then is still there
    assert again.answer(0).fingerprint == answer(0).fingerprint


def test_a_checkpoint_without_its_journal_counts_what_it_knows(open_journal):
    lost = Correspondence(open_journal(), "peer", role="label", limits=LIMITS, turn=3, transcripts={3: chained(3)[3]})
    assert (lost.asked, lost.complete) == (3, 3)
    assert lost.recent() == {3: chained(3)[3]}
    talk(lost, 3, 4)
    assert lost.transcript(4) == chained(4)[4]


def test_a_journal_that_begins_after_the_checkpoint_does_not_make_it_newer(open_journal):
    journal = open_journal()
    talk(Correspondence(journal, "peer", role="label", limits=LIMITS, turn=5, transcripts={5: START}), 5, 7)
    old = Correspondence(journal, "peer", role="label", limits=LIMITS, turn=2, transcripts={2: START})
    assert (old.asked, old.complete) == (2, 2)


def test_peers_share_a_journal_and_not_their_turns(open_journal):
    journal = open_journal()
    one, two = (Correspondence(journal, name, role="label", limits=LIMITS) for name in ("one", "two"))
    one.write_request(0, request(0))
    two.write_request(0, request(0, 0.25))
    one.write_answer(0, answer(0))
    journal = open_journal()
    one, two = (Correspondence(journal, name, role="label", limits=LIMITS) for name in ("one", "two"))
    assert (one.asked, one.complete, two.asked, two.complete) == (1, 1, 1, 0)
    assert two.request(0).fingerprint == request(0, 0.25).fingerprint


def test_another_content_for_a_known_step_is_refused_and_nothing_else(exchange):
    talk(exchange, 0, 2)
    exchange.write_request(2, request(2))
    for step in range(3):  # answered, answered, open
        assert exchange.turn_of(request(step)) == step
        with pytest.raises(
            RefusedError, match=rf"peer asked for the embedding of step {step} before, with other"
        ) as no:
            exchange.turn_of(request(step, 1e-6))
        assert no.value.field == "request"
    assert exchange.turn_of(request(3)) is None
    assert exchange.turn_of(answer(0)) is None  # another kind
    assert (exchange.asked, exchange.complete) == (3, 2)


def test_turns_are_written_in_their_order_and_once(exchange):
    for write, message_ in ((exchange.write_answer, answer(0)), (exchange.write_request, request(1))):
        with pytest.raises(ProtocolError, match="0 requests are written down"):
            write(message_.step, message_)
    exchange.write_request(0, request(0))
    for turn in (0, 1):
        with pytest.raises(ProtocolError, match=f"turn {turn} can't be asked: 1 requests are written down"):
            exchange.write_request(turn, request(turn))
    with pytest.raises(ProtocolError, match="turn 1 can't be answered: 1 requests"):
        exchange.write_answer(1, answer(1))
    exchange.write_answer(0, answer(0))
    with pytest.raises(ProtocolError, match="turn 0 can't be answered: 1 requests"):
        exchange.write_answer(0, answer(0))
    with pytest.raises(ProtocolError, match="turn 0 can't be asked: 1 requests"):
        exchange.write_request(0, request(0))
    assert len(list(exchange.journal.records())) == 2


def test_what_is_forgotten_is_neither_known_nor_answered(exchange):
    talk(exchange, 0, 4)
    exchange.forget_before(2)
    assert exchange.turn_of(request(1, 1.0)) is None
    assert exchange.request(1) is None
    assert exchange.answer(1) is None
    assert exchange.transcript(1) is None
    assert exchange.turn_of(request(2)) == 2
    assert exchange.recent() == {turn: chained(4)[turn] for turn in (3, 4)}
    assert (exchange.asked, exchange.complete) == (4, 4)
    talk(exchange, 4, 5)
    assert exchange.transcript(5) == chained(5)[5]


def test_a_confirmation_is_remembered_by_its_peer_alone(open_journal):
    journal = open_journal()
    one, two = (Correspondence(journal, name, role="label", limits=LIMITS) for name in ("one", "two"))
    talk(one, 0, 1)
    one.confirm()
    assert one.confirmed
    assert not two.confirmed
    journal = open_journal()
    assert Correspondence(journal, "one", role="label", limits=LIMITS).confirmed
    assert not Correspondence(journal, "two", role="label", limits=LIMITS).confirmed


@pytest.mark.parametrize(
    "parts",
    [
        kept(Message(0, "embedding", torch.zeros(3, 3), b"")),
        kept(Message(0, "hello", torch.zeros(1, dtype=torch.uint8), b"")),
        kept(Message(0, "embedding", torch.full((2, 3), torch.inf), b"")),
        (request(0).head, b"x" * 20),  # a part of it
        (request(0).head,),
        (b"x" * 100, b""),
        encode(request(0)),
    ],
)
def test_a_record_that_is_no_message_of_the_contract_stops_the_start(open_journal, parts):
    journal = open_journal()
    journal.append(Record("received", 0, "peer", hashlib.sha256(b"".join(parts)).digest(), tuple(parts)))
    with pytest.raises(StorageError, match="turn 0: the journal holds a message that was never agreed"):
        Correspondence(journal, "peer", role="label", limits=LIMITS)


def test_bytes_that_are_not_what_was_said_are_not_read_back(open_journal):
    journal = open_journal()
    journal.append(Record("received", 0, "peer", request(7).fingerprint, kept(request(0))))
    with pytest.raises(StorageError, match="a record's bytes are not what was written"):
        Correspondence(journal, "peer", role="label", limits=LIMITS)
