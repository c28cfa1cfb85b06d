"""Whether the other end of a link is still there: killed, silent, busy, or talking without end."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire import network_link
from tacit.wire.codec import FRAME, control
from tests.wire.connecting import AIRLINE, AIRPORT, SECONDS, bare, join, opened


@pytest.fixture(name="ends")
def _ends(server):
    link = join(server)
    yield link, server.accept(SECONDS)
    link.close()


CHILD = """
import sys, torch
from tacit.wire import network
from tacit.wire.certificates import Identity
from tacit.wire.codec import CONTROL

key, cert, pinned, address = sys.argv[1:]
identity = Identity("airport", key.encode(), cert.encode())
link = network.connect(address, identity, "airline", pinned.encode(), {"hello": CONTROL})
print("connected", flush=True)
link.recv()
"""


@pytest.fixture(name="child")
def _child(server):
    with running(server) as child:
        yield child


@contextmanager
def running(server):
    arguments = [AIRPORT.key_pem.decode(), AIRPORT.cert_pem.decode(), AIRLINE.cert_pem.decode(), server.address]
    child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"connected\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_killed_peer_is_noticed_at_once(server, child):
    link = server.accept(SECONDS)
    assert link.recv(0.05) is None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(LinkError, match=r"the link to airport broke|airport closed the link, or was stopped"):
        link.recv(SECONDS)
    with pytest.raises(LinkError):
        link.send(control("hello", 0, {}))
    link.close()


def test_a_silent_peer_is_noticed(server, child, monkeypatch):
    monkeypatch.setattr(network_link, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(network_link, "SILENCE_SECONDS", 1.0)
    link = server.accept(SECONDS)
    os.kill(child.pid, signal.SIGSTOP)  # the machine still acknowledges bytes, the process says nothing
    with pytest.raises(LinkError, match="nothing came for 1 s"):
        link.recv(SECONDS)


def test_a_silent_peer_is_noticed_also_by_who_only_looks_now_and_then(server, monkeypatch):
    monkeypatch.setattr(network_link, "BEAT_SECONDS", 0.5)
    monkeypatch.setattr(network_link, "SILENCE_SECONDS", 1.0)
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        until = time.monotonic() + SECONDS
        while not link.over.is_set():
            with suppress(LinkError):
                assert link.recv(0.0) is None
            assert time.monotonic() < until
            time.sleep(0.2)
        with pytest.raises(LinkError, match="nothing came for 1 s"):
            link.recv(0.0)


def test_heartbeats_keep_a_link_whose_ends_say_nothing_or_take_nothing(ends, monkeypatch):
    left, right = ends
    payload, many = torch.zeros(FRAME // 512 - 1, 128), network_link.ROOM + 2
    sending = threading.Thread(target=lambda: [left.send(Message(k, "embedding", payload, b"")) for k in range(many)])
    sending.start()  # more than the other end has room for: its thread waits for somebody who takes it
    monkeypatch.setattr(network_link, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(network_link, "SILENCE_SECONDS", 1.0)
    assert left.recv(2.5) is None, "nothing came, and it is not broken"
    assert [right.recv(SECONDS).step for _ in range(many)] == list(range(many))
    sending.join(SECONDS)
    assert right.recv(2.5) is None


def test_links_live_while_one_side_speaks_alone_or_both_are_silent(monkeypatch, ends):
    """Three heartbeats in the time that a peer may be silent, as it really is; both sides' readers are at any phase."""
    monkeypatch.setattr(network_link, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(network_link, "SILENCE_SECONDS", 0.6)
    left, right = ends
    until = time.monotonic() + 3
    while time.monotonic() < until:
        left.send(control("hello", 0, {}))
        assert right.recv(SECONDS) is not None
        time.sleep(0.02)
    assert left.recv(3) is None
    left.send(control("hello", 1, {}))
    assert right.recv(SECONDS).step == 1


def test_heartbeats_without_end_do_not_hold_a_link_open(server):
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        over = threading.Event()

        def flood():
            with suppress(OSError):
                while not over.is_set():
                    line.sendall(bytes(4096))

        flooding = threading.Thread(target=flood)
        flooding.start()
        link.close()
        assert link.over.is_set()
        over.set()
        flooding.join(SECONDS)
