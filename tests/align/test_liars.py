"""Peers that know the protocol and lie: whatever they hand back, no row counts as common whose id they do not know."""

import functools
import secrets

import numpy as np
import pytest
import torch

from tacit.align import psi
from tacit.align.control import decoded, expect
from tacit.align.curve import byte_order, hash_to_points
from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.wire.codec import control

OWN, ASKED, MINIMUM = 60, 40, 20  # ids of the honest party, of the liar, and the smallest intersection
PATIENCE = 20.0


def noise(count, width=32):
    return np.frombuffer(secrets.token_bytes(count * width), np.uint8).reshape(count, width)


class Liar:
    """A peer that sends points and products of its own choice.

    Attributes:
        asked: hashes that its points are made of, where they are made of any.
        points: those of the honest party.
        products: what the honest party made of the liar's points, shortened.
    """

    def __init__(self, link, engine, asked):
        self.link, self.engine, self.asked = link, engine, asked
        self.key, self.nonce = secrets.token_bytes(32), secrets.token_bytes(16)

    def ask(self, points=None):
        """Everything up to the liar's own products; None stands for honest points."""
        hello = {"protocol": psi._PROTOCOL, "count": len(self.asked), "cap": 1000, "minimum": MINIMUM}
        self.link.send(control("commitment", 0, {**hello, "nonce": self.nonce.hex()}))
        said = decoded(expect(self.link, "commitment", 0, PATIENCE), psi._HELLO)
        self.peer_nonce = bytes.fromhex(said["nonce"])
        self.points = expect(self.link, "points", 0, PATIENCE).payload.numpy()
        chosen = self.engine.blind(self.asked, self.key, domain=psi.DOMAIN) if points is None else points(self)
        self.link.send(Message(0, "points", torch.from_numpy(chosen.copy()), b""))
        self.products = expect(self.link, "matches", 0, PATIENCE).payload.numpy()

    @functools.cached_property
    def honest(self):
        """What an honest peer would hand back."""
        return self.engine.multiply(self.points, self.key)[:, : psi.SHORT]

    @property
    def learned(self):
        """Which of its ids the liar now knows to be in the table."""
        true = {row.tobytes() for row in self.honest}
        return [row.tobytes() in true for row in self.products]

    def claim(self, rows):
        """Hand these back as products; the rest is noise."""
        claimed = np.concatenate([rows, noise(OWN - len(rows), psi.SHORT)])
        self.link.send(Message(0, "matches", torch.from_numpy(claimed), b""))

    def prove(self, ids):
        """Act as one who holds these hashes for common."""
        ordered = ids[byte_order(ids)]
        self.last_key = secrets.token_bytes(32)
        psi._confirm(self.link, ordered, self.engine, self.last_key, self.nonce, self.peer_nonce, PATIENCE)


@pytest.fixture(name="lied_to")
def _lied_to(links, both, engine, hashes):
    """The honest party's result against a liar whose first so many ids are in the table, and the liar itself."""

    def run(act, real):
        link, other = links()
        asked = np.concatenate([hashes(range(real)), hashes(range(1000, 1000 + ASKED - real))])
        liar = Liar(other, engine, asked)

        def victim():
            options = {"engine": engine, "cap": 1000, "minimum": MINIMUM, "patience": PATIENCE}
            try:
                return psi.intersect(link, hashes(range(OWN)), **options)
            finally:
                link.close()

        found, ended = both(victim, lambda: act(liar))
        assert ended is None or isinstance(ended, (LinkError, ProtocolError)), ended
        return found, liar

    return run


# --- ways to lie -----------------------------------------------------------------------------------------------------


def echo(liar):
    """The honest party's own products, as they came."""
    liar.ask()
    liar.claim(liar.products[:30])
    liar.prove(liar.asked[:30])


def echo_shuffled(liar):
    liar.ask()
    liar.claim(np.random.default_rng(1).permutation(liar.products)[:30])
    liar.prove(liar.asked[:30])


def echo_among_real_ones(liar):
    """True products of all that is common, and the echo of one more."""
    liar.ask()
    known = np.flatnonzero(liar.learned)
    claimed = liar.honest.copy()
    strange = next(row for row in range(OWN) if not (liar.products == claimed[row]).all(axis=1).any())
    claimed[strange] = liar.products[-1]
    liar.claim(claimed)
    liar.prove(liar.asked[[*known, ASKED - 1]])


def multiples(liar):
    """All points are multiples of one id: once its row is known, so are the full products of all of them."""
    keys = [secrets.token_bytes(32) for _ in range(ASKED)]

    def times(point):
        return np.concatenate([liar.engine.multiply(point, key) for key in keys])

    liar.ask(lambda liar: times(hash_to_points(liar.asked[:1], domain=psi.DOMAIN)))
    (row,) = [row for row in range(OWN) if (times(liar.points[[row]])[:, : psi.SHORT] == liar.products).all()]
    liar.claim(times(liar.points[[row]])[:30, : psi.SHORT])
    liar.prove(liar.asked[:30])


