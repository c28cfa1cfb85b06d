"""What a stranger, or a pinned peer that runs something else, can make the other side do: little, and not for long."""

import shutil
import socket
import ssl
import subprocess
import time

import pytest
import torch

from tacit.errors import LinkError
from tacit.wire import network
from tacit.wire.codec import CONTROL, HEADER, AtMost, Limit
from tacit.wire.opening import OPENING
from tests.wire.connecting import AIRLINE, AIRPORT, SECONDS, bare, join, opened


def test_a_stranger_does_not_choose_an_exchange_that_costs_more(server):
    """The finite fields that a TLS library offers by default take 23 ms of the door's one thread each."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = server.address.split(":")
    context.set_ecdh_curve("secp521r1")
    with (
        socket.create_connection((host, int(port)), SECONDS) as plain,
        pytest.raises(OSError, match=r"(?i)alert|reset"),
    ):
        context.wrap_socket(plain)
    context.set_ecdh_curve("X25519")
    with socket.create_connection((host, int(port)), SECONDS) as plain, context.wrap_socket(plain) as line:
        assert line.version() == "TLSv1.3"


def test_a_hello_that_is_never_whole_is_not_kept(server):
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as line:
        sent = 0
        hello = b"\x01" + (1 << 17).to_bytes(3, "big")  # a handshake message that is announced as a long one
        piece = b"\x16\x03\x01" + (4096).to_bytes(2, "big")
        try:
            while sent < 1 << 20:
                sent += line.send(piece + hello.ljust(4096, b"x"))
                hello = b""
                time.sleep(0.02)
        except OSError:
            pass
        assert sent <= 4 * OPENING, "the connection was closed long before the time was up"
    join(server).close()


def test_a_frame_is_no_longer_than_the_largest_message_that_was_agreed_on():
    limits = {"hello": CONTROL, "embedding": Limit(torch.float32, (1024, 128))}
    most = HEADER + 4 * 1024 * 128
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, limits)
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        line.sendall((most + 1).to_bytes(4, "little"))
        with pytest.raises(LinkError, match=f"a frame of {most + 1} bytes was announced, and {most} are the most"):
            link.recv(SECONDS)
    server.close()


def test_the_largest_message_that_fits_is_known():
    assert Limit(torch.float64, (AtMost(3), 5)).size == 8 * 15
    assert Limit(torch.uint8, ()).size == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to ask for new keys with")
def test_a_peer_that_asks_for_new_keys_again_and_again_is_let_go(server, tmp_path):
    """Each answer waits until we say something: nobody may make us keep them."""
    (tmp_path / "key").write_bytes(AIRPORT.key_pem)
    (tmp_path / "crt").write_bytes(AIRPORT.cert_pem)
    words = ["openssl", "s_client", "-connect", server.address, "-key", tmp_path / "key", "-cert", tmp_path / "crt"]
    client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1.0)
        client.stdin.write(len(network.WELCOME).to_bytes(4, "little") + network.WELCOME)
        client.stdin.flush()
        link, asked = server.accept(SECONDS), []

        def ask():
            while len(asked) < 2000:
                asked.append(client.stdin.write(b"K\n"))
                client.stdin.flush()
                assert link.recv(0.002) is None

        with pytest.raises(LinkError, match="it asks for new keys again and again"):
            ask()
        assert len(asked) > 20
    finally:
        client.kill()
        client.communicate()
