"""Two parties that connect, and somebody who does so without Tacit."""

import socket
import ssl

import torch

from tacit.wire import certificates, network
from tacit.wire.codec import CONTROL, AtMost, Limit

LIMITS = {
    "embedding": Limit(torch.float32, (AtMost(100_000), 128)),
    "gradient": Limit(torch.float32, (AtMost(100_000), 128)),
    "hello": CONTROL,
}
AIRLINE, AIRPORT, OTHER = (certificates.create(name) for name in ("airline", "airport", "other"))
SECONDS = 30  # the most that anything here may take


def join(server, identity=AIRPORT, pinned=AIRLINE, address=None):
    return network.connect(address or server.address, identity, pinned.name, pinned.cert_pem, LIMITS, SECONDS)


def bare(server, identity=None):
    """A TLS connection of somebody who does not run Tacit, and shows a certificate or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if identity is not None:
        certificates.show(context, identity)
    host, port = server.address.split(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), SECONDS))


def opened(server, line):
    """The link that a bare connection becomes once it asks for one."""
    word = line.recv(100)
    assert word.endswith(b"tacit link 2")
    line.sendall(word)
    assert line.recv(100) == word
    return server.accept(SECONDS)