def reflection(liar):
    """The honest party's points as the liar's own, and their products back."""
    liar.ask(lambda liar: liar.points[:ASKED])
    liar.claim(liar.products[:30])
    liar.prove(liar.asked[:30])


def reflection_times_a_key(liar):
    liar.ask(lambda liar: liar.engine.multiply(liar.points[:ASKED], liar.key))
    liar.claim(liar.products[:30])
    liar.prove(liar.asked[:30])


def other_rows(liar):
    """True products of enough common ids, for the rows of other ones."""
    liar.ask()
    liar.claim(np.roll(liar.honest, 7, axis=0))
    liar.prove(liar.asked[np.flatnonzero(liar.learned)])


def echo_to_the_end(liar):
    """The share and the proof are sent back as well."""
    liar.ask()
    liar.claim(liar.products[:30])
    for step in (1, 2):
        liar.link.send(expect(liar.link, "commitment", step, PATIENCE))


@pytest.mark.parametrize(
    ("lie", "real"),
    [
        (echo, 1),
        (echo_shuffled, 1),
        (echo_among_real_ones, 30),
        (multiples, 1),
        (reflection, 1),
        (reflection_times_a_key, 1),
        (other_rows, 30),
        (echo_to_the_end, 1),
    ],
)
def test_rows_whose_ids_the_peer_does_not_know_are_never_common(lie, real, lied_to):
    found, liar = lied_to(lie, real)
    assert isinstance(found, RefusedError), found
    assert found.field == "alignment"
    assert "does not know the ids of the" in str(found)
    assert liar.products is not None


def test_what_the_liar_asked_it_knows_by_then(lied_to):
    """The minimum is about what is returned: one id among fillers is answered before anything can be refused."""
    found, liar = lied_to(echo, 1)
    assert isinstance(found, RefusedError)
    assert liar.learned == [True] + [False] * (ASKED - 1)


@pytest.mark.parametrize("right", [True, False])
def test_one_guess_and_no_dictionary(right, links, both, engine, hashes):
    """With every other id right, the one that the liar does not have can be guessed once, and not looked for later."""
    drawn, (link, other) = [], links()
    liar = Liar(other, engine, np.concatenate([hashes(range(30)), hashes(range(1000, 1010))]))

    def victim():
        def recorded(size):
            drawn.append(secrets.token_bytes(size))
            return drawn[-1]

        options = {"engine": engine, "cap": 1000, "minimum": MINIMUM, "patience": PATIENCE, "random": recorded}
        try:
            return psi.intersect(link, hashes(range(OWN)), **options)
        finally:
            link.close()

    def act():
        liar.ask()
        claimed = liar.honest.copy()
        row = next(row for row in range(OWN) if not (liar.products == claimed[row]).all(axis=1).any())
        claimed[row] = liar.products[-1]
        liar.claim(claimed)
        (order,) = [np.argsort(np.frombuffer(each, np.uint64)) for each in drawn if len(each) == 8 * OWN]
        number = order[row] if right else next(n for n in range(30, OWN) if n != order[row])
        ids = np.concatenate([liar.asked[:30], hashes([number])])
        liar.prove(ids)

    found, _ = both(victim, act)
    if right:
        assert len(found) == 31
        return
    assert isinstance(found, RefusedError)
    assert found.field == "alignment"
    first, second = [message for message in link.sent if message.kind == "commitment"][1:]
    share, proof = decoded(first, {"share": str})["share"], decoded(second, {"agreement": str})["agreement"]
    heard = engine.multiply(np.frombuffer(bytes.fromhex(share), np.uint8).reshape(1, 32), liar.last_key).tobytes()
    assert psi._proof(heard, liar.peer_nonce, liar.nonce).hex() != proof
    for number in range(30, OWN):  # the dictionary holds the right one
        ids = np.concatenate([liar.asked[:30], hashes([number])])
        base = psi._base(ids[byte_order(ids)], liar.nonce, liar.peer_nonce)
        secret = engine.blind(base, liar.last_key, domain=psi._AGREEMENT).tobytes()
        assert secret.hex() != share
        assert psi._proof(secret, liar.peer_nonce, liar.nonce).hex() != proof


def test_what_was_said_in_another_alignment(links, both, engine, hashes):
    """An honest peer's messages, kept and sent again."""
    options = {"engine": engine, "cap": 1000, "minimum": MINIMUM, "patience": PATIENCE}
    one, two = links()
    both(lambda: psi.intersect(one, hashes(range(OWN)), **options),
         lambda: psi.intersect(two, hashes(range(30)), **options))  # fmt: skip
    link, other = links()

    def replay():
        for message in two.sent:
            other.send(message)
        while other.recv(PATIENCE) is not None:
            pass

    def victim():
        try:
            return psi.intersect(link, hashes(range(OWN)), **options)
        finally:
            link.close()

    found, _ = both(victim, replay)
    assert isinstance(found, RefusedError)
    assert found.field == "alignment"
