"""Links between machines: gRPC with mutual TLS, where each side takes exactly the certificates that it has pinned.

One bidirectional stream is one link. The frames are the codec's; gRPC carries them as bytes, without protobuf.
"""

from __future__ import annotations

import os
import resource
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tacit.contracts import Link
from tacit.errors import DataError, LinkError, RefusedError, TacitError, UsageError
from tacit.wire import certificates
from tacit.wire.certificates import Certificate, Identity
from tacit.wire.codec import FRAME, Limit
from tacit.wire.memory import FrameLink, Pipe

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log of failed handshakes; ours says who and why. Read at import
import grpc

CONNECTIONS = 4096  # at a time, whoever they are of; half of all files that may be open where that is less
STREAMS = 4  # links of one peer at a time: a peer that reconnects may be faster than the end of its old link is noticed
ROOM = 4  # frames that wait in each direction of a link: 16 MiB at most, and enough that nobody waits for a thread
FLUSH_SECONDS = 5.0  # how long close() waits for the peer to take what was sent
PING_SECONDS, PONG_SECONDS = 10, 5  # a peer that is silently gone is noticed after 15 s, also while nothing is sent

_SERVICE, _METHOD = "tacit.Link", "Frames"
_WELCOME = ("tacit-link", "open")  # the handler's first word: the peer's connect() returns at this
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 1000 * PING_SECONDS),
    ("grpc.keepalive_timeout_ms", 1000 * PONG_SECONDS),
    ("grpc.http2.ping_timeout_ms", 1000 * PONG_SECONDS),  # without it a stopped process is noticed after a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # pings go on in a long silence
    ("grpc.http2.min_ping_interval_without_data_ms", 500 * PING_SECONDS),  # and the server does not mind them
    ("grpc.max_receive_message_length", FRAME),
    ("grpc.max_send_message_length", FRAME),
    ("grpc.http2.bdp_probe", 0),  # a fixed window: one that grows held 60 MiB of frames that nobody had taken
    ("grpc.http2.lookahead_bytes", 2 * FRAME),  # what may be on its way: enough for 200 MB/s over 40 ms
    ("grpc.default_compression_algorithm", 0),  # none: the length of what is compressed tells about its content
    ("grpc.enable_retries", 0),  # what is sent again, and when, is decided by the journal alone
]
_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, never shared with another process
    ("grpc.server_handshake_timeout_ms", 10_000),  # who does not finish TLS does not stay
    ("grpc.max_connection_idle_ms", 10_000),  # nor does who opens no stream after it
]
_CLIENT_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # a new connection is new: no back-off of an earlier one
]


class NetworkLink(FrameLink):
    """One end of a stream; `connect` and `Server.accept` make them."""

    def __init__(self, peer: str, limits: Mapping[str, Limit]) -> None:
        super().__init__(peer, limits, Pipe(ROOM), Pipe(ROOM))
        self.over = threading.Event()
        self._closed = False
        self._abandon: Callable[[], object] = lambda: None
        self._release: Callable[[], None] = lambda: None

    def stop_with(self, abandon: Callable[[], object], release: Callable[[], None] = lambda: None) -> None:
        """Say how the stream is given up where it does not end by itself, and what to free after its end."""
        self._abandon = abandon
        self._release = release

    def frames_out(self) -> Iterator[bytes]:
        """What gRPC sends: the frames until the link ends."""
        while True:
            try:
                frame = self.outgoing.get()
            except LinkError:
                return
            assert frame is not None  # it waits without a timeout
            yield frame

    def read(self, frames: Iterator[bytes], reason: str) -> None:
        """Take what gRPC receives until the stream is over; after `close` that is read and thrown away.

        Args:
            frames: gRPC's iterator.
            reason: what it means when that ends without an error.
        """
        try:
            for frame in frames:
                if not self._closed:
                    self._take(frame)
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else "the peer is gone"
            reason = f"the link to {self.peer} broke: {details}"
        self.finish(reason)

    def _take(self, frame: bytes) -> None:
        try:
            self.incoming.put(frame)
        except LinkError:
            return  # closed while it waited for room

    def finish(self, reason: str) -> None:
        """Nothing goes over this stream any more."""
        self.incoming.end(reason)
        self.outgoing.cut(reason)
        self.over.set()

    def close(self) -> None:
        """End the link, after what was sent has gone out and the peer has taken it, or after some seconds."""
        self._closed = True
        self.outgoing.end(f"the link to {self.peer} is closed")
        self.incoming.cut(f"the link to {self.peer} is closed")
        if not self.over.wait(FLUSH_SECONDS):
            self._abandon()
            self.over.wait(FLUSH_SECONDS)
        self._release()


# --- the side that listens -------------------------------------------------------------------------------------------


