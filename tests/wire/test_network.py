"""Links over TCP with mutual TLS: who gets in, what arrives, and what is left when they end."""

import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.contracts import Message
from tacit.errors import DataError, LinkError, ProtocolError, RefusedError, UsageError
from tacit.wire import certificates, network, network_link
from tacit.wire.codec import FRAME, Limit, control, read_control
from tacit.wire.opening import Opening
from tests.wire.connecting import AIRLINE, AIRPORT, LIMITS, OTHER, SECONDS, bare, join, opened


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
    with pytest.raises(LinkError, match=f"airport can't listen on {server.address} .Address already in use"):
        network.listen(server.address, AIRPORT, {"airline": AIRLINE.cert_pem}, LIMITS)


@pytest.mark.parametrize("stranger", [OTHER, certificates.create("airport")], ids=["foreign", "same name"])
def test_a_stranger_gets_no_link_and_is_told_why(server, stranger):
    with pytest.raises(RefusedError, match=r"does not take our certificate .*tacit trust") as caught:
        join(server, identity=stranger)
    assert caught.value.field == "certificate"
    assert server.accept(0.1) is None
    join(server).close()  # the right one still gets in


def test_who_waits_is_told_that_somebody_showed_a_certificate_that_is_not_pinned(server):
    assert server.missing == "not connected"
    with pytest.raises(RefusedError):
        join(server, identity=certificates.create("airport"))
    until = time.monotonic() + SECONDS  # the stranger hears it first
    while server.missing == "not connected" and time.monotonic() < until:
        time.sleep(0.01)
    assert "somebody showed a certificate that is not pinned" in server.missing
    assert "`tacit trust`" in server.missing


@pytest.mark.parametrize("pinned", [certificates.create("airline"), OTHER], ids=["same name", "other"])
def test_a_server_that_is_not_the_pinned_one_is_not_talked_to(server, pinned):
    with pytest.raises(RefusedError, match=f"should show the certificate {certificates.fingerprint(pinned.cert_pem)}"):
        join(server, pinned=pinned)
    assert server.accept(0.1) is None


def by_the_key_of(identity, *, new_key, chain=False):
    """A certificate that the key of a pinned one has signed: for another key, or for its own once more."""
    pinned = x509.load_pem_x509_certificate(identity.cert_pem)
    signer = serialization.load_pem_private_key(identity.key_pem, None)
    key = ec.generate_private_key(ec.SECP256R1()) if new_key else signer
    builder = x509.CertificateBuilder(pinned.subject, pinned.subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(pinned.not_valid_before_utc).not_valid_after(pinned.not_valid_after_utc)
    for extension in pinned.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    made = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificates.Identity(identity.name, key.private_bytes(*form), made + identity.cert_pem * chain)


@pytest.mark.parametrize(("new_key", "chain"), [(True, False), (True, True), (False, False), (False, True)])
def test_what_the_pinned_key_has_signed_is_not_the_pinned_certificate(monkeypatch, new_key, chain):
    monkeypatch.setattr(network, "_check_dates", lambda what, pem: None)  # at a server that takes a chain for its own
    impostor = by_the_key_of(AIRLINE, new_key=new_key, chain=chain)
    server = network.listen("127.0.0.1:0", impostor, {"airport": AIRPORT.cert_pem}, LIMITS)
    with pytest.raises(RefusedError, match=r"should show the certificate .* and shows another one"):
        join(server, pinned=AIRLINE)
    assert server.accept(0.1) is None
    server.close()


def test_a_pinned_certificate_that_could_sign_others_is_not_used(server):
    """TLS would take whatever it has signed: it is the pinned one's own form that keeps the chain to one."""
    signer = serialization.load_pem_private_key(AIRLINE.key_pem, None)
    pinned = x509.load_pem_x509_certificate(AIRLINE.cert_pem)
    builder = x509.CertificateBuilder(pinned.subject, pinned.subject, signer.public_key(), 1)
    builder = builder.not_valid_before(pinned.not_valid_before_utc).not_valid_after(pinned.not_valid_after_utc)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("airline")]), critical=False)
    bare = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(DataError, match="could sign others"):
        network.connect(server.address, AIRPORT, "airline", bare, LIMITS, SECONDS)
    with pytest.raises(DataError, match="could sign others"):
        network.listen("127.0.0.1:0", AIRPORT, {"airline": bare}, LIMITS)


def long_ago(name):
    return certificates.create(name, days=1, now=datetime.now(UTC) - timedelta(days=3))


