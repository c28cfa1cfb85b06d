"""A peer that cheats while two parties look for what they have in common: it is refused, and learns nothing."""

import pytest
import torch

from tacit.align import _exchange, psi
from tacit.align._x25519 import LOW_ORDER
from tacit.align.curve import hash_to_points
from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.wire.codec import control

# --- a peer that cheats ----------------------------------------------------------------------------------------------

PATIENCE = 20.0


def hello(count, **changed):
    fields = {"protocol": psi._PROTOCOL, "count": count, "cap": 100_000, "minimum": 0, "nonce": "ab" * 16}
    return control("commitment", 0, fields | changed)


def tensor(numbers):
    return torch.tensor([list(number.to_bytes(32, "little")) for number in numbers], dtype=torch.uint8).reshape(-1, 32)


@pytest.fixture(name="cheated")
def _cheated(links, both, party):
    """The error of an honest party with 20 ids whose peer sends these messages and then waits."""

    def run(*messages, patience=PATIENCE):
        honest, cheat = links()

        def peer():
            for message in messages:
                cheat.send(message)
            while not honest._closed.is_set():
                cheat.recv(timeout=0.05)

        def victim():
            return party(honest, list(range(20)), patience=patience)

        error, other = both(victim, peer)
        assert other is None or isinstance(other, LinkError)
        return error

    return run


@pytest.fixture(name="curve_points")
def _curve_points(hashes):
    def of(count):
        return torch.from_numpy(hash_to_points(hashes(range(100, 100 + count)), domain=b"x").copy())

    return of


@pytest.mark.parametrize("low", LOW_ORDER)
def test_points_of_low_order(low, cheated, curve_points):
    points = curve_points(8)
    points[5] = tensor([low])[0]
    error = cheated(hello(8), Message(0, "points", points, b""))
    assert isinstance(error, ProtocolError)
    assert "point 5 of 8 has low order" in str(error)


def test_points_beyond_the_prime(cheated):
    error = cheated(hello(2), Message(0, "points", tensor([9, 2**255 - 10]), b""))
    assert isinstance(error, ProtocolError)
    assert "point 1 of 2 is not below 2^255 - 19" in str(error)


def test_points_of_the_twist(cheated, curve_points):
    points = curve_points(50)
    points[[3, 20, 41]] = tensor([2, 3, 5])
    error = cheated(hello(50), Message(0, "points", points, b""))
    assert isinstance(error, ProtocolError)
    assert "not on the curve" in str(error)


@pytest.mark.parametrize(
    ("promised", "shape", "step"),
    [(5, (6, 32), 0), (5, (4, 32), 0), (5, (5, 31), 0), (5, (5, 32), 1), (5, (160,), 0), (0, (1, 32), 0)],
)
def test_more_or_fewer_points_than_promised(promised, shape, step, cheated):
    error = cheated(hello(promised), Message(step, "points", torch.ones(shape, dtype=torch.uint8), b""))
    assert isinstance(error, ProtocolError)
    assert f"of {promised} rows" in str(error)


def test_points_of_another_dtype(cheated):
    error = cheated(hello(5), Message(0, "points", torch.ones(5, 32), b""))
    assert "points 0 is torch.float32 (5, 32), expected uint8 (5, 32)" in str(error)


def test_more_chunks_than_promised(cheated, curve_points):
    points = curve_points(5)
    error = cheated(hello(5), Message(0, "points", points, b""), Message(1, "points", points, b""))
    assert isinstance(error, ProtocolError)
    assert "sent points 1 after 5 of 5 rows" in str(error)


def test_more_chunks_on_the_way_than_the_window(cheated, curve_points, small_chunks, monkeypatch):
    monkeypatch.setattr(_exchange, "WINDOW", 2)
    chunks = [Message(step, "points", curve_points(7 * (step + 1))[7 * step :], b"") for step in range(30)]
    error = cheated(hello(30 * 7), *chunks)
    assert isinstance(error, ProtocolError)
    assert "at most 2 chunks" in str(error)


