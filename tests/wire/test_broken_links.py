"""Links in bad company: last words, cuts, words that ask for nothing, systems without files or threads."""

import os
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
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS, SECONDS, bare, join


def small(step):
    return Message(step, "embedding", torch.full((3, 128), float(step)), b"")


def asking(server, said):
    """A bare connection that has said this after the listener's word."""
    line = bare(server, AIRPORT)
    line.recv(100)
    line.sendall(said)
    return line


def word(said=network.WELCOME):
    return len(said).to_bytes(4, "little") + said


def turned_away(line):
    line.settimeout(SECONDS)
    try:
        return line.recv(100) == b""
    except ConnectionResetError:
        return True


# --- what was sent before close is lost ------------------------------------------------------------------------------


def narrowed(*links):
    """Let little wait at who receives, and the rest at who sends."""
    for link in links:
        link.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        link.plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def middle(step):
    return Message(step, "embedding", torch.full((120, 128), float(step)), b"")


def test_what_was_sent_is_heard_where_another_thread_receives_while_we_close(server):
    left = join(server)
    right = server.accept(SECONDS)
    narrowed(left, right)
    right.room, count = 1, 5

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
    right._sent = -1e9  # what its keeper does every few seconds: it says that it is there
    time.sleep(0.5)
    try:
        assert [right.recv(SECONDS).step for _ in range(count)] == list(range(count))
        with pytest.raises(LinkError, match="closed the link"):
            right.recv(SECONDS)
    finally:
        right.close()
        leaving.join(SECONDS)


def test_what_was_sent_is_heard_where_we_close_while_another_thread_sends(server):
    left = join(server)
    right = server.accept(SECONDS)
    narrowed(left, right)
    right.room, sent = 1, []

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
    right._sent = -1e9
    time.sleep(0.5)
    heard = []
    with pytest.raises(LinkError):
        heard.extend(step for step in iter(lambda: right.recv(SECONDS).step, -1))
    right.close()
    leaving.join(SECONDS)
    assert heard == sent


def test_last_words_after_more_than_is_read_at_once_are_heard_by_who_fails_to_send(server, monkeypatch):
    monkeypatch.setattr(network_link, "_AT_ONCE", 4096)
    left = join(server)
    right = server.accept(SECONDS)
    left.room = 0  # nobody reads ahead
    right.send(middle(0))
    right.send(control("hello", 1, {"why": "refused"}))
    time.sleep(0.3)
    left.room = network_link.ROOM
    right.end("gone")
    with pytest.raises(LinkError):
        [left.send(small(step)) for step in range(1000)]
    assert left.recv(SECONDS).step == 0
    assert read_control(left.recv(SECONDS)) == {"why": "refused"}
    left.close()


# --- a connection is cut --------------------------------------------------------------------------------------------


def test_who_waits_hears_that_the_connection_was_cut(server):
    left = join(server)
    right = server.accept(SECONDS)
    left.plain.shutdown(socket.SHUT_RDWR)
    with pytest.raises(LinkError):
        left.recv(3.0)
    with pytest.raises(LinkError):
        right.recv(3.0)
    left.close()


def test_a_link_that_breaks_before_anybody_accepts_it_ends(server):
    left = join(server)
    until = time.monotonic() + 5.0
    while not server._links and time.monotonic() < until:
        time.sleep(0.01)
    left.plain.shutdown(socket.SHUT_RDWR)
    while server._links and time.monotonic() < until:
        time.sleep(0.05)
    try:
        assert server.accept(0.1) is None
        assert not server._links  # else: threads, files and memory of a link that nobody holds, while the peer likes
    finally:
        left.close()


# --- where the system has no more threads or files -------------------------------------------------------------------


def test_where_there_is_no_thread_for_a_connection_others_still_come(server, monkeypatch):
    inner, started = threading.Thread.start, []

    def start(self):
        if self.name.startswith("tacit-from-"):
            started.append(self)
            raise RuntimeError("can't start new thread")
        inner(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        line = asking(server, word())
        until = time.monotonic() + SECONDS
        while not started and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.3)
    line.close()
    try:
        assert started
        assert server._door.is_alive()
        join(server).close()
    finally:
        if not server._door.is_alive():
            server._listener.close()


def test_where_there_is_no_file_for_a_connection_nothing_is_left(monkeypatch):
    monkeypatch.setattr(network, "HANDSHAKE_SECONDS", 2.0)
    asked = []

    def pipe():
        asked.append(1)
        raise OSError(24, "Too many open files")

    with closing(network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)) as server:
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, "pipe", pipe)
        line = asking(server, word())
        until = time.monotonic() + SECONDS
        while not asked and time.monotonic() < until:
            time.sleep(0.01)
        line.close()
        while server._strangers and time.monotonic() < until:
            time.sleep(0.01)
        while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:  # what began ends
            time.sleep(0.01)
        assert asked
        assert len(os.listdir("/proc/self/fd")) <= before


# --- what is no beginning of a link ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [word()[:-1], word()[:10], word() + b"x", word(network.WELCOME + bytes(18)), b"GET / HTTP/1.1\r\n\r\n", b"x"],
    ids=["cut", "short", "more behind it", "a longer word", "18 bytes", "one byte"],
)
def test_words_that_ask_for_no_link_are_turned_away(server, said):
    with asking(server, said) as line:
        assert turned_away(line)
    assert server.accept(0.1) is None
    join(server).close()


def test_who_shows_a_certificate_and_says_nothing_goes(monkeypatch):
    monkeypatch.setattr(network, "HANDSHAKE_SECONDS", 0.4)
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    with asking(server, b"") as line:
        assert turned_away(line)
    assert not server._known
    server.close()


def test_where_nobody_listens_nothing_is_left():
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    server.close()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LinkError, match="nothing listens"):
        join(server)
    assert len(os.listdir("/proc/self/fd")) <= before


_CONNECTING = """
import signal, sys
from tacit.wire import network
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS
signal.signal(signal.SIGINT, signal.default_int_handler)
print("here", flush=True)
network.connect(sys.argv[1], AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, 60.0)
"""


def test_who_is_interrupted_while_it_connects_ends():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", _CONNECTING, address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.7)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(30.0)
        process.stdout.close()
        assert time.monotonic() - began < 30.0, "it does not wait for the peer, whose patience is a minute"


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


def test_links_of_a_hostile_peer_and_strangers_leave_files_for_another_peer():
    """A link takes three files: its connection, and a pipe's."""
    command = [sys.executable, "-c", _FEW_FILES]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    held = []
    try:
        address = process.stdout.readline().decode().strip()
        read = [[bytes.fromhex(one.decode()) for one in process.stdout.readline().split()] for _ in range(3)]
        names = ("airline", "airport", "other")
        airline, airport, other = (Identity(name, key, cert) for name, (key, cert) in zip(names, read, strict=True))
        asked = (airline.name, airline.cert_pem, LIMITS)
        held += [network.connect(address, airport, *asked) for _ in range(network.STREAMS)]
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
