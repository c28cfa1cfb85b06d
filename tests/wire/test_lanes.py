"""Links over several connections: which of them belong together, what goes over each, what is left when one breaks."""

import os
import socket
import threading
import time

import pytest
import torch
from pydantic import ValidationError

from tacit.config.party import Network
from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire import network, network_link
from tacit.wire.codec import FRAME, control, read_control
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS, OTHER, SECONDS, bare, join

COUNT = 3


@pytest.fixture(name="ends")
def _ends(server):
    link = join(server, lanes=COUNT)
    yield link, server.accept(SECONDS)
    link.close()


def small(step):
    return Message(step, "embedding", torch.full((3, 128), float(step)), b"")


def send_some(link, count=2 * COUNT):
    for step in range(count):
        link.send(small(step))


def word(shared, number, count):
    said = network.WELCOME + shared + bytes([number, count])
    return len(said).to_bytes(4, "little") + said


def asking(server, said, identity=AIRPORT):
    """A bare connection that has said this word after the listener's."""
    line = bare(server, identity)
    line.recv(100)
    line.sendall(said)
    return line


def turned_away(line):
    line.settimeout(SECONDS)
    try:
        return line.recv(100) == b""
    except ConnectionResetError:
        return True


# --- what goes over them ---------------------------------------------------------------------------------------------


def test_every_connection_carries_every_third_frame(ends):
    left, right = ends
    assert len(left._lanes) == len(right._lanes) == COUNT
    heard = [[] for _ in range(COUNT)]
    for lane, found in zip(left._lanes, heard, strict=True):
        inner = lane.write_frame
        lane.write_frame = lambda *frame, inner=inner, found=found: (found.append(1), inner(*frame))
    for step in range(3 * COUNT):
        left.send(small(step))
        assert right.recv(SECONDS).step == step
    assert [len(found) for found in heard] == [3] * COUNT