def test_more_products_than_points(cheated):
    error = cheated(hello(5), Message(0, "matches", torch.zeros(21, 16, dtype=torch.uint8), b""))
    assert isinstance(error, ProtocolError)
    assert "expected uint8 (20, 16)" in str(error)


def test_something_else_in_the_middle(cheated):
    error = cheated(hello(5), Message(0, "gradient", torch.zeros(2, 2), b""))
    assert "sent gradient 0 in the middle of the alignment" in str(error)


def test_a_refusal_of_the_peer_is_passed_on(cheated):
    for messages in ([], [hello(5)]):
        error = cheated(*messages, control("refusal", 0, {"field": "history", "reason": "asked too often"}))
        assert isinstance(error, RefusedError)
        assert error.field == "history"
        assert "features refused to go on, about 'history': asked too often" in str(error)


def test_a_peer_that_falls_silent(cheated):
    assert isinstance(cheated(patience=0.3), LinkError)
    error = cheated(hello(5), patience=0.5)
    assert isinstance(error, LinkError)
    assert "silent for 0.5 s" in str(error)


def test_a_peer_that_hangs_up(links, party):
    honest, cheat = links()
    cheat.send(hello(5))
    cheat.close()
    with pytest.raises(LinkError):
        party(honest, list(range(20)))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"protocol": "tacit psi 0"}, "protocol"),
        ({"count": -1}, "minimum"),
        ({"count": True}, "count"),
        ({"count": 5.0}, "count"),
        ({"nonce": "ab"}, "nonce"),
        ({"nonce": "AB" * 16}, "nonce"),
        ({"extra": 1}, None),
    ],
)
def test_a_wrong_hello(changed, field, cheated):
    error = cheated(hello(**{"count": 5, **changed}))
    assert isinstance(error, ProtocolError)
    assert getattr(error, "field", None) == field


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[1]", b'{"count":1,"count":1}', b"\xff", b"[" * 100_000])
def test_a_hello_that_is_none(text, cheated):
    payload = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)
    error = cheated(Message(0, "commitment", payload, b""))
    assert isinstance(error, ProtocolError)
    assert "commitment of step 0" in str(error)


def test_a_peer_that_sends_one_point_twice(links, both, party):
    """One party's hashes are not distinct, and it does not mind."""
    one, two = links()
    first, second = both(lambda: party(one, [*range(20), 7]), lambda: party(two, list(range(30))))
    refused = [error for error in (first, second) if isinstance(error, RefusedError)]
    assert {error.field for error in refused} <= {"points", "matches"}
    assert "sent 1 points twice" in str(second) or "returned one product" in str(first)


class Meddling:
    """A link whose owner changes what it sends."""

    def __init__(self, link, change):
        self.link, self.change, self.peer = link, change, link.peer

    def send(self, message):
        self.link.send(self.change(message))

    def recv(self, timeout=None):
        return self.link.recv(timeout)

    def close(self):
        self.link.close()


def test_a_peer_that_returns_other_products_is_found_out(links, both, party):
    def spoil(message):
        if message.kind != "matches":
            return message
        payload = message.payload.clone()
        payload[0] ^= 1
        return Message(message.step, message.kind, payload, b"")

    one, two = links()
    errors = both(lambda: party(one, list(range(30))), lambda: party(Meddling(two, spoil), list(range(30))))
    assert any(isinstance(error, RefusedError) and error.field == "alignment" for error in errors)
    assert all(isinstance(error, (RefusedError, LinkError)) for error in errors)


def test_an_echo_is_no_peer(links, both, party):
    honest, cheat = links()

    def echo():
        while (message := cheat.recv(timeout=PATIENCE)) is not None:
            cheat.send(message)

    error, _ = both(lambda: party(honest, list(range(20))), echo)
    assert isinstance(error, RefusedError)
    assert error.field == "nonce"
