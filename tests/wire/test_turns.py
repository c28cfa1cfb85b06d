"""A link is read by who receives, and by its own thread while nobody does: nothing is lost or swapped between them."""

import random
import socket
import struct
import threading
import time

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire import network_link
from tests.wire.connecting import AIRPORT, SECONDS, bare, join, opened


@pytest.fixture(name="ends")
def _ends(server):
    link = join(server)
    yield link, server.accept(SECONDS)
    link.close()


def small(step):
    return Message(step, "embedding", torch.full((3, 128), float(step)), b"")


def send_without_end(link):
    for step in range(10_000):
        link.send(small(step))


def ahead(link):
    """Wait until the link reads by itself."""
    until = time.monotonic() + SECONDS
    while not link._keeping:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_pauses_of_any_length_lose_nothing(ends):
    left, right = ends
    draw = random.Random(0)
    sizes = [draw.choice((0, 1, 300, 9_000)) for _ in range(120)]

    def send():
        pauses = random.Random(1)
        for step, rows in enumerate(sizes):
            left.send(Message(step, "embedding", torch.full((rows, 128), float(step)), b""))
            time.sleep(pauses.choice((0, 0, 0.001, 0.03)))

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    for step, rows in enumerate(sizes):
        while (found := right.recv(draw.choice((0, 0.0005, 0.01)))) is None:
            time.sleep(draw.choice((0, 0, 0.06, 0.11)))  # less and more than what the link waits for a receiver
        assert (found.step, found.payload.shape) == (step, (rows, 128))
        assert (found.payload == step).all()
    sending.join(SECONDS)
    assert right.recv(0.0) is None


def test_what_was_read_ahead_comes_first_and_no_more_of_it_than_there_is_room_for(ends):
    left, right = ends
    right.room = 3
    ahead(right)
    for step in range(10):
        left.send(small(step))
    until = time.monotonic() + SECONDS
    while len(right._ahead) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(4 * network_link._IDLE_SECONDS)
    assert len(right._ahead) == 3
    assert [right.recv(SECONDS).step for _ in range(10)] == list(range(10))


def test_who_comes_to_receive_gets_the_turn_at_once(ends):
    left, right = ends
    for step in range(3):
        ahead(right)
        began = time.monotonic()
        assert right.recv(0.0) is None
        assert time.monotonic() - began < network_link.BEAT_SECONDS / 2  # and not when it is time for a heartbeat
        left.send(small(step))
        assert right.recv(SECONDS).step == step


def test_what_came_before_the_connection_broke_is_heard(server):
    """Also where it is a send that finds it broken, and nobody has read for a while."""
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        word = b"".join(bytes(part) for pair in network_link.pieces(small(7)) for part in pair)
        assert link.recv(0.0) is None  # so that the link leaves reading to us
        line.sendall(network_link.LENGTH.pack(len(word)) + word)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with pytest.raises(LinkError, match="the link to airport"):  # closed with a reset
        send_without_end(link)
    assert link.recv(0.0).step == 7
    with pytest.raises(LinkError, match="the link to airport"):
        link.recv(0.0)


def test_who_can_not_send_does_not_wait_for_who_receives(server, monkeypatch):
    """Also where somebody begins to receive just as it is found that nothing is taken."""
    monkeypatch.setattr(network_link, "SEND_SECONDS", 0.1)
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        turn = link._take_turn

        def receive():
            with pytest.raises(LinkError):
                link.recv()

        receiving = threading.Thread(target=receive, daemon=True)

        def second(**how):
            link._take_turn = turn
            receiving.start()
            until = time.monotonic() + SECONDS
            while not link._receiving:
                assert time.monotonic() < until
                time.sleep(0.01)
            return turn(**how)

        link._take_turn = second
        with pytest.raises(LinkError, match=r"nothing was taken for 0.1 s"):
            send_without_end(link)
        receiving.join(SECONDS)
        assert not receiving.is_alive()


def test_closing_wakes_who_receives(ends):
    _, right = ends
    found = []

    def receive():
        with pytest.raises(LinkError, match="is closed") as caught:
            right.recv()
        found.append(caught)

    receiving = threading.Thread(target=receive, daemon=True)
    receiving.start()
    time.sleep(0.1)
    right.close()
    receiving.join(SECONDS)
    assert found
    with pytest.raises(LinkError, match="is closed"):
        right.recv(0.0)
    with pytest.raises(LinkError, match="is closed"):
        right.send(small(0))
