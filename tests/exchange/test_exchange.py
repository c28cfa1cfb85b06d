"""The two messages of one-shot training, over links in memory: what is answered, what is refused."""

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
from tacit.exchange.messages import (
    Asking,
    Form,
    Greeting,
    Received,
    answer_all,
    feature_limits,
    greet_feature_party,
    label_limits,
    packed,
    unpacked,
)
from tacit.labels.flips import flips
from tacit.wire.codec import control
from tacit.wire.line import Desk, Dialer

ROWS, WIDTH = 40, 3
FORM = Form(3, WIDTH)
COIN = flips(0.6)
EXCHANGE = Exchange(bits=3, numbers=WIDTH)
CODES = (np.arange(ROWS * WIDTH) % 8).astype(np.uint8).reshape(ROWS, WIDTH)
LABEL = Greeting("r", "c", "a", "d", "airline", "label", COIN.parameters())
FLIPS = packed(np.arange(ROWS) % 2, 2)
FEATURES = Greeting("r", "c", "a", "d", "airport", "features", {})


@pytest.mark.parametrize("classes", [2, 3, 256, 300])
def test_what_is_packed_comes_back(classes):
    sent = np.arange(ROWS) % classes
    assert np.array_equal(unpacked(packed(sent, classes), ROWS, classes), sent)
    if classes == 300:
        with pytest.raises(ProtocolError, match="class above"):
            unpacked(packed(sent + 290, 310), ROWS, classes)
        with pytest.raises(ProtocolError, match="class above"):  # as a signed number it would be below all classes
            unpacked(torch.full((2 * ROWS,), 255, dtype=torch.uint8), ROWS, classes)


@pytest.mark.parametrize(
    ("field", "other"),
    [("contract", "x"), ("alignment", "x"), ("rows", "x"), ("run", "x"), ("version", "0"), ("purpose", "align")],
)
def test_sides_that_differ_are_told_in_what(field, other):
    with pytest.raises(RefusedError, match=field):
        LABEL.heard(replace(FEATURES, **{field: other}).message(), "airport")


def test_a_name_is_that_of_the_certificate_and_roles_differ():
    assert LABEL.heard(FEATURES.message(), "airport") == FEATURES
    with pytest.raises(RefusedError, match="certificate"):
        LABEL.heard(FEATURES.message(), "weather")
    with pytest.raises(RefusedError, match="certificate"):
        LABEL.heard(replace(FEATURES, role="label").message(), "airport")


class World:
    """A label party that answers in a thread, and a way to it that can be cut."""

    def __init__(self, path, greeting=LABEL, flips=FLIPS):
        self.doors, self.links, self.lock = [], [], threading.Lock()
        self.received = Received(path, ROWS, FORM)
        self.alarms = []
        self.flips = flips
        desk = Desk(
            self.accept,
            lambda link: greet_feature_party(link, greeting),
            ["airport"],
            alarm=lambda *said: self.alarms.append(said),
        )
        lines = {"airport": desk.line("airport")}
        self.thread = threading.Thread(target=answer_all, args=(lines, self.flips, self.received), daemon=True)
        self.thread.start()

    def accept(self, timeout):
        with self.lock:
            return self.doors.pop(0) if self.doors else None

    def connect(self):
        mine, theirs = links(feature_limits(ROWS), names=("airport", "airline"))
        theirs.limits = label_limits(ROWS, FORM)
        with self.lock:
            self.doors.append(theirs)
        self.links.append(mine)
        return mine

    def asking(self, greeting=FEATURES, **options):
        return Asking(lambda greet: Dialer("airline", self.connect, greet), greeting, **options)


@pytest.fixture(name="world")
def _world(tmp_path):
    world = World(tmp_path)
    yield world
    asking = world.asking()
    if not world.received.whole("airport"):
        asking.deliver(np.zeros((ROWS, WIDTH), np.uint8), FORM)
    asking.leave()
    world.thread.join(20)
    assert not world.thread.is_alive()


def test_flips_go_out_and_the_embedding_comes_in_once(world):
    asking, codes = world.asking(), CODES
    assert asking.flips(ROWS).tolist() == [row % 2 for row in range(ROWS)]
    assert asking.mechanism == COIN
    asking.deliver(codes, FORM)
    asking.deliver(codes, FORM)  # once more, as after a lost acknowledgement
    assert np.array_equal(world.received.codes("airport"), codes)
    with pytest.raises(RefusedError, match="sent once"):
        asking.deliver(7 - codes, FORM)
    assert np.array_equal(world.received.codes("airport"), codes)


