"""The way to the peer, one step after the other: name, connection, TLS, its certificate, and whether it takes ours."""

from __future__ import annotations

import errno
import socket
import ssl

from tacit.company.doctor.finding import Finding, ok, problem
from tacit.wire import certificates
from tacit.wire.certificates import Identity

_SECONDS = 5.0  # for each step


def reach(address: str, identity: Identity, peer: str, pinned: bytes, *, seconds: float = _SECONDS) -> Finding:
    """Try a TLS handshake with the label party, and say which step fails; nothing is sent beyond that."""
    host, _, number = address.rpartition(":")
    host = host.strip("[]")
    try:
        socket.getaddrinfo(host, int(number), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for what no name can be, as "a..b"
        seen = f"the name {host} is not known here ({getattr(error, 'strerror', None) or 'it is no name'})"
        return problem(seen, "correct [network] connect in party.toml, or look at the DNS")
    try:
        plain = socket.create_connection((host, int(number)), seconds)
    except OSError as error:
        return _unreached(address, peer, error)
    with plain:
        return _handshake(plain, address, identity, peer, pinned)


def port(address: str, runs: list[int]) -> Finding:
    """Whether the label party can listen at its address."""
    host, _, number = address.rpartition(":")
    host = host.strip("[]")
    try:
        ((family, kind, _, _, where), *_) = socket.getaddrinfo(host, int(number), type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(where)
            door.listen(1)
    except (OSError, UnicodeError) as error:
        return _taken(address, runs, error if isinstance(error, OSError) else OSError(f"{host} is no name"))
    seen = f"{address} is free; whether the peers can reach it, only they can tell"
    return ok(seen, "let each feature party run `tacit doctor` while `tacit align` or train waits here")


def _taken(address: str, runs: list[int], error: OSError) -> Finding:
    if error.errno == errno.EADDRINUSE and runs:
        return ok(f"{address} is in use, by this party's own run (process {runs[0]})")
    do = {
        errno.EADDRINUSE: "unless it is this party's own `tacit align`, end what listens there (ss -ltnp shows it), or "
        "take another port, also at the peers",
        errno.EADDRNOTAVAIL: "name an address of this machine in [network] listen, as 0.0.0.0 for all of them",
        errno.EACCES: "take a port from 1024 on",
    }.get(error.errno or 0, "correct [network] listen in party.toml")
    return problem(f"{address} can't be listened at ({error.strerror or error})", do)


def _unreached(address: str, peer: str, error: OSError) -> Finding:
    if isinstance(error, ConnectionRefusedError):
        seen = f"{address} answers, but nothing listens there"
        return problem(seen, f"let {peer} start `tacit align` or `tacit train`, and compare the port")
    if isinstance(error, TimeoutError):
        seen = f"{address} does not answer"
        return problem(seen, "look at the firewalls on both sides, and at the address")
    return problem(f"{address}: {error.strerror or error}", "look at the network and at the address")


def _handshake(plain: socket.socket, address: str, identity: Identity, peer: str, pinned: bytes) -> Finding:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is compared with the pinned one below
    certificates.show(context, identity)
    try:
        with context.wrap_socket(plain) as secured:
            shown = secured.getpeercert(binary_form=True) or b""
            if certificates.fingerprint(ssl.DER_cert_to_PEM_cert(shown).encode()) != certificates.fingerprint(pinned):
                seen = f"{address} shows another certificate than the one that is pinned for {peer}"
                do = f"ask {peer} on the phone whether it made a new one; if so, tacit trust it with --replace"
                return problem(seen, do)
            taken = bool(secured.recv(1))  # a peer that takes our certificate speaks first, another hangs up
    except TimeoutError:
        seen = f"{address} takes the connection, but no TLS handshake comes to an end"
        return problem(seen, "look for a proxy in between: it must let TLS through as it is")
    except ssl.SSLError as error:
        if "CERTIFICATE" in (error.reason or "") or "ALERT" in (error.reason or ""):
            taken = False
        else:
            seen = f"what listens at {address} does not speak TLS ({error.reason})"
            return problem(seen, "compare the address with the peer's, and look for a proxy in between")
    except ConnectionError:
        taken = False
    if not taken:
        seen = f"{peer} at {address} hangs up when it sees our certificate"
        do = f"let {peer} run tacit trust with {identity.name}.crt from here, and compare the clocks"
        return problem(seen, do)
    return ok(f"{peer} at {address} shows the pinned certificate and takes ours")
