"""Links over gRPC with mutual TLS: who gets in, what arrives, and what is left when they end."""

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError, RefusedError
from tacit.wire import certificates, network
from tacit.wire.codec import CONTROL, AtMost, Limit, control, read_control

LIMITS = {
    "embedding": Limit(torch.float32, (AtMost(100_000), 128)),
    "gradient": Limit(torch.float32, (AtMost(100_000), 128)),
    "hello": CONTROL,
}
AIRLINE, AIRPORT, OTHER = (certificates.create(name) for name in ("airline", "airport", "other"))
SECONDS = 10  # the most that anything here may take


@pytest.fixture(name="server")
def _server():
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    yield server
    server.close()


def join(server, identity=AIRPORT, pinned=AIRLINE, address=None):
    return network.connect(address or server.address, identity, pinned.name, pinned.cert_pem, LIMITS, SECONDS)


@pytest.fixture(name="ends")
def _ends(server):
    link = join(server)
    yield link, server.accept(SECONDS)
    link.close()


def test_messages_go_both_ways_and_the_peers_are_who_the_certificates_say(ends):
    left, right = ends
    assert (left.peer, right.peer) == ("airline", "airport")
    left.send(control("hello", 4, {"name": "somebody else"}))
    assert read_control(right.recv(SECONDS)) == {"name": "somebody else"}
    payload = torch.randn(20_000, 128, generator=torch.Generator().manual_seed(1))
    right.send(Message(5, "gradient", payload, b"r" * 16))
    found = left.recv(SECONDS)
    assert (found.step, found.kind, found.rows) == (5, "gradient", b"r" * 16)
    assert torch.equal(found.payload, payload)
    assert left.recv(0.01) is None
    assert right.recv(0) is None


def test_nobody_listens():
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    server.close()
    with pytest.raises(LinkError, match=r"nothing listens for airline at 127.0.0.1:.* see whether airline runs"):
        join(server)
    with pytest.raises(LinkError, match="airline no longer listens"):
        server.accept(SECONDS)


def test_a_port_that_is_taken_is_said(server):
    with pytest.raises(LinkError, match=f"airport can't listen on {server.address}: is it in use"):
        network.listen(server.address, AIRPORT, {"airline": AIRLINE.cert_pem}, LIMITS)


@pytest.mark.parametrize("stranger", [OTHER, certificates.create("airport")], ids=["foreign", "same name"])
def test_a_stranger_gets_no_link_and_is_told_why(server, stranger):
    with pytest.raises(RefusedError, match=r"does not take our certificate .*tacit trust") as caught:
        join(server, identity=stranger)
    assert caught.value.field == "certificate"
    assert server.accept(0.1) is None
    join(server).close()  # the right one still gets in


@pytest.mark.parametrize("pinned", [certificates.create("airline"), OTHER], ids=["same name", "other"])
def test_a_server_that_is_not_the_pinned_one_is_not_talked_to(server, pinned):
    with pytest.raises(RefusedError, match=f"should show the certificate {certificates.fingerprint(pinned.cert_pem)}"):
        join(server, pinned=pinned)
    assert server.accept(0.1) is None
