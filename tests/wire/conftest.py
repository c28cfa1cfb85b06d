"""Both ends of every kind of channel, for the tests that all of them must pass.

A new kind is one more entry in `MAKERS`: a function that takes pytest's request and yields `Ends`.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from tacit.contracts import Channel
from tacit.wire import certificates, network
from tacit.wire.channel import LinkChannel
from tacit.wire.codec import CONTROL, AtMost, Limit
from tacit.wire.memory import links, pair

SECONDS = 10.0  # the most that anything may wait
LIMITS = {
    "embedding": Limit(torch.float32, (AtMost(100_000), AtMost(128))),
    "gradient": Limit(torch.float32, (AtMost(100_000), AtMost(128))),
    "evaluation": Limit(torch.bfloat16, (AtMost(10), AtMost(10), AtMost(10), AtMost(10))),
    "matches": Limit(torch.int64, (AtMost(100),)),
    "figures": Limit(torch.float64, ()),
    "hello": CONTROL,
}


@dataclass(frozen=True)
class Ends:
    """Two channels that are connected.

    Attributes:
        left: one end.
        right: the other end.
        copies: whether the sender may change its tensor after it was sent; otherwise it belongs to the other side.
        close: ends the connection at the left; None where there is nothing to end.
    """

    left: Channel
    right: Channel
    copies: bool = True
    close: Callable[[], None] | None = None


@contextmanager
def memory_pair(request):
    yield Ends(*pair(), copies=False)


@contextmanager
def memory_links(request):
    left, right = links()
    yield Ends(LinkChannel(left, SECONDS), LinkChannel(right, SECONDS), close=left.close)


@contextmanager
def memory_links_of_bytes(request):
    left, right = links(LIMITS)
    yield Ends(LinkChannel(left, SECONDS), LinkChannel(right, SECONDS), close=left.close)


@contextmanager
def grpc_client_and_server(request):
    server, airline, airport = request.getfixturevalue("grpc_server")
    left = network.connect(server.address, airport, "airline", airline.cert_pem, LIMITS)
    right = server.accept(SECONDS)
    try:
        yield Ends(LinkChannel(left, SECONDS), LinkChannel(right, SECONDS), close=left.close)
    finally:
        left.close()
        right.close()


@contextmanager
def grpc_server_and_client(request):
    with grpc_client_and_server(request) as ends:
        yield Ends(ends.right, ends.left, close=ends.right.link.close)


MAKERS = [memory_pair, memory_links, memory_links_of_bytes, grpc_client_and_server, grpc_server_and_client]


@pytest.fixture(name="grpc_server", scope="module")
def _grpc_server():
    airline, airport = certificates.create("airline"), certificates.create("airport")
    server = network.listen("127.0.0.1:0", airline, {"airport": airport.cert_pem}, LIMITS)
    yield server, airline, airport
    server.close()


@pytest.fixture(name="ends", params=MAKERS, ids=lambda maker: maker.__name__)
def _ends(request):
    with request.param(request) as ends:
        yield ends