def test_certificates_that_have_expired_are_not_even_tried():
    with pytest.raises(RefusedError, match="our certificate can't be used: the certificate of airport expired on 20"):
        network.connect("127.0.0.1:1", long_ago("airport"), "airline", AIRLINE.cert_pem, LIMITS)
    with pytest.raises(RefusedError, match=r"the pinned certificate can't be used: .*airline expired on 20"):
        network.connect("127.0.0.1:1", AIRPORT, "airline", long_ago("airline").cert_pem, LIMITS)
    with pytest.raises(RefusedError, match=r"our certificate can't be used: .*airline expired on 20"):
        network.listen("127.0.0.1:0", long_ago("airline"), {"airport": AIRPORT.cert_pem}, LIMITS)
    early = certificates.create("airport", now=datetime.now(UTC) + timedelta(days=2))
    with pytest.raises(RefusedError, match="check the clocks"):
        network.connect("127.0.0.1:1", early, "airline", AIRLINE.cert_pem, LIMITS)


def test_tls_itself_refuses_what_has_expired(monkeypatch):
    """A peer's clock or code may be wrong: then it is the other side's TLS that says no."""
    monkeypatch.setattr(network, "_check_dates", lambda what, pem: None)
    old_port, old_line = long_ago("airport"), long_ago("airline")
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": old_port.cert_pem}, LIMITS)
    with pytest.raises(RefusedError, match="does not take our certificate"):
        join(server, identity=old_port)
    assert server.accept(0.1) is None
    server.close()
    server = network.listen("127.0.0.1:0", old_line, {"airport": AIRPORT.cert_pem}, LIMITS)
    with pytest.raises(RefusedError, match="shows one that has expired"):
        join(server, pinned=old_line)
    server.close()


def test_names_and_certificates_belong_together():
    with pytest.raises(UsageError, match="pinned for airport is that of other"):
        network.listen("127.0.0.1:0", AIRLINE, {"airport": OTHER.cert_pem}, LIMITS)
    with pytest.raises(UsageError, match="nobody is trusted"):
        network.listen("127.0.0.1:0", AIRLINE, {}, LIMITS)
    with pytest.raises(UsageError, match="pinned for airlines is that of airline"):
        network.connect("127.0.0.1:1", AIRPORT, "airlines", AIRLINE.cert_pem, LIMITS)


def test_three_peers_are_told_apart_by_their_certificates():
    trusted = {"airport": AIRPORT.cert_pem, "other": OTHER.cert_pem}
    server = network.listen("127.0.0.1:0", AIRLINE, trusted, LIMITS)
    made = [join(server, identity=identity) for identity in (OTHER, AIRPORT)]
    assert {server.accept(SECONDS).peer, server.accept(SECONDS).peer} == {"airport", "other"}
    for link in made:
        link.close()
    server.close()


def test_who_shows_no_certificate_is_told_nothing(server):
    with bare(server) as line, pytest.raises(OSError, match=r"(?i)alert certificate required|reset"):
        line.recv(1)
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"tacit" not in plain.recv(1000)
    assert server.accept(0.1) is None


