"""A large alignment goes on after a break: a peer that lies when it comes back learns nothing by that."""

import functools
import threading

import pytest
import torch

from tacit.align import _exchange, psi
from tacit.align.control import decoded, expect
from tacit.align.kept import STATE
from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.wire.codec import control

PATIENCE = 20.0
CHUNK = 7

pytestmark = pytest.mark.usefixtures("large")


class Peer:
    """Somebody who knows the protocol and has been let in, with 30 points to ask."""

    def __init__(self, link, nonce="ab" * 16, count=30, **standing):
        self.link = link
        hello = {"protocol": psi._PROTOCOL, "count": count, "cap": 100_000, "minimum": 0, "nonce": nonce}
        link.send(control("commitment", 0, hello | {"answered": 0, "received": 0} | standing))
        self.said = decoded(expect(link, "commitment", 0, PATIENCE), psi._HELLO)

    def ask(self, points, step):
        self.link.send(Message(step, "points", torch.from_numpy(points.copy()), b""))

    def answers(self, count):
        """The next so many chunks of products, by their step."""
        found = {}
        while len(found) < count:
            message = self.link.recv(PATIENCE)
            assert message is not None
            if message.kind == "matches":
                found[message.step] = message.payload.numpy().tobytes()
        return found


@pytest.fixture(name="against")
def _against(tmp_path, links, both, side):
    """What becomes of an honest party with 40 ids whose peer acts like this, on one link after the other.

    A peer that stays hangs up when the honest party has ended: until then that hears all that was said.
    """

    def run(act, *, stays=False):
        ends, over = links(), threading.Event()

        def honest():
            try:
                return side(ends[0], list(range(40)), tmp_path)
            finally:
                over.set()

        def acting():
            try:
                found = act(ends[1])
                assert not stays or over.wait(PATIENCE)
                return found
            finally:
                ends[1].close()

        return both(honest, acting)

    return run


@pytest.fixture(name="points")
def _points(engine, hashes):
    """Points on the curve, other ones for each start."""
    return lambda start, count=CHUNK: engine.blind(hashes(range(start, start + count)), b"\7" * 32, domain=psi.DOMAIN)


def begun(against, points):
    """Two of the peer's chunks are answered, and the link is gone."""

    def act(link):
        peer = Peer(link)
        for step in range(4):  # an engine answers some chunks later than they come
            peer.ask(points(1000 + step * CHUNK), step)
        return peer.answers(2)

    error, products = against(act)
    assert isinstance(error, LinkError)
    return products


def test_other_points_in_the_place_of_answered_ones_get_no_answer(against, points):
    """A peer that comes back may ask for the rest of its points, and hears about the others what it heard."""
    before = begun(against, points)

    def act(link):
        peer = Peer(link)
        answered = peer.said["answered"]
        assert answered >= 2 * CHUNK
        again = peer.answers(answered // CHUNK)
        peer.ask(points(5000), 0)
        return again

    error, again = against(act, stays=True)
    assert again[0] == before[0]
    assert again[1] == before[1]
    assert isinstance(error, ProtocolError)
    assert "sent points 0 after" in str(error)
    error, _ = against(lambda link: Peer(link).said["answered"])
    assert isinstance(error, (LinkError, RefusedError)), "and it is not let in for this alignment any more"


def test_never_more_points_than_were_promised(against, points):
    begun(against, points)

    def act(link):
        peer = Peer(link)
        at = peer.said["answered"]
        while at < 30:
            peer.ask(points(2000 + at, min(CHUNK, 30 - at)), at // CHUNK)
            at += min(CHUNK, 30 - at)
        peer.answers(5)
        peer.ask(points(3000, CHUNK), 5)
        return at

    error, _ = against(act, stays=True)
    assert isinstance(error, ProtocolError)
    assert "after 30 of 30 rows" in str(error)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"nonce": "cd" * 16}, "nonce"),
        ({"count": 31}, "nonce"),
        ({"received": 6 * CHUNK}, "standing"),
        ({"received": 28}, "standing"),
        ({"answered": 41}, "standing"),
        ({"answered": 3}, "standing"),
        ({"answered": -CHUNK}, "standing"),
        ({"received": 2 * CHUNK + 1}, "standing"),
    ],
)
def test_a_peer_that_goes_on_from_where_it_never_was(changed, field, against, points, tmp_path):
    begun(against, points)
    (tmp_path / "answered").write_bytes((tmp_path / "answered").read_bytes()[: 2 * CHUNK * 16])
    error, _ = against(lambda link: Peer(link, **changed) and None)
    assert isinstance(error, RefusedError)
    assert error.field == field
    assert "--again` on all sides" in str(error)
    assert (tmp_path / STATE).exists(), "nothing was said: the true peer may still come"


def test_a_peer_whose_party_has_begun_nothing(against):
    error, _ = against(lambda link: Peer(link, received=CHUNK) and None)
    assert isinstance(error, RefusedError)
    assert "an alignment that this party does not have" in str(error)


def test_more_chunks_on_the_way_than_the_window(against, points, monkeypatch):
    monkeypatch.setattr(_exchange, "WINDOW", 2)

    def act(link):
        peer = Peer(link, count=30 * CHUNK)
        for step in range(30):
            peer.ask(points(step * CHUNK), step)

    error, _ = against(act, stays=True)
    assert isinstance(error, ProtocolError)
    assert "at most 2 chunks" in str(error)


def test_one_guess_in_an_alignment_however_often_the_link_breaks(tmp_path, links, both, side, engine, ordered):
    """The peer hangs up with our proof, which tells whether its guess was right, and comes back with another one."""
    whole, guesser = tmp_path / "whole", tmp_path / "guesser"

    class Guessing:
        """Its owner sends a share of its own making, and is gone when it has the proof."""

        def __init__(self, link, guess):
            self.link, self.peer, self.guess = link, link.peer, guess

        def send(self, message):
            if (message.kind, message.step) == ("commitment", 1):
                share = engine.blind(ordered([self.guess]), b"\5" * 32, domain=psi._AGREEMENT)
                message = control("commitment", 1, {"share": share.tobytes().hex()})
            if (message.kind, message.step) != ("commitment", 2):  # it keeps its own proof
                self.link.send(message)

        def recv(self, timeout=None):
            message = self.link.recv(timeout)
            if message is not None and (message.kind, message.step) == ("commitment", 2):
                self.link.close()
                raise LinkError("has it")
            return message

        def close(self):
            self.link.close()

    def attempt(guess):
        ends = links()
        return both(
            functools.partial(side, ends[0], list(range(40)), whole),
            functools.partial(side, Guessing(ends[1], guess), list(range(40)), guesser),
        )

    error, cheat = attempt(1)
    assert isinstance(error, LinkError)
    assert str(cheat) == "has it"
    error, cheat = attempt(1)
    assert str(cheat) == "has it", "the same again tells the same"
    error, cheat = attempt(2)
    assert isinstance(error, RefusedError)
    assert error.field == "share"
    assert str(cheat) != "has it"
    assert not (whole / STATE).exists()
