"""Connections of strangers who say nothing: the label party keeps its files, and the partner comes in between them."""

import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tacit.wire import certificates, network
from tacit.wire.codec import CONTROL
from tests.torture.intruder import Flood

LIMITS = {"hello": CONTROL}
AIRLINE, AIRPORT = (certificates.create(name) for name in ("airline", "airport"))
MANY, USUAL = 1200, 1024  # connections, and files that a process may have open on most machines
SECONDS = 20  # the most that anything here may take
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # -1 where there is none
few = pytest.mark.skipif(0 <= HARD < 4 * MANY, reason="the system allows too few open files for a flood")

CHILD = """
import resource, sys
from tacit.wire import network
from tacit.wire.certificates import Identity
from tacit.wire.codec import CONTROL

key, cert, pinned, soft, hard = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
identity = Identity("airline", key.encode(), cert.encode())
server = network.listen("127.0.0.1:0", identity, {"airport": pinned.encode()}, {"hello": CONTROL})
print(server.address.rpartition(":")[2], flush=True)
for line in sys.stdin:
    open("/dev/null").close()  # as a party does for its status, its journal, its checkpoints
    print("fine", flush=True)
"""


@contextmanager
def listening(*, hard):
    """A process that listens; its port, its number, and whether it can still open a file."""
    words = [AIRLINE.key_pem.decode(), AIRLINE.cert_pem.decode(), AIRPORT.cert_pem.decode()]
    command = [sys.executable, "-c", CHILD, *words, str(USUAL), str(hard)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            port = int(child.stdout.readline())

            def fine():
                child.stdin.write("\n")
                child.stdin.flush()
                return child.stdout.readline() == "fine\n"

            yield port, child.pid, fine
        finally:
            child.kill()


def join(port):
    return network.connect(f"127.0.0.1:{port}", AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, SECONDS)


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_for(what, found):
    until = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < until, what
        time.sleep(0.02)


@few
def test_the_partner_comes_in_while_the_flood_stands():
    with listening(hard=HARD) as (port, pid, fine), Flood(port, MANY) as flood:
        wait_for("the flood", lambda: flood.stands and open_files(pid) > MANY)
        assert fine()
        for _ in range(3):
            join(port).close()
        assert flood.stands
        assert open_files(pid) > MANY
        assert fine()


@few
def test_where_files_are_few_strangers_get_half_of_them_and_a_link_that_there_is_stays():
    with listening(hard=USUAL) as (port, pid, fine):
        link = join(port)
        with Flood(port, MANY) as flood:
            wait_for("a flood that was renewed twice", lambda: flood.made > 3 * MANY)
            assert open_files(pid) < USUAL // 2 + 40
            assert fine()
            assert link.recv(0.1) is None, "nothing came, and it is not broken"
        link.close()
        wait_for("the end of the last of them", lambda: open_files(pid) < 40)
        join(port).close()


def test_a_connection_without_a_handshake_does_not_stay(monkeypatch):
    monkeypatch.setattr(network, "HANDSHAKE_SECONDS", 1.0)
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as silent:
        link = network.connect(server.address, AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, SECONDS)
        assert not silent.recv(1), "the server hung up"
    assert link.recv(2.5) is None, "a link that is silent is no such connection"
    link.close()
    server.close()


def test_a_limit_of_files_is_raised_and_never_lowered():
    script = (
        "import resource as r; from tacit.wire.network import allow_files as allow\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (100, 300))\n"
        "print(allow(200), r.getrlimit(r.RLIMIT_NOFILE), allow(50), allow(900), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "200 (200, 300) 200 300 (300, 300)\n"
