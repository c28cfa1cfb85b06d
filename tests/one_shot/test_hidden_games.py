"""Hidden sums over the messages of an exchange: either side cheats, the other one runs the code that companies run."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.config import Exchange
from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.hidden_sums.encryption import decrypt_sums, secret_key
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import LabelSide
from tacit.hidden_sums.messages import arrays_of
from tacit.hidden_sums.points import decode
from tacit.hidden_sums.shuffle import Shuffle
from tacit.one_shot.exchange import (
    Asking,
    Greeting,
    Received,
    answer_all,
    feature_limits,
    greet_feature_party,
    label_limits,
)
from tacit.one_shot.hiding import agreement, hidden_answers, noise_of
from tacit.one_shot.sums import sums
from tacit.wire.line import Desk, Dialer
from tests.memory_links import links

pytest.importorskip("coincurve", reason="libsecp256k1 comes with the extra [sums]")

ROWS, SIZE, PARTITIONS = 40, 8, 3
EXCHANGE = Exchange(width=1, labels="hidden_sums", group_size=SIZE, partitions=PARTITIONS)
MECHANISM = sums(0.9, groups=SIZE, partitions=PARTITIONS, hidden=True)
AGREED = agreement(MECHANISM, "c", "r airport", ROWS)
LABEL = Greeting("r", "c", "a", "d", "airline", "label", MECHANISM.parameters())
FEATURES = Greeting("r", "c", "a", "d", "airport", "features", {})
LABELS = np.arange(ROWS) % 2
SECRETS = b"l" * 32, b"f" * 32
ASKED = Message(0, "ciphertexts", torch.empty(0, dtype=torch.uint8), b"")


def message(step, kind, content):
    return Message(step, kind, torch.frombuffer(bytearray(content), dtype=torch.uint8), b"")


def label_side(path, labels=LABELS, **options):
    return LabelSide(path, SECRETS[0], AGREED, labels, noise_of(MECHANISM, SECRETS[0], "r airport"), **options)


def feature_side(path, secret=SECRETS[1]):
    return FeatureSide(path, secret, AGREED)


def grouped(masks):
    """Equal groups, other ones in each partition."""
    draw = np.random.default_rng(4)
    return np.stack([draw.permutation(np.repeat(np.arange(ROWS // SIZE), SIZE)) for _ in range(PARTITIONS)], axis=1)


def asked(connect, path, leaving=lambda *_: None):
    """An honest feature party's whole conversation."""
    asking = Asking(lambda greet: Dialer("airline", connect, greet), FEATURES)
    return hidden_answers(asking, lambda _: feature_side(path), grouped, leaving)


# --- a feature party that cheats -------------------------------------------------------------------------------------


class Airline:
    """A label party that answers in a thread as companies do; what it sends is kept as it was on the wire."""

    def __init__(self, path):
        self.doors, self.lock, self.alarms, self.charged = [], threading.Lock(), [], []
        self.side = label_side(path / "airline", charge=lambda partition, _: self.charged.append(partition))
        desk = Desk(
            self.accept,
            lambda link: greet_feature_party(link, LABEL),
            ["airport"],
            alarm=lambda *said: self.alarms.append(said),
        )
        self.received = Received(path / "received", ROWS, 1)
        lines = {"airport": desk.line("airport")}
        self.thread = threading.Thread(target=answer_all, args=(lines, self.tell, self.received), daemon=True)
        self.thread.start()

    def tell(self, name, said):
        if said.kind == "ciphertexts":
            return message(said.step, "ciphertexts", self.side.commitment())
        answer = self.side.answer(said.step, said.payload.numpy().tobytes())
        return Message(said.step, "sums", torch.from_numpy(np.frombuffer(answer, "<i8").astype(np.int64)), b"")

    def accept(self, timeout):
        with self.lock:
            return self.doors.pop(0) if self.doors else None

    def connect(self, limits=None):
        mine, theirs = links(limits or feature_limits(ROWS, EXCHANGE), names=("airport", "airline"))
        theirs.limits = label_limits(ROWS, ROWS, EXCHANGE)
        with self.lock:
            self.doors.append(theirs)
        return mine

    def say(self, said):
        """One message over a link of its own, and all that comes back, but for the greeting."""
        link = self.connect()
        link.send(FEATURES.message())
        assert link.recv(20).kind == "hello"
        link.send(said)
        answer = link.recv(20)
        link.close()
        return answer


