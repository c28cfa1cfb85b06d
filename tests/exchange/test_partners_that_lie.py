"""Partners that break the rules of one exchange: refused with a clear word, or harmless, and nothing is lost."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks._memory_links import links
from tacit.config import Exchange
from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.exchange import messages as exchange
from tacit.exchange.feature_party import _check_shares
from tacit.exchange.messages import Received, digest_of, feature_limits, packed
from tacit.labels.flips import flips
from tacit.labels.mechanisms import check_agreed
from tacit.labels.numbers import number_flips
from tacit.wire.codec import control
from tacit.wire.line import Dialer

from .test_exchange import COIN, FEATURES, FORM, LABEL, ROWS, WIDTH, World

CODES = np.random.default_rng(1).integers(0, 8, (ROWS, WIDTH)).astype(np.uint8)
BITS = Message(0, "flips", packed(np.arange(ROWS) % 2, 2), b"")


def acknowledged(codes, step=0):
    return control("acknowledgement", step, {"sha256": digest_of(FORM.packed(codes))})


# --- a label party that lies -----------------------------------------------------------------------------------------


class Liar:
    """A label party that greets as it should and then says what it was told to, one entry for each request.

    An entry is a message, several of them, or None for a link that breaks.
    """

    def __init__(self, *says, hello=LABEL):
        self.says, self.hello, self.heard = list(says), hello, []

    def connect(self):
        mine, theirs = links(feature_limits(ROWS), names=("airport", "airline"))
        theirs.limits = exchange.label_limits(ROWS, FORM)
        threading.Thread(target=self._talk, args=(theirs,), daemon=True).start()
        return mine

    def _talk(self, link):
        try:
            link.recv(5)
            link.send(self.hello.message())
            while self.says and (message := link.recv(5)) is not None:
                self.heard.append(message)
                said = self.says.pop(0)
                if said is None:
                    link.close()
                    return
                for one in said if isinstance(said, list) else [said]:
                    link.send(one)
        except LinkError:
            pass

    def asking(self):
        return exchange.Asking(lambda greet: Dialer("airline", self.connect, greet), FEATURES)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (replace(BITS, payload=BITS.payload[:-1]), "flips: 4 bytes for 40 rows"),
        (replace(BITS, payload=torch.zeros(2 * ROWS, dtype=torch.uint8)), "flips: 80 bytes for 40 rows"),
        (replace(BITS, payload=torch.zeros(2 * ROWS + 1, dtype=torch.uint8)), "flips"),
        (replace(BITS, payload=torch.zeros(ROWS)), "flips"),
        (replace(BITS, step=1), "flips of step 1"),
        (acknowledged(CODES), "with a acknowledgement"),
        (Message(0, "embedding", torch.zeros(45, dtype=torch.uint8), b""), "embedding"),
    ],
)
def test_other_answers_than_flips_are_refused(said, match):
    with pytest.raises(ProtocolError, match=match):
        Liar(said).asking().flips(ROWS)


@pytest.mark.parametrize(
    ("said", "kind", "match"),
    [
        (acknowledged(CODES + 1), ProtocolError, "acknowledged other bytes"),
        (control("acknowledgement", 0, {"sha256": digest_of(CODES), "auc": 0.8}), ProtocolError, "other bytes"),
        (control("acknowledgement", 0, {}), ProtocolError, "other bytes"),
        (acknowledged(CODES, 3), ProtocolError, "acknowledgement of step 3"),
        (control("refusal", 0, {"field": "embedding", "reason": "send it again, wider"}), RefusedError, "wider"),
        (BITS, ProtocolError, "answered a embedding with a flips"),
    ],
)
def test_other_answers_than_an_acknowledgement_end_it_and_the_bytes_stay_the_same(said, kind, match):
    liar = Liar(BITS, said)
    asking = liar.asking()
    asking.flips(ROWS)
    with pytest.raises(kind, match=match):
        asking.deliver(CODES, FORM)
    again = Liar(acknowledged(CODES))
    again.asking().deliver(CODES, FORM)
    sent = [one.payload.numpy() for one in (*liar.heard, *again.heard) if one.kind == "embedding"]
    assert len(sent) == 2
    assert all(np.array_equal(one, FORM.packed(CODES)) for one in sent), "a second look shows nothing new"


def test_a_flood_ends_the_conversation_and_takes_no_memory():
    asking = Liar([BITS, *[BITS] * 40]).asking()
    asking.flips(ROWS)
    with pytest.raises(ProtocolError, match="answered a embedding with a flips"):
        asking.deliver(CODES, FORM)


def test_a_label_party_that_hangs_up_again_and_again_gets_the_same_bytes(monkeypatch):
    monkeypatch.setattr("tacit.wire.line._LONGEST", 0.1)
    liar = Liar(None, BITS, None, None, None, acknowledged(CODES))
    asking = liar.asking()
    asking.flips(ROWS)
    asking.deliver(CODES, FORM)
    assert asking.line.reconnects == 4
    sent = [one.payload.numpy() for one in liar.heard if one.kind == "embedding"]
    assert len(sent) == 4
    assert all(np.array_equal(one, FORM.packed(CODES)) for one in sent)


def test_flips_that_the_mechanism_can_not_give_are_refused():
    draw = np.random.default_rng(2)
    truth = (draw.random(4000) < 0.087).astype(np.uint8)
    _check_shares((draw.random(4000) < 0.45).astype(np.uint8), flips(0.6))
    with pytest.raises(ProtocolError, match="no flipped labels"):
        _check_shares(truth, flips(0.6))  # true labels of a rare class, sent as if they were flipped
    _check_shares((draw.random(4000) < 0.5).astype(np.uint8), flips(0.6))  # of a fair one: its own labels, its own loss


# --- a feature party that lies ---------------------------------------------------------------------------------------


@pytest.fixture(name="world")
def _world(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "CHUNK", 7 * WIDTH)  # six parts of seven rows, the last of five
    world = World(tmp_path)
    yield world
    if world.thread.is_alive():
        asking = world.asking()
        if not world.received.whole("airport"):
            asking.deliver(CODES, FORM)
        asking.leave()
    world.thread.join(20)
    assert not world.thread.is_alive()
    assert np.array_equal(world.received.codes("airport"), CODES)


def part(number):
    return Message(number, "embedding", torch.from_numpy(FORM.packed(CODES[7 * number : 7 * number + 7])), b"")


@pytest.mark.parametrize(
    "message",
    [
        replace(part(0), step=6),
        replace(part(0), step=2**64 - 1),
        replace(part(0), step=5),
        replace(part(5), step=0),
        replace(part(0), payload=torch.empty(0, dtype=torch.uint8)),
        replace(part(0), payload=torch.zeros(45, dtype=torch.uint8)),
        replace(part(0), payload=torch.zeros(7, dtype=torch.uint8)),
        Message(0, "evaluation", torch.zeros(7, WIDTH), b""),
    ],
)
def test_parts_that_were_not_agreed_are_refused_and_nothing_is_stored(world, message):
    asking = world.asking()
    with pytest.raises((RefusedError, LinkError)):
        asking.ask(message, "acknowledgement")
    assert not list(world.received._folder.glob("*.npy"))
    assert world.alarms


def test_another_embedding_after_a_kill_is_refused_part_by_part(world):
    asking = world.asking()
    for number in (0, 1, 2):
        asking.ask(part(number), "acknowledgement")
    with pytest.raises(RefusedError, match="part 0 came before with other content"):
        world.asking().deliver(7 - CODES, FORM)


def test_out_of_order_twice_and_after_a_break_at_every_point(world):
    """A link that breaks before and after each message: nothing is asked twice in vain, and the bytes are the same."""
    asking = world.asking()
    for number in (3, 0, 5, 3, 1):
        asking.ask(part(number), "acknowledgement")
        world.links[-1].close()
        assert asking.flips(ROWS).tolist() == [row % 2 for row in range(ROWS)]
        world.links[-1].close()
    asking.deliver(CODES, FORM)
    assert asking.line.reconnects >= 9


def test_flips_asked_for_a_hundred_times_are_the_same(world):
    asking = world.asking()
    assert len({asking.flips(ROWS).tobytes() for _ in range(100)}) == 1


def test_garbage_and_one_row_for_all_are_kept_as_they_came(tmp_path):
    """What is sent is the sender's affair: a head that learns nothing from it is no worse than the fallback."""
    received = Received(tmp_path, ROWS, FORM)
    received.take("airport", 0, np.zeros(45, np.uint8))
    assert received.whole("airport")
    assert not received.codes("airport").any()