def test_a_sender_waits_for_a_receiver_who_holds_no_more_than_over_one_connection(ends):
    left, right = ends
    sent, payload = [], torch.zeros(FRAME // 512 - 1, 128)

    def send():
        for step in range(90):
            left.send(Message(step, "embedding", payload, b""))
            sent.append(step)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(1.5)
    assert len(sent) < 60
    assert right.room < network_link.ROOM + COUNT
    assert sum(len(lane._ahead) for lane in right._lanes) <= right.room
    assert [right.recv(SECONDS).step for _ in range(90)] == list(range(90))
    sending.join(SECONDS)
    assert not sending.is_alive()


def test_what_comes_is_judged_by_the_limits_of_the_moment(ends):
    left, right = ends
    left.send(Message(0, "figures", torch.zeros(()), b""))
    right.limits = {**LIMITS, "figures": network.Limit(torch.float32, ())}
    assert right.limits["figures"]
    assert right.recv(SECONDS).kind == "figures"


# --- where one of them breaks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", range(COUNT))
def test_where_one_breaks_both_ends_hear_it_and_all_are_over(server, ends, broken):
    left, right = ends
    left.send(small(0))
    assert right.recv(SECONDS).step == 0
    left._lanes[broken].plain.shutdown(socket.SHUT_RDWR)
    for sender, receiver in ((left, right), (right, left)):
        with pytest.raises(LinkError):
            send_some(sender)
        with pytest.raises(LinkError):
            [receiver.recv(SECONDS) for _ in range(2 * COUNT)]
    for link in (left, right):
        for lane in link._lanes:
            assert lane.over.wait(SECONDS)
        assert link.over.is_set()
    again = join(server, lanes=COUNT)
    again.send(small(7))
    assert server.accept(SECONDS).recv(SECONDS).step == 7
    again.close()


def test_last_words_are_heard_by_who_fails_to_send(ends):
    left, right = ends
    for step in range(4):  # they begin at another connection than what fails
        right.send(small(step))
        left.recv(SECONDS)
    right.send(control("hello", 1, {"why": "refused"}))
    right.send(control("hello", 2, {"why": "and gone"}))
    for lane in right._lanes:
        lane.end("gone")
    with pytest.raises(LinkError):
        send_some(left, 1000)
    assert read_control(left.recv(SECONDS)) == {"why": "refused"}
    assert read_control(left.recv(SECONDS)) == {"why": "and gone"}
    with pytest.raises(LinkError):
        left.recv(SECONDS)


def test_what_was_sent_before_the_end_is_heard_after_it(ends):
    left, right = ends
    sent = [Message(step, "embedding", torch.full((step * 3000, 128), float(step)), b"") for step in range(5)]
    closing = threading.Thread(target=lambda: ([left.send(one) for one in sent], left.close()))
    closing.start()
    time.sleep(0.3)
    for one in sent:
        assert torch.equal(right.recv(SECONDS).payload, one.payload)
    with pytest.raises(LinkError, match="closed the link"):
        right.recv(SECONDS)
    began = time.monotonic()
    right.close()
    closing.join(SECONDS)
    assert time.monotonic() - began < network_link.FLUSH_SECONDS


def test_an_interrupt_between_two_frames_ends_all(ends, monkeypatch):
    left, right = ends
    inner, count = network_link.NetworkLink.write_frame, []

    def interrupted(self, *frame):
        count.append(1)
        if len(count) == 2:
            raise KeyboardInterrupt
        inner(self, *frame)

    monkeypatch.setattr(network_link.NetworkLink, "write_frame", interrupted)
    with pytest.raises(KeyboardInterrupt):
        left.send(Message(0, "embedding", torch.zeros(20_000, 128), b""))
    with pytest.raises(LinkError, match="a message was interrupted"):
        left.send(small(1))
    with pytest.raises(LinkError):
        right.recv(SECONDS)


# --- which belong together -------------------------------------------------------------------------------------------


def test_a_link_is_there_when_all_its_connections_are(server):
    shared = os.urandom(16)
    lines = [asking(server, word(shared, number, COUNT)) for number in (2, 0)]
    assert server.accept(0.3) is None
    lines.append(asking(server, word(shared, 1, COUNT)))
    assert len(server.accept(SECONDS)._lanes) == COUNT
    for line in lines:
        assert line.recv(100).endswith(network.WELCOME)
        line.close()


def test_those_of_another_peer_another_count_or_another_link_do_not_count():
    server = network.listen("127.0.0.1:0", AIRLINE, {i.name: i.cert_pem for i in (AIRPORT, OTHER)}, LIMITS)
    shared = os.urandom(16)
    others = [
        asking(server, word(shared, 1, 2), OTHER),
        asking(server, word(os.urandom(16), 1, 2)),
        asking(server, word(shared, 1, 3)),
        asking(server, word(shared, 0, 2)),
        asking(server, word(shared, 0, 2)),  # twice the same is none the more
    ]
    assert server.accept(0.5) is None
    last = asking(server, word(shared, 1, 2))
    link = server.accept(SECONDS)
    assert (link.peer, len(link._lanes)) == ("airport", 2)
    assert server.accept(0.2) is None
    for line in (*others, last):
        line.close()
    server.close()


@pytest.mark.parametrize(
    "said",
    [
        word(bytes(16), 2, 2),
        word(bytes(16), 0, 0),
        word(bytes(16), 0, network.LANES + 1),
        word(bytes(16), 0, 2)[:-1],
        word(bytes(16), 0, 2)[:10],
        b"GET / HTTP/1.1\r\n\r\n",
        b"x",
    ],
    ids=["beyond", "none", "too many", "cut", "short", "18 bytes", "one byte"],
)
def test_words_that_name_no_place_are_turned_away(server, said):
    with asking(server, said) as line:
        assert turned_away(line)
    assert server.accept(0.1) is None
    join(server, lanes=2).close()


def test_who_speaks_before_the_others_are_there_is_turned_away(server):
    with asking(server, word(bytes(16), 0, 2)) as line:
        line.sendall(word(bytes(16), 1, 2))
        assert turned_away(line)
    assert server.accept(0.1) is None


def test_who_waits_for_others_that_do_not_come_goes(monkeypatch):
    monkeypatch.setattr(network, "HANDSHAKE_SECONDS", 0.4)
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    with asking(server, word(bytes(16), 0, 2)) as line:
        assert turned_away(line)
    assert not server._lanes
    server.close()


def test_a_peer_has_a_few_links_of_several_connections_and_no_more(server):
    made = [join(server, lanes=COUNT) for _ in range(network.STREAMS)]
    with pytest.raises(LinkError, match="takes no link from us: airport has 4 links already"):
        join(server, lanes=COUNT)
    with pytest.raises(LinkError, match="airport has 4 links already"):
        join(server)
    made[0].close()
    until = time.monotonic() + SECONDS
    while len(server._links) > COUNT * (network.STREAMS - 1) and time.monotonic() < until:
        time.sleep(0.01)
    join(server, lanes=COUNT).close()
    for link in made:
        link.close()


def test_where_nobody_listens_nothing_is_left():
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    server.close()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LinkError, match="nothing listens"):
        join(server, lanes=COUNT)
    until = time.monotonic() + SECONDS
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:  # the first failure is not waited for
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_party_may_ask_for_as_many_as_there_may_be():
    assert Network(lanes=network.LANES).lanes == network.LANES
    with pytest.raises(ValidationError, match="lanes"):
        Network(lanes=network.LANES + 1)
