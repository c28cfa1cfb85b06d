"""Two ends of a link in one process, and two parties that talk over them, each in its own thread."""

import functools
import hashlib
import queue
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from tacit.align import _exchange, psi
from tacit.align.curve import Engine
from tacit.align.psi import intersect
from tacit.errors import LinkError
from tests.at_once import at_once

ROOM = 3  # messages that wait: few, so that two parties that only send would stop each other
TIMEOUT = 30.0
PATIENCE = 20.0


class QueueLink:
    """A link with little room, and a copy of all that was sent."""

    def __init__(self, peer, outgoing, incoming, closed):
        self.peer = peer
        self.sent = []
        self._outgoing, self._incoming, self._closed = outgoing, incoming, closed

    def send(self, message):
        while not self._closed.is_set():
            try:
                self._outgoing.put(message, timeout=0.05)
            except queue.Full:
                continue
            self.sent.append(message)
            return
        raise LinkError("closed")

    def recv(self, timeout=None):
        end = time.monotonic() + min(TIMEOUT, TIMEOUT if timeout is None else timeout)
        while True:
            try:
                return self._incoming.get(timeout=max(0.0, min(0.02, end - time.monotonic())))
            except queue.Empty:
                if self._closed.is_set():
                    raise LinkError(f"the link to {self.peer} is closed") from None
                if time.monotonic() >= end:
                    return None

    def close(self):
        self._closed.set()


def make_links(one="label", two="features"):
    there, back, closed = queue.Queue(ROOM), queue.Queue(ROOM), threading.Event()
    return QueueLink(two, there, back, closed), QueueLink(one, back, there, closed)


def run_both(*calls):
    """The results of calls that run at the same time, or the errors they raised."""
    return at_once(*calls, patience=2 * TIMEOUT)


@pytest.fixture(name="links")
def _links():
    return make_links


@pytest.fixture(name="both")
def _both():
    return run_both


@pytest.fixture(name="hashes")
def _hashes():
    """Hashes of numbers, as ids have them."""

    def of(numbers):
        joined = b"".join(hashlib.blake2b(str(n).encode(), digest_size=32).digest() for n in numbers)
        return np.frombuffer(joined, np.uint8).reshape(-1, 32)

    return of


@pytest.fixture(name="engine", scope="module")
def _engine():
    with Engine(workers=2) as engine:
        yield engine


@contextmanager
def _hanging_up(link):
    """Who fails hangs up, so that the other side does not wait."""
    try:
        yield
    except BaseException:
        link.close()
        raise


@pytest.fixture(name="party")
def _party(engine, hashes):
    """One party's side: the numbers it found, in its order, and the peer's count."""

    def run(link, numbers, **options):
        chosen = {"engine": engine, "cap": 100_000, "minimum": 0, "patience": PATIENCE, **options}
        with _hanging_up(link):
            found = intersect(link, hashes(numbers), **chosen)
        return [numbers[place] for place in found.positions], found.peer_count

    return run


@pytest.fixture(name="align")
def _align(links, both, party):
    """Align two lists of numbers: what each found or its error, and both links."""

    def run(one, two, **options):
        ends = links()
        sides = zip(ends, (one, two), strict=True)
        return *both(*(functools.partial(party, link, ids, **options) for link, ids in sides)), ends

    return run


@pytest.fixture(name="small_chunks")
def _small_chunks(monkeypatch):
    for module in (_exchange, psi):
        monkeypatch.setattr(module, "CHUNK", 7)