@pytest.fixture(name="airline")
def _airline(tmp_path):
    world = Airline(tmp_path)
    yield world
    asking = Asking(lambda greet: Dialer("airline", world.connect, greet), FEATURES)
    asking.deliver(np.zeros((ROWS, 1), np.uint8))
    asking.leave()
    world.thread.join(20)
    assert not world.thread.is_alive()


@pytest.fixture(name="batches")
def _batches(airline, tmp_path):
    """Honest batches of two feature parties, the second of which does not exist for the label party."""
    made = []
    for name, secret in (("one", b"1" * 32), ("two", b"2" * 32)):
        side = feature_side(tmp_path / name, secret)
        side.accept(airline.side.commitment())
        groups = grouped(None)
        made.append([side.batch(number, groups[:, number]) for number in range(PARTITIONS)])
    return made


def test_refusals_are_the_same_to_the_byte_whatever_was_wrong(airline, batches):
    """Replayed for another partition, of another shuffle after an answer, damaged, of a partition that is not there."""
    (first, second, third), (other, *_) = batches
    answered = airline.say(message(0, "batch", first))
    assert answered.kind == "sums"
    damaged = third[:-1] + bytes([third[-1] ^ 1])
    tried = [(1, first), (0, other), (1, second), (2, damaged), (2, third), (3, first), (2**40, first)]
    refusals = [airline.say(message(step, "batch", content)) for step, content in tried]
    assert {one.kind for one in refusals} == {"refusal"}
    assert len({one.payload.numpy().tobytes() for one in refusals}) == 1
    again = airline.say(message(0, "batch", first))
    assert torch.equal(again.payload, answered.payload)
    assert airline.charged == [0], "one answer was paid for, and no refusal was"
    assert len(airline.alarms) == len(tried), "the label party hears of each"


@pytest.mark.parametrize("kind", ["flips", "groups", "sums", "acknowledgement"])
def test_what_was_not_agreed_on_is_not_answered(airline, kind):
    content = (
        torch.zeros(ROWS, PARTITIONS, dtype=torch.int64) if kind == "groups" else torch.zeros(0, dtype=torch.uint8)
    )
    answer = airline.say(Message(0, kind, content, b""))
    assert answer.kind == "refusal"
    assert airline.charged == []


def test_a_batch_of_another_size_closes_nothing(airline, batches):
    """It never reaches the sums: the codec refuses what has not the agreed length, and an honest batch still counts."""
    assert airline.say(message(0, "batch", batches[0][0] + b"\0")).kind == "refusal"
    assert airline.say(message(0, "batch", batches[0][0])).kind == "sums"


def test_answers_are_those_of_the_book_keeping_side_over_links_that_break(airline, tmp_path):
    groups, answers = asked(airline.connect, tmp_path / "features")
    for partition, sums_of in zip(groups.T, answers, strict=True):
        true = np.bincount(partition, weights=LABELS)
        assert (abs(sums_of - true) <= MECHANISM.reach).all()
    again = asked(airline.connect, tmp_path / "features")[1]
    assert all(np.array_equal(one, other) for one, other in zip(answers, again, strict=True))


# --- a label party that cheats ---------------------------------------------------------------------------------------


class Liar:
    """A label party that greets as it should and answers by a function of what it hears; None breaks the link."""

    def __init__(self, answer, hello=LABEL):
        self.answer, self.hello, self.heard = answer, hello, []

    def connect(self):
        mine, theirs = links(feature_limits(ROWS, EXCHANGE), names=("airport", "airline"))
        theirs.limits = label_limits(ROWS, ROWS, EXCHANGE)
        threading.Thread(target=self._talk, args=(theirs,), daemon=True).start()
        return mine

    def _talk(self, link):
        try:
            link.recv(20)
            link.send(self.hello.message())
            while (said := link.recv(20)) is not None:
                self.heard.append(said)
                answer = self.answer(said)
                if answer is None:
                    link.close()
                    return
                link.send(answer)
        except LinkError:
            pass


def answering(side, forge):
    """As an honest label party answers, but for what is done to its sums."""

    def answer(said):
        if said.kind == "ciphertexts":
            return message(0, "ciphertexts", side.commitment())
        honest = np.frombuffer(side.answer(said.step, said.payload.numpy().tobytes()), "<i8").astype(np.int64)
        return forge(said.step, honest)

    return answer


def told(step, values):
    return Message(step, "sums", torch.from_numpy(np.ascontiguousarray(values)), b"")


