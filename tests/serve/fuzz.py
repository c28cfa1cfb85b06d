"""Nonsense for the endpoint of a label party that serves: whatever comes, the answer is never a 5xx.

    python -m tests.serve.fuzz PORT [--requests 1000000] [--seed 0]

Requests are right ones that were spoilt: values of other types, fields missing or too many, JSON cut short or with
bytes changed, other methods, paths and headers, and bytes that are no HTTP at all.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
from collections import Counter

__all__ = ["fuzz"]

VALUES = (
    None, True, False, 0, -1, 1.5, 10**30, -(10**18), 1e308, "", "f1", "42", "x" * 2000, "é",
    "e\u0301", "\x00", "\ud800", [], [[]], {}, {"id": 1}, [None] * 3,
)  # fmt: skip
RAW = ("NaN", "-Infinity", "1e999", "9" * 5000, '"\\ud800"', "[" * 5000, "{", '"', "\\", "nul", "\ufeff{}", "")
METHODS = ("POST",) * 50 + ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "BREW")
PATHS = ("/score",) * 50 + ("/", "/score/", "/scores", "/%00", "/score?x=1", "/../metrics", "//")
TYPES = ("application/json",) * 20 + ("application/json; charset=latin-1", "text/plain", "", "multipart/form-data")


def row(draw: random.Random) -> object:
    """A row, as it should be or not."""
    made: dict[str, object] = {"id": draw.choice(("f1", "f2", 7)), "plane": draw.choice((0.5, None, 3))}
    for _ in range(draw.choice((0, 0, 1, 2))):
        made[draw.choice(("id", "plane", "more", "", "\ud800"))] = draw.choice(VALUES)
    if draw.random() < 0.2:
        made.pop(draw.choice(list(made)))
    return made if draw.random() < 0.95 else draw.choice(VALUES)


def body(draw: random.Random) -> bytes:
    """A request's body, as it should be or not."""
    content: object = {"rows": [row(draw) for _ in range(draw.choice((1, 1, 1, 2, 5, 0)))]}
    if draw.random() < 0.1:
        content = {**content, draw.choice(("version", "more")): draw.choice(VALUES)}  # type: ignore[dict-item]
    if draw.random() < 0.05:
        content = draw.choice(VALUES)
    text = json.dumps(content)
    if draw.random() < 0.1:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(RAW) + text[at + draw.randrange(3) :]
    raw = bytearray(text.encode(errors="surrogatepass"))
    for _ in range(draw.choice((0, 0, 0, 1, 3)) if raw else 0):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw[: draw.randrange(len(raw) + 1)] if draw.random() < 0.05 else raw)


def fuzz(port: int, requests: int, seed: int) -> Counter[int]:
    """Send so many; how often which status came, 0 for none. A 5xx is an `AssertionError` with what was sent."""
    draw, found = random.Random(seed), Counter[int]()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(requests):
        if draw.random() < 0.02:
            found[_no_http(port, draw)] += 1
            continue
        method, path, sent = draw.choice(METHODS), draw.choice(PATHS), body(draw)
        headers = {"Content-Type": draw.choice(TYPES)}
        try:
            link.request(method, path, sent, headers)
            answer = link.getresponse()
            answer.read()
            status = answer.status
        except (http.client.HTTPException, OSError):  # it may close the link, and the next request opens another
            link.close()
            status = 0
        assert status < 500, (status, method, path, headers, sent)
        found[status] += 1
    link.close()
    return found


def _no_http(port: int, draw: random.Random) -> int:
    """Bytes that are no HTTP; the status that comes all the same."""
    starts = (b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: ", b"GET / HTTP/9.9\r\n\r\n", b"", b"\x16\x03\x01")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        try:
            raw.sendall(draw.choice(starts) + draw.randbytes(draw.randrange(1, 200)))
            raw.shutdown(socket.SHUT_WR)
            said = raw.recv(1000).split(b" ", 2)
        except OSError:
            return 0
    status = int(said[1]) if len(said) > 1 else 0
    assert status < 500, said
    return status


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.serve.fuzz", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(dict(sorted(fuzz(given.port, given.requests, given.seed).items())))


if __name__ == "__main__":
    main()