def test_a_link_that_breaks_is_made_again_and_the_open_question_asked_again(world):
    asking = world.asking()
    assert len(asking.flips(ROWS)) == ROWS
    world.links[-1].close()
    codes = np.ones((ROWS, WIDTH), np.uint8)
    asking.deliver(codes, FORM)
    assert np.array_equal(world.received.codes("airport"), codes)
    assert asking.line.reconnects == 1


@pytest.mark.parametrize(
    "message",
    [
        Message(0, "embedding", torch.zeros(46, dtype=torch.uint8), b""),
        Message(0, "embedding", torch.zeros(44, dtype=torch.uint8), b""),
        Message(7, "embedding", torch.zeros(45, dtype=torch.uint8), b""),
        Message(0, "embedding", torch.zeros(45, dtype=torch.float32), b""),
        Message(0, "gradient", torch.zeros(ROWS, WIDTH), b""),
    ],
)
def test_what_was_not_agreed_is_refused_and_nothing_is_stored(world, message):
    asking = world.asking()
    asking.flips(ROWS)
    with pytest.raises((RefusedError, LinkError)):
        asking.ask(message, "acknowledgement")
    assert not world.received.whole("airport")
    assert world.alarms


def test_another_mechanism_than_before_or_none_is_refused(tmp_path):
    world = World(tmp_path)
    asking = world.asking()
    asking.flips(ROWS)
    asking.mechanism = flips(0.7)
    world.links[-1].close()
    with pytest.raises(RefusedError, match="another mechanism"):
        asking.flips(ROWS)
    asking = world.asking()
    asking.deliver(np.zeros((ROWS, WIDTH), np.uint8), FORM)
    asking.leave()
    world.thread.join(20)
    bare = World(tmp_path, replace(LABEL, mechanism={"mechanism": "bare"}))
    with pytest.raises(RefusedError, match="no mechanism that there is"):
        bare.asking().flips(ROWS)
    sneaky = Asking(lambda greet: Dialer("airline", bare.connect, lambda link: greet_quietly(link)), FEATURES)
    sneaky.leave()
    bare.thread.join(20)


def greet_quietly(link):
    link.send(FEATURES.message())
    link.recv(5)


def test_an_answer_is_told_of_before_it_leaves(tmp_path):
    """Killed in between, the party would have nothing on record of what left, and nobody asks for it again."""
    order = []

    asked = [
        Message(0, "flips", torch.empty(0, dtype=torch.uint8), b""),
        Message(0, "embedding", torch.zeros(45, dtype=torch.uint8), b""),
        control("done", 0, {}),
    ]

    class Line:
        def look(self):
            return asked.pop(0)

        def send(self, answer):
            order.append(f"{answer.kind} leaves")

    done = answer_all(
        {"airport": Line()},
        packed(np.zeros(ROWS), 2),
        Received(tmp_path, ROWS, FORM),
        leaving=lambda name, answer: order.append(f"{answer.kind} is told of"),
    )
    assert done == {"airport"}
    assert order == [
        f"{kind} {what}" for kind in ("flips", "acknowledgement", "done") for what in ("is told of", "leaves")
    ]


@pytest.mark.parametrize("bits", [1, 2, 3, 5])
@pytest.mark.parametrize("numbers", [1, 4])
def test_cells_cross_in_their_bits_and_come_back(bits, numbers):
    form = Form(bits, numbers)
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (37, numbers)).astype(np.uint8)
    raw = form.packed(codes)
    assert len(raw) == form.size(37) == -(-37 * numbers * bits // 8)
    assert np.array_equal(form.unpacked(raw, 37), codes)


def test_where_no_label_is_sent_none_is_answered_about(tmp_path):
    world = World(tmp_path, replace(LABEL, mechanism={}), flips=None)
    asking = world.asking(labels=False)
    with pytest.raises(RefusedError, match="no place here"):
        asking.ask(Message(0, "flips", torch.empty(0, dtype=torch.uint8), b""), "flips")
    asking = world.asking(labels=False)
    asking.deliver(CODES, FORM)
    asking.leave()
    world.thread.join(20)
    assert np.array_equal(world.received.codes("airport"), CODES)


def test_a_mechanism_where_the_contract_has_none_is_refused(tmp_path):
    world = World(tmp_path)
    with pytest.raises(RefusedError, match="no label is sent"):
        world.asking(labels=False).deliver(CODES, FORM)
    asking = world.asking()
    asking.deliver(CODES, FORM)
    asking.leave()
    world.thread.join(20)