FORGED = {
    "beyond the range": (lambda step, sums_of: told(step, sums_of + MECHANISM.reach + SIZE), "no labels and no noise"),
    "all raised in one partition": (lambda step, sums_of: told(step, sums_of + 8 * (step == 1)), "whose total"),
    "all lowered": (lambda step, sums_of: told(step, np.full_like(sums_of, -MECHANISM.reach)), "whose total"),
    "of another partition": (lambda step, sums_of: told(step + 1, sums_of), "of step"),
    "too few": (lambda step, sums_of: told(step, sums_of[:-1]), "sums"),
    "no numbers": (lambda step, sums_of: message(step, "ciphertexts", bytes(8)), "ciphertexts"),
}


@pytest.mark.parametrize("how", FORGED)
def test_answers_that_no_labels_and_no_noise_give_end_the_run(tmp_path, how):
    forge, match = FORGED[how]
    liar = Liar(answering(label_side(tmp_path / "airline"), forge))
    with pytest.raises(ProtocolError, match=match):
        asked(liar.connect, tmp_path / "features")
    sent = [one.step for one in liar.heard if one.kind == "batch"]
    assert len(sent) == len(set(sent)) <= 2, "nothing is asked again, and what was not asked yet stays at home"


def test_other_labels_after_a_link_broke_are_refused_and_no_batch_of_them_leaves(tmp_path):
    sides = [label_side(tmp_path / "first"), label_side(tmp_path / "second", 1 - LABELS)]
    said = []

    def answer(heard):
        said.append(heard.kind)
        if heard.kind == "ciphertexts":
            return message(0, "ciphertexts", sides[said.count("ciphertexts") > 1].commitment())
        return told(0, np.full(SIZE, 2**62))  # the feature party ends here, and is started again

    liar = Liar(answer)
    with pytest.raises(ProtocolError):
        asked(liar.connect, tmp_path / "features")
    with pytest.raises(RefusedError, match="committed to once"):
        asked(liar.connect, tmp_path / "features")
    assert said == ["ciphertexts", "batch", "ciphertexts"]


def test_what_leaves_is_told_before_it_leaves_and_for_each_batch(tmp_path):
    side, order = label_side(tmp_path / "airline"), []

    def answer(heard):
        order.append(heard.kind)
        return answering(side, told)(heard)

    def leaving(groups, labels, size):
        order.append(("leaving", groups.shape, labels, size))

    asked(Liar(answer).connect, tmp_path / "features", leaving)
    size = PARTITIONS * len(feature_batch(side, tmp_path / "other"))
    expected = ("leaving", (ROWS, PARTITIONS), hashlib.sha256(side.commitment()).digest(), size)
    assert order == ["ciphertexts", *[expected, "batch"] * PARTITIONS]


def feature_batch(side, path, groups=None):
    mine = feature_side(path)
    mine.accept(side.commitment())
    return mine.batch(0, grouped(None)[:, 0] if groups is None else groups)


@pytest.mark.parametrize("together", [True, False])
def test_two_marked_rows_tell_whether_they_are_together_and_that_is_all(tmp_path, together):
    """What is said not to be noticed: bits that are no labels. The nameless sums are what it learns, whole."""
    marked = np.zeros(ROWS, np.int64)
    marked[[3, 17]] = 1
    side = label_side(tmp_path / "airline", marked)
    groups = np.repeat(np.arange(ROWS // SIZE), SIZE)
    if together:
        groups[17], groups[5] = 0, groups[17]
    shuffled = Shuffle(**arrays_of(Shuffle.shapes(ROWS), feature_batch(side, tmp_path / "features", groups)))
    sk = secret_key(SECRETS[0], AGREED.context("labels"))
    seen = decrypt_sums(decode(shuffled.a), decode(shuffled.b), sk, SIZE)
    assert sorted(seen.tolist()) == ([0, 0, 0, 0, 2] if together else [0, 0, 0, 1, 1])


def test_another_mechanism_than_before_is_refused(tmp_path):
    """More noise after a link broke would widen the range of answers."""
    side, wider = label_side(tmp_path / "airline"), sums(0.6, groups=SIZE, partitions=PARTITIONS, hidden=True)
    liar = Liar(None)

    def answer(heard):
        if heard.kind == "ciphertexts":
            return message(0, "ciphertexts", side.commitment())
        liar.hello = replace(LABEL, mechanism=wider.parameters())
        return None

    liar.answer = answer
    with pytest.raises(RefusedError, match="another mechanism than before"):
        asked(liar.connect, tmp_path / "features")
