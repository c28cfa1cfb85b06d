"""Links over several connections in bad company: last words, cuts of one of them, systems without files or threads."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire import network, network_link
from tacit.wire.certificates import Identity
from tacit.wire.codec import control, read_control
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS, SECONDS, join
from tests.wire.test_lanes import asking, send_some, word

COUNT = 3


class Relay:
    """Between the two sides: carries each connection, and can hold what one of them carries towards who connects."""

    def __init__(self, server):
        host, port = server.address.split(":")
        self._target = host, int(port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.pairs, self._over = [], False
        self.held = set()  # numbers, in the order in which they came
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        while True:
            try:
                inner, _ = self._door.accept()
            except OSError:
                return
            outer = socket.create_connection(self._target)
            self.pairs.append((inner, outer))
            threading.Thread(target=self._carry, args=(len(self.pairs) - 1, inner, outer), daemon=True).start()

    def _carry(self, number, inner, outer):
        open_ways = {inner: outer, outer: inner}
        while open_ways and not self._over:
            ways = [one for one in open_ways if not (one is outer and number in self.held)]
            for one in select.select(ways, [], [], 0.02)[0]:
                try:
                    said = one.recv(1 << 16)
                    if said:
                        open_ways[one].sendall(said)
                    else:
                        open_ways.pop(one).shutdown(socket.SHUT_WR)
                except OSError:
                    open_ways.clear()
        inner.close()
        outer.close()

    def close(self):
        self._over = True
        self._door.close()


# --- what was sent before close is lost ------------------------------------------------------------------------------


def narrowed(lanes):
    """Let little wait at who receives, and the rest at who sends."""
    for lane in lanes:
        lane.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        lane.plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def middle(step):
    return Message(step, "embedding", torch.full((120, 128), float(step)), b"")


def each(link):
    return getattr(link, "_lanes", (link,))


@pytest.mark.parametrize("lanes", [1, COUNT])
def test_what_was_sent_is_heard_where_another_thread_receives_while_we_close(server, lanes):
    left = join(server, lanes=lanes)
    right = server.accept(SECONDS)
    narrowed((*each(left), *each(right)))
    right.room, count = lanes, 5 * lanes

    def receive():
        with pytest.raises(LinkError):
            left.recv()

    receiving = threading.Thread(target=receive)
    receiving.start()
    for step in range(count):
        left.send(middle(step))
    leaving = threading.Thread(target=left.close)
    leaving.start()
    receiving.join(SECONDS)
    for lane in each(right):  # what each keeper does every few seconds: it says that it is there
        lane._sent = -1e9
    time.sleep(0.5)
    try:
        assert [right.recv(SECONDS).step for _ in range(count)] == list(range(count))
        with pytest.raises(LinkError, match="closed the link"):
            right.recv(SECONDS)
    finally:
        right.close()
        leaving.join(SECONDS)


@pytest.mark.parametrize("lanes", [1, COUNT])
def test_what_was_sent_is_heard_where_we_close_while_another_thread_sends(server, lanes):
    left = join(server, lanes=lanes)
    right = server.accept(SECONDS)
    narrowed((*each(left), *each(right)))
    right.room, sent = lanes, []

    def send():
        with pytest.raises(LinkError):
            sent.extend(step for step in range(1000) if left.send(middle(step)) is None)

    sending = threading.Thread(target=send)
    sending.start()
    count = -1
    while len(sent) > count:  # until nothing more is taken
        count = len(sent)
        time.sleep(0.5)
    leaving = threading.Thread(target=left.close)
    leaving.start()
    sending.join(SECONDS)
    for lane in each(right):
        lane._sent = -1e9
    time.sleep(0.5)
    heard = []
    with pytest.raises(LinkError):
        heard.extend(step for step in iter(lambda: right.recv(SECONDS).step, -1))
    right.close()
    leaving.join(SECONDS)
    assert heard == sent


def test_last_words_on_a_slow_connection_are_heard_by_who_fails_to_send_on_another(server):
    relay = Relay(server)
    left = join(server, address=relay.address, lanes=COUNT)
    right = server.accept(SECONDS)
    came = [pair[0].getpeername() for pair in relay.pairs]
    relay.held = {came.index(left._lanes[0].plain.getsockname())}
    time.sleep(0.2)
    right.send(control("hello", 1, {"why": "refused"}))
    leaving = threading.Thread(target=right.close)
    leaving.start()
    assert left._lanes[1].over.wait(SECONDS)  # that the other side has closed it comes here first
    with pytest.raises(LinkError):
        send_some(left, 2)
    relay.held = set()
    time.sleep(0.3)
    try:
        assert read_control(left.recv(SECONDS)) == {"why": "refused"}
    finally:
        left.close()
        leaving.join(SECONDS)
        relay.close()


@pytest.mark.parametrize("lanes", [1, COUNT])
def test_last_words_after_more_than_is_read_at_once_are_heard_by_who_fails_to_send(server, monkeypatch, lanes):
    monkeypatch.setattr(network_link, "_AT_ONCE", 4096)
    left = join(server, lanes=lanes)
    right = server.accept(SECONDS)
    for lane in each(left):
        lane.room = 0  # nobody reads ahead
    right.send(middle(0))
    right.send(control("hello", 1, {"why": "refused"}))
    time.sleep(0.3)
    left.room = network_link.ROOM
    for lane in each(right):
        lane.end("gone")
    with pytest.raises(LinkError):
        send_some(left, 1000)
    assert left.recv(SECONDS).step == 0
    assert read_control(left.recv(SECONDS)) == {"why": "refused"}
    left.close()


# --- one connection is cut, and nobody hears of it -------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, COUNT])
def test_who_waits_hears_that_a_connection_was_cut_though_nothing_is_due_on_it(server, lanes):
    left = join(server, lanes=lanes)
    right = server.accept(SECONDS)
    each(left)[-1].plain.shutdown(socket.SHUT_RDWR)
    with pytest.raises(LinkError):
        left.recv(3.0)
    with pytest.raises(LinkError):
        right.recv(3.0)
    left.close()


def test_a_link_that_breaks_before_anybody_accepts_it_ends(server):
    left = join(server, lanes=COUNT)
    until = time.monotonic() + 5.0
    while not server._links and time.monotonic() < until:
        time.sleep(0.01)
    left._lanes[-1].plain.shutdown(socket.SHUT_RDWR)
    while server._links and time.monotonic() < until:
        time.sleep(0.05)
    try:
        assert server.accept(0.1) is None
        assert not server._links  # else: threads, files and memory of a link that nobody holds, while the peer likes
    finally:
        left.close()


# --- where the system has no more threads or files -------------------------------------------------------------------


def asked_in_turn(server, numbers):
    shared, lines = os.urandom(16), []
    for number in numbers:
        lines.append(asking(server, word(shared, number, COUNT)))
        until = time.monotonic() + SECONDS
        while len(server._lanes) < len(lines) < COUNT and time.monotonic() < until:
            time.sleep(0.01)
    return lines


def test_where_there_is_no_thread_for_a_connection_others_still_come(server, monkeypatch):
    inner, started = network_link.NetworkLink.start, []

    def start(self):
        started.append(self)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        inner(self)

    monkeypatch.setattr(network_link.NetworkLink, "start", start)
    lines = asked_in_turn(server, (1, 2, 0))
    until = time.monotonic() + SECONDS
    while len(started) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)
    monkeypatch.undo()
    for line in lines:
        line.close()
    try:
        assert server._door.is_alive()
        join(server, lanes=2).close()
    finally:
        if not server._door.is_alive():
            server._listener.close()


def test_where_there_is_no_file_for_a_connection_nothing_is_left(monkeypatch):
    monkeypatch.setattr(network, "HANDSHAKE_SECONDS", 2.0)
    inner, asked = os.pipe, []

    def pipe():
        asked.append(1)
        if len(asked) == COUNT:
            raise OSError(24, "Too many open files")
        return inner()

    with closing(network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)) as server:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pipe", pipe)
        lines = asked_in_turn(server, range(COUNT))
        until = time.monotonic() + SECONDS
        while len(asked) < COUNT and time.monotonic() < until:
            time.sleep(0.01)
        for line in lines:
            line.close()
        while server._strangers and time.monotonic() < until:
            time.sleep(0.01)
        while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:  # those that began end
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) <= before


# --- connections that can't all be made ------------------------------------------------------------------------------


def test_where_one_connection_is_not_taken_nobody_waits_for_the_others(server, monkeypatch):
    """A proxy or firewall that lets two connections of one address through."""
    relay = Relay(server)
    inner = relay._carry

    def carry(number, one, other):
        if number >= 2:
            time.sleep(0.2)
            one.close()
            other.close()
        else:
            inner(number, one, other)

    relay._carry = carry
    began = time.monotonic()
    with pytest.raises(LinkError) as failed:
        network.connect(relay.address, AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, 6.0, COUNT)
    relay.close()
    assert time.monotonic() - began < 3.0
    assert "did not answer" not in str(failed.value)  # it has: what failed is that one was cut


_CONNECTING = """
import signal, sys
from tacit.wire import network
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS
signal.signal(signal.SIGINT, signal.default_int_handler)
print("here", flush=True)
network.connect(sys.argv[1], AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, 6.0, int(sys.argv[2]))
"""


@pytest.mark.parametrize("lanes", [1, COUNT])
def test_who_is_interrupted_while_it_connects_ends(lanes):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", _CONNECTING, address, str(lanes)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.7)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)
        process.stdout.close()
        assert time.monotonic() - began < 3.0


# --- how many links a peer has ---------------------------------------------------------------------------------------


def test_a_peer_has_no_more_links_where_each_has_more_connections_than_the_last(server):
    made = []
    try:
        with pytest.raises(LinkError, match="4 links already"):
            made.extend(join(server, lanes=lanes) for lanes in (1, 1, 1, 1, 2, 2, 3, 4, 5, 7, 9, 12, 16))
        assert len(made) == network.STREAMS
    finally:
        for link in made:
            link.close(0.0)


def test_a_peer_with_one_link_of_many_connections_has_one_link(server):
    first = join(server, lanes=8)
    second = join(server)
    assert {server.accept(SECONDS).connections, server.accept(SECONDS).connections} == {8, 1}
    for link in (first, second):
        link.close()


_FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tacit.wire import network
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS, OTHER
server = network.listen("127.0.0.1:0", AIRLINE, {one.name: one.cert_pem for one in (AIRPORT, OTHER)}, LIMITS)
print(server.address)
for one in (AIRLINE, AIRPORT, OTHER):
    print(one.key_pem.hex(), one.cert_pem.hex())
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.parametrize("lanes", [1, network.LANES])
def test_connections_of_a_hostile_peer_and_of_strangers_leave_files_for_another_peer(lanes):
    """A connection of a link takes three files: its own, and a pipe's."""
    command = [sys.executable, "-c", _FEW_FILES]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    held = []
    try:
        address = process.stdout.readline().decode().strip()
        read = [[bytes.fromhex(one.decode()) for one in process.stdout.readline().split()] for _ in range(3)]
        names = ("airline", "airport", "other")
        airline, airport, other = (Identity(name, key, cert) for name, (key, cert) in zip(names, read, strict=True))
        asked = (airline.name, airline.cert_pem, LIMITS)
        held += [network.connect(address, airport, *asked, lanes=lanes) for _ in range(network.STREAMS)]
        host, port = address.split(":")
        held += [socket.create_connection((host, int(port)), SECONDS) for _ in range(150)]
        time.sleep(0.5)
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 250  # the process needs some for its own
        network.connect(address, other, *asked, timeout=4.0).close()
    finally:
        for one in held:
            one.close()
        process.stdin.close()
        process.kill()
        process.wait(SECONDS)
        process.stdout.close()