def test_a_part_that_is_begun_and_never_ended_does_not_count(tmp_path):
    received = Received(tmp_path, ROWS, FORM)
    (tmp_path / "airport-0.npy.part").write_bytes(b"half")
    assert not received.whole("airport")
    received.take("airport", 0, FORM.packed(CODES))
    assert np.array_equal(received.codes("airport"), CODES)


def test_a_mechanism_that_is_none_is_refused():
    for words in ({"mechanism": "flips"}, {**COIN.parameters(), "keep": str(2**64 - 1)}, {"mechanism": ["x"]}):
        with pytest.raises(RefusedError, match="no mechanism that there is"):
            Liar(BITS, hello=replace(LABEL, mechanism=words)).asking().flips(ROWS)


NUMBER = Exchange(bits=3, target="number", low=0.0, high=1.0, cells=4)


@pytest.mark.parametrize(
    ("mechanism", "agreed"),
    [
        (flips(0.6), Exchange(bits=3)),
        (flips(0.6, 3.0, classes=5), Exchange(bits=3, classes=5)),
        (number_flips(0.6, low=0.0, high=1.0, cells=4), NUMBER),
    ],
)
def test_a_mechanism_is_of_the_kind_that_was_agreed_on(mechanism, agreed):
    """With more classes than were agreed on a label party would steer the bottom by a byte or two a row, not a bit."""
    check_agreed(mechanism, agreed)
    for other in (
        flips(0.6, 3.0, classes=300),
        number_flips(0.6, low=0.0, high=2.0, cells=4),
    ):
        with pytest.raises(ProtocolError, match="the contract says"):
            check_agreed(other, agreed)


def test_numbers_are_not_sent_as_more_outputs_than_cells():
    """Each output more is another mark that a label party could set."""
    made = number_flips(0.6, low=0.0, high=1.0, cells=4)
    mean = np.linspace(0.0, 1.0, 4)[:, None]
    outputs, parts = np.linspace(-4.0, 5.0, 6), 2**60
    spread = [[2**64 // 6 + round(float(slope) * parts) for slope in row] for row in mean * np.linspace(-1, 1, 6)]
    table = tuple((*row[:-1], 2**64 - sum(row[:-1])) for row in spread)
    marked = replace(made, outputs=tuple(outputs.tolist()), table=table)
    check_agreed(made, NUMBER)
    with pytest.raises(ProtocolError, match="sends 6 different numbers, where the contract says 4 cells"):
        check_agreed(marked, NUMBER)
