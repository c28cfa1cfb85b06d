"""A connection that holds a line without a whole request is ended; one that listens is not."""

import http.client
import socket
import time

import pytest

from tacit.web.patience import PatientProtocol

WAIT = 20


@pytest.fixture(name="hurried")
def _hurried(monkeypatch, tmp_path, serving, make_run):
    monkeypatch.setattr(PatientProtocol, "seconds", 0.2)
    make_run(tmp_path / "a" / "runs" / "b")
    with serving(tmp_path) as client:
        yield client


WHOLE = b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n", WHOLE + b"GET /",
                                  b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab"],
                         ids=["nothing", "a word", "half a head", "a second one", "half a body"])  # fmt: skip
def test_half_a_request_is_ended(hurried, said):
    with socket.create_connection(("127.0.0.1", hurried.server.port), WAIT) as line:
        line.sendall(said)
        answer = b""
        while more := line.recv(4096):  # a timeout here is a line that was held
            answer += more
    assert answer.count(b"HTTP/1.1 401") == (1 if b"\r\n\r\n" in said else 0)


def test_who_listens_or_asks_again_is_not_ended(hurried):
    stream = hurried.listen()
    line = http.client.HTTPConnection("127.0.0.1", hurried.server.port, timeout=WAIT)
    line.connect()
    held = line.sock
    for _ in range(3):
        line.request("GET", "/api/runs")
        assert line.getresponse().read()
        time.sleep(0.3)  # longer than a request may take
    assert line.sock is held
    (hurried.server.shelf.places()[0].path / "live.jsonl").write_text("")
    assert stream.next()[0] == "changed"
    line.close()
    stream.close()
