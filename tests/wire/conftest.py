"""Both ends of every kind of link, for the tests that all of them must pass.

A new kind is one more entry in `MAKERS`: a function that takes pytest's request and yields the two ends.
"""

from contextlib import contextmanager

import pytest
import torch

from benchmarks._memory_links import links
from tacit.wire import certificates, network
from tacit.wire.codec import CONTROL, AtMost, Limit
from tests.wire import connecting

SECONDS = 10.0  # the most that anything may wait
LIMITS = {
    "embedding": Limit(torch.float32, (AtMost(100_000), AtMost(128))),
    "gradient": Limit(torch.float32, (AtMost(100_000), AtMost(128))),
    "evaluation": Limit(torch.float64, (AtMost(10), AtMost(10), AtMost(10), AtMost(10))),
    "matches": Limit(torch.uint8, (AtMost(100),)),
    "figures": Limit(torch.float64, ()),
    "hello": CONTROL,
}


@contextmanager
def memory_links(request):
    yield links()


@contextmanager
def memory_links_of_bytes(request):
    yield links(LIMITS)


@contextmanager
def tls_client_and_server(request):
    server, airline, airport = request.getfixturevalue("tls_server")
    left = network.connect(server.address, airport, "airline", airline.cert_pem, LIMITS)
    right = server.accept(SECONDS)
    try:
        yield left, right
    finally:
        left.close()
        right.close()


@contextmanager
def tls_server_and_client(request):
    with tls_client_and_server(request) as (left, right):
        yield right, left


MAKERS = [
    memory_links,
    memory_links_of_bytes,
    tls_client_and_server,
    tls_server_and_client,
]


@pytest.fixture(name="tls_server", scope="module")
def _tls_server():
    airline, airport = certificates.create("airline"), certificates.create("airport")
    server = network.listen("127.0.0.1:0", airline, {"airport": airport.cert_pem}, LIMITS)
    yield server, airline, airport
    server.close()


@pytest.fixture(name="ends", params=MAKERS, ids=lambda maker: maker.__name__)
def _ends(request):
    with request.param(request) as ends:
        yield ends


@pytest.fixture(name="server")
def _server():
    server = network.listen(
        "127.0.0.1:0", connecting.AIRLINE, {"airport": connecting.AIRPORT.cert_pem}, connecting.LIMITS
    )
    yield server
    server.close()