class Server:
    """Takes links from the pinned peers and from nobody else. `listen` starts it.

    Anybody can open a TCP connection. One that shows no certificate in ten seconds is closed, and there are
    `CONNECTIONS` at a time, of which none takes a file that the process needs for something else.
    """

    def __init__(self, address: str, identity: Identity, names: Mapping[str, str], roots: bytes, limits: Any) -> None:
        self._identity = identity
        self._names = names
        self._limits = limits
        self._lock = threading.Lock()
        self._links: list[NetworkLink] = []
        self._waiting: Pipe[NetworkLink] = Pipe(STREAMS * len(names))
        streams = STREAMS * len(names) + 1  # one more, to be told that it is one too many
        self._pool = ThreadPoolExecutor(streams, thread_name_prefix="tacit-stream")
        most = ("grpc.max_allowed_incoming_connections", min(CONNECTIONS, allow_files(2 * CONNECTIONS) // 2))
        options = [*_OPTIONS, *_SERVER_OPTIONS, most]
        self._server = grpc.server(self._pool, options=options, maximum_concurrent_rpcs=streams)
        handler = grpc.stream_stream_rpc_method_handler(self._handle)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
        credentials = grpc.ssl_server_credentials(
            [(identity.key_pem, identity.cert_pem)], root_certificates=roots, require_client_auth=True
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            self._pool.shutdown()
            raise LinkError(
                f"{identity.name} can't listen on {address}, it is in use or not of this machine: end what listens "
                "there (`tacit doctor` says more), or take another address, also at the peers"
            ) from None
        self._address = f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    @property
    def address(self) -> str:
        """Host and port, as really bound."""
        return self._address

    def accept(self, timeout: float | None = None) -> Link | None:
        """The next link that a peer made and that still lives, or None where none came in so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            link = self._waiting.get(None if until is None else max(until - time.monotonic(), 0.0))
            if link is None or not link.over.is_set():
                return link

    def close(self) -> None:
        """End all links as their `close` does, and stop listening."""
        self._waiting.cut(f"{self._identity.name} no longer listens")
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()
        self._server.stop(FLUSH_SECONDS).wait()
        self._pool.shutdown()

    def _handle(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        link = self._admit(context)
        link.stop_with(context.cancel)
        if not context.add_callback(lambda: self._leave(link)):
            self._leave(link)
        context.send_initial_metadata((_WELCOME,))
        arguments = (requests, _gone(link.peer))
        threading.Thread(target=link.read, args=arguments, name=f"tacit-from-{link.peer}", daemon=True).start()
        self._offer(link)
        yield from link.frames_out()

    def _admit(self, context: grpc.ServicerContext) -> NetworkLink:
        """The link for a stream, if its peer is a pinned one and has not too many; `abort` raises."""
        shown = context.auth_context().get("x509_pem_cert", ())
        name = self._names.get(certificates.fingerprint(shown[0]), "") if len(shown) == 1 else ""
        if not name:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate is not a pinned one")
        link = NetworkLink(name, self._limits)
        with self._lock:
            admitted = Counter(each.peer for each in self._links)[name] < STREAMS
            if admitted:
                self._links.append(link)
        if not admitted:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{name} has {STREAMS} links already: close one")
        return link

    def _offer(self, link: NetworkLink) -> None:
        try:
            self._waiting.put(link)
        except LinkError as error:
            link.finish(str(error))

    def _leave(self, link: NetworkLink) -> None:
        link.finish(_gone(link.peer))
        with self._lock:
            self._links.remove(link)


def allow_files(many: int) -> int:
    """Let this process have so many files open, as far as the system allows; how many it may have now."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    allowed = max(soft, min(many, hard))
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, limits[1]))
    return allowed


def _gone(peer: str) -> str:
    """gRPC does not tell a server which of the two it was."""
    return f"{peer} closed the link, or was stopped"


def listen(address: str, identity: Identity, trusted: Mapping[str, bytes], limits: Mapping[str, Limit]) -> Server:
    """Listen for the pinned peers.

    Args:
        address: host and port; port 0 takes a free one.
        identity: who we are.
        trusted: the certificate of each peer, by its name.
        limits: what may come over a new link; `link.limits` replaces them.
    """
    _check_dates("our certificate", identity.cert_pem)
    names: dict[str, str] = {}
    for name, pem in trusted.items():
        found = certificates.read(pem, dates=False)  # one that has expired keeps nobody else out; TLS refuses it
        if found.name != name:
            raise UsageError(f"the certificate pinned for {name} is that of {found.name}: pin it under its own name")
        if found.fingerprint in names:
            raise UsageError(f"the certificate of {name} is pinned twice")
        names[found.fingerprint] = name
    if not names:
        raise UsageError("listen: nobody is trusted, so nobody could connect: tacit trust the peer's certificate first")
    return Server(address, identity, names, b"".join(trusted.values()), limits)


# --- the side that connects ------------------------------------------------------------------------------------------


def connect(
    address: str,
    identity: Identity,
    trusted_name: str,
    trusted_pem: bytes,
    limits: Mapping[str, Limit],
    timeout: float = 10.0,
) -> NetworkLink:
    """Connect to a peer that listens, once; a `LinkError` where trying again may help.

    A `RefusedError` about the certificate says that it will not: one side's is not the one that the other has pinned.

    Args:
        address: host and port of the peer.
        identity: who we are.
        trusted_name: the peer's name.
        trusted_pem: the peer's certificate, as pinned.
        limits: what may come over the link; `link.limits` replaces them.
        timeout: how many seconds it may take.
    """
    pinned = certificates.read(trusted_pem, dates=False)
    if pinned.name != trusted_name:
        raise UsageError(f"the certificate pinned for {trusted_name} is that of {pinned.name}")
    _check_dates("our certificate", identity.cert_pem)
    _check_dates("the pinned certificate", trusted_pem)
    credentials = grpc.ssl_channel_credentials(trusted_pem, identity.key_pem, identity.cert_pem)
    options = [*_OPTIONS, *_CLIENT_OPTIONS, ("grpc.ssl_target_name_override", trusted_name)]
    channel = grpc.secure_channel(address, credentials, options)
    link = NetworkLink(trusted_name, limits)
    call = channel.stream_stream(f"/{_SERVICE}/{_METHOD}")(link.frames_out(), wait_for_ready=False)
    opened = threading.Event()
    reader = threading.Thread(target=_read, args=(link, call, opened), name=f"tacit-from-{trusted_name}", daemon=True)
    reader.start()

    def release() -> None:
        reader.join(FLUSH_SECONDS)
        channel.close()

    link.stop_with(call.cancel, release)
    if not opened.wait(timeout):
        call.cancel()
        link.close()
        raise LinkError(f"{trusted_name} at {address} did not answer within {timeout:g} s")
    if _WELCOME in call.initial_metadata():
        return link
    code, details = call.code(), str(call.details())  # both wait for the end of the attempt
    link.close()
    if code is grpc.StatusCode.UNAVAILABLE:
        raise _explain(details, address, identity, pinned)
    raise LinkError(f"{trusted_name} at {address} takes no link from us: {details}")


def _read(link: NetworkLink, call: Any, opened: threading.Event) -> None:
    call.initial_metadata()  # waits for the handler's first word, or for the end of the attempt
    opened.set()
    link.read(call, f"{link.peer} closed the link")


def _check_dates(what: str, pem: bytes) -> None:
    try:
        certificates.read(pem)
    except DataError as error:
        raise RefusedError("certificate", f"{what} can't be used: {error}") from None


# --- why a connection could not be made: what gRPC and TLS say about it, in words that help --------------------------

_PROBE_SECONDS = 3.0


def _explain(details: str, address: str, identity: Identity, pinned: Certificate) -> TacitError:
    """The error for a connection that gRPC could not make.

    A `RefusedError` about the certificate where TLS says so, and otherwise a `LinkError`: trying again may help.

    Args:
        details: gRPC's own words.
        address: where to.
        identity: who we are.
        pinned: who should have been there.
    """
    where = f"{pinned.name} at {address}"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        wrong = "one that has expired" if "expired" in details else "another one"
        return RefusedError(
            "certificate",
            f"{where} should show the certificate {pinned.fingerprint} and shows {wrong}: ask {pinned.name} which "
            "is right, on the phone; if it made a new one, tacit trust it",
        )
    if "Hostname Verification" in details:
        return RefusedError("certificate", f"{where}: the certificate there does not name {pinned.name}")
    if "Connection refused" in details:
        return LinkError(f"nothing listens for {where}: see whether {pinned.name} runs and the address is right")
    if "WRONG_VERSION_NUMBER" in details:
        return LinkError(f"what listens for {where} does not speak TLS: see whether the address is right")
    if "hostname lookup" in details or "DNS" in details:
        return LinkError(f"the name in the address of {where} is not known here: see whether it is right")
    if all(_hangs_up(address, identity, pinned) for _ in range(2)):  # twice: once may be a peer that just stopped
        ours = certificates.fingerprint(identity.cert_pem)
        return RefusedError(
            "certificate",
            f"{where} does not take our certificate {ours} of {identity.name}: it trusts another one, or none, or its "
            f"clock says that ours is not valid; let {pinned.name} trust the present one with tacit trust",
        )
    return LinkError(f"the connection to {where} could not be made: {details}")


def _hangs_up(address: str, identity: Identity, pinned: Certificate) -> bool:
    """Whether the pinned peer itself ends the connection when it sees our certificate.

    gRPC tells neither side more than that a socket was closed. In TLS 1.3 our side of the handshake is done before the
    peer judges our certificate: one that takes it sends its first bytes, one that does not closes the connection.
    """
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is compared with the pinned one below
    context.set_alpn_protocols(["h2"])
    try:
        certificates.show(context, identity)
        with (
            socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS) as plain,
            context.wrap_socket(plain) as secured,
        ):
            shown = secured.getpeercert(binary_form=True) or b""
            its_own = certificates.fingerprint(ssl.DER_cert_to_PEM_cert(shown).encode()) == pinned.fingerprint
            return its_own and not secured.recv(1)
    except (OSError, ValueError):  # of the network, of TLS, of an address or a certificate that is none
        return False
