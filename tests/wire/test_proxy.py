"""Links through an HTTP proxy that the environment names."""

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from tacit.errors import LinkError
from tacit.wire.codec import control, read_control
from tests.wire.connecting import SECONDS, join


@contextmanager
def proxy(answer):
    """An HTTP proxy that answers CONNECT so, and passes bytes on where that is 200; what it was asked."""
    asked, listener = [], socket.create_server(("127.0.0.1", 0))

    def pump(here, there):
        with suppress(OSError):
            while piece := here.recv(65536):
                there.sendall(piece)
            there.shutdown(socket.SHUT_WR)

    def serve():
        with suppress(OSError):
            while True:
                taken, _ = listener.accept()
                head = b""
                while b"\r\n\r\n" not in head:
                    head += taken.recv(1000)
                asked.append(head.decode())
                taken.sendall(f"HTTP/1.1 {answer}\r\nVia: somebody\r\n\r\n".encode())
                if not answer.startswith("200"):
                    taken.close()
                    continue
                host, port = head.split()[1].decode().split(":")
                there = socket.create_connection((host, int(port)))
                ways = [threading.Thread(target=pump, args=way) for way in ((taken, there), (there, taken))]
                for way in ways:
                    way.start()
                for way in ways:
                    way.join(SECONDS)
                taken.close()
                there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(SECONDS)


def test_a_proxy_that_the_environment_names_is_asked_for_a_tunnel(server, monkeypatch):
    with proxy("200 Connection established") as (port, asked):
        monkeypatch.setenv("https_proxy", f"http://me:se%3Acret@127.0.0.1:{port}")
        link = join(server)
        other = server.accept(SECONDS)
        other.send(control("hello", 0, {"through": "a proxy"}))
        assert read_control(link.recv(SECONDS)) == {"through": "a proxy"}
        link.close()
    assert len(asked) == 1
    assert asked[0].startswith(f"CONNECT {server.address} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6c2U6Y3JldA==\r\n" in asked[0]


def test_a_proxy_is_gone_around_or_says_no(server, monkeypatch):
    with proxy("403 Forbidden") as (port, asked):
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{port}")
        with pytest.raises(LinkError, match=r"airline at .*, through the proxy 127.0.0.1, is refused with .*403"):
            join(server)
        assert len(asked) == 1
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        join(server).close()
        assert len(asked) == 1