def test_old_tls_is_refused(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, port = server.address.split(":")
    with (
        socket.create_connection((host, int(port)), SECONDS) as plain,
        pytest.raises(OSError, match=r"(?i)ssl|version|reset|alert"),
    ):
        context.wrap_socket(plain)


def answering(reply):
    """A listener that is no Tacit: it says `reply` to whoever connects, and keeps the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve():
        try:
            while True:
                kept.append(listener.accept()[0])
                kept[-1].sendall(reply)
        except OSError:
            for one in kept:
                one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return listener, thread


@pytest.mark.parametrize(
    ("reply", "words"), [(b"HTTP/1.1 400 Bad\r\n\r\n", "does not speak TLS"), (b"", "within 0.5 s")]
)
def test_what_is_no_peer_is_a_link_error(reply, words):
    listener, thread = answering(reply)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(LinkError, match=words):
        network.connect(address, AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, timeout=0.5)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(SECONDS)


def test_a_peer_has_a_few_links_at_a_time_and_no_more(server):
    made = [join(server) for _ in range(network.STREAMS)]
    for _ in range(3):
        with pytest.raises(LinkError, match="takes no link from us: airport has 4 links already: close one"):
            join(server)
    made[0].close()
    made[0] = join(server)
    accepted = [server.accept(SECONDS) for _ in range(network.STREAMS)]
    assert all(link is not None for link in accepted)
    assert server.accept(0) is None  # the one that ended before it was accepted is not offered
    for link in made:
        link.close()


def test_a_message_that_is_not_allowed_is_refused_at_the_receiver(ends):
    left, right = ends
    left.send(Message(3, "gradient", torch.zeros(2, 127), b""))
    with pytest.raises(ProtocolError, match=r"gradient of step 3: float32 \(2, 127\) came"):
        right.recv(SECONDS)
    right.send(control("hello", 0, {"why": "shape"}))  # the way back is still open, to say why
    assert read_control(left.recv(SECONDS)) == {"why": "shape"}


def test_limits_are_those_of_the_moment_of_receiving(ends):
    left, right = ends
    left.send(control("hello", 0, {}))
    left.send(Message(0, "figures", torch.zeros(()), b""))
    assert right.recv(SECONDS).kind == "hello"
    right.limits = {"figures": Limit(torch.float32, ())}
    assert right.recv(SECONDS).kind == "figures"


def test_who_only_looks_makes_no_link(server):
    with bare(server, AIRPORT) as line:
        assert line.recv(100).endswith(b"tacit link 2")
    with bare(server, AIRPORT) as line:
        line.recv(100)
        line.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert not line.recv(1)
    assert server.accept(0.3) is None
    join(server).close()


def test_frames_that_are_too_long_end_the_link_before_memory_is_taken(server):
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        line.sendall((FRAME + 1).to_bytes(4, "little"))
        with pytest.raises(LinkError, match=f"a frame of {FRAME + 1} bytes was announced"):
            link.recv(SECONDS)
        line.settimeout(SECONDS)
        assert not line.recv(1), "the connection is closed"


def test_a_link_that_ends_within_a_frame_is_broken(server):
    with bare(server, AIRPORT) as line:
        link = opened(server, line)
        line.sendall((500).to_bytes(4, "little") + b"half of it")
    with pytest.raises(LinkError, match="the link to airport broke"):
        link.recv(SECONDS)


def test_a_sender_waits_for_a_receiver_and_wakes_when_the_link_ends(ends):
    left, right = ends
    sent, failed, stalled, most = [], [], threading.Event(), 60
    payload = torch.zeros(FRAME // 512 - 1, 128)  # one frame, nearly full

    def send():
        try:
            for step in range(most):
                left.send(Message(step, "embedding", payload, b""))
                sent.append(step)
        except LinkError as error:
            failed.append(error)
        stalled.set()

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert not stalled.wait(1.0)
    assert len(sent) <= 5 * network_link.ROOM  # what waits to be taken, and what the sockets hold
    assert [right.recv(SECONDS).step for _ in range(12)] == list(range(12))
    assert not stalled.wait(0.3)
    assert len(sent) <= 5 * network_link.ROOM + 12
    right.close()
    sending.join(SECONDS)
    assert not sending.is_alive()
    assert len(failed) == 1


def test_no_thread_is_left():
    before = set(threading.enumerate())
    server = network.listen("127.0.0.1:0", AIRLINE, {"airport": AIRPORT.cert_pem}, LIMITS)
    first, second = join(server), join(server)
    assert server.accept(SECONDS) is not None
    first.send(control("hello", 0, {}))
    with pytest.raises(RefusedError):
        join(server, identity=OTHER)
    first.close()
    server.close()
    with pytest.raises(LinkError):
        second.recv(SECONDS)
    second.close()
    until = time.monotonic() + SECONDS
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        next(iter(left)).join(0.1)
    assert not left


def test_who_is_on_the_way_can_not_say_that_our_certificate_is_refused():
    listener, thread = answering(bytes([21, 3, 3, 0, 2, 2, 48]))  # an alert in the clear: unknown CA
    with pytest.raises(LinkError, match="could not be made"):
        network.connect(f"127.0.0.1:{listener.getsockname()[1]}", AIRPORT, "airline", AIRLINE.cert_pem, LIMITS, SECONDS)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(SECONDS)


def test_peers_that_do_not_hang_up_are_waited_for_together(server, monkeypatch):
    monkeypatch.setattr(network_link, "FLUSH_SECONDS", 2.0)
    lines = [bare(server, AIRPORT) for _ in range(network.STREAMS)]
    for line in lines:
        opened(server, line)
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 2 * 2.0
    for line in lines:
        line.close()


def test_what_comes_all_the_time_does_not_move_the_deadline():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"one more")
        opening = Opening(ours, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        with pytest.raises(TimeoutError):
            opening.take_until(time.monotonic() - 0.01)


def test_a_listener_is_closed_once(server):
    server.close()
    server.close()
    with pytest.raises(LinkError):
        join(server)


# --- through a proxy --------------------------------------------------------------------------------------------------
