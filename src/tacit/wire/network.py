"""Links: messages as frames through bounded queues, between two threads or, over gRPC, between two machines.

There it is mutual TLS, where each side takes exactly the certificates that it has pinned. One bidirectional stream is
one link. The frames are the codec's; gRPC carries them as bytes, without protobuf.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tacit.contracts import Link, Message
from tacit.errors import DataError, LinkError, RefusedError, UsageError
from tacit.wire import certificates
from tacit.wire.certificates import Identity
from tacit.wire.codec import FRAME, Assembler, Limit, frames

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log of failed handshakes; ours says who and why. Read at import
import grpc

CONNECTIONS = 4096  # at a time, whoever they are of; half of all files that may be open where that is less
STREAMS = 4  # links of one peer at a time: a peer that reconnects may be faster than the end of its old link is noticed
ROOM = 4  # frames that wait in each direction of a link: 16 MiB at most, and enough that nobody waits for a thread
FLUSH_SECONDS = 5.0  # how long close() waits for the peer to take what was sent
SEND_SECONDS = 30.0  # how long a peer may take nothing of what is sent before it counts as gone
# How long a sender waits for its frames to be taken. Where it goes on computing at once, it keeps the interpreter from
# the thread that sends, and the message leaves milliseconds later.
HANDOVER_SECONDS = 0.01
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
_CLIENT_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # a new connection is new: no back-off of an earlier one

T = TypeVar("T")


class Pipe(Generic[T]):
    """Items in order between threads, at most `room` of them at a time.

    Whoever puts one more waits for a free place. Once it has ended nothing more goes in; what is in it can still be
    taken out, and after that taking is a `LinkError` that says why it ended.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: deque[T] = deque()
        self._reason: str | None = None
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._freed = threading.Condition(lock)

    def put(self, item: T, timeout: float | None = None) -> None:
        """Wait for a free place and put an item into it; a `LinkError` where none gets free in so many seconds."""
        with self._freed:
            free = self._freed.wait_for(lambda: self._reason is not None or len(self._items) < self._room, timeout)
            if self._reason is not None:
                raise LinkError(self._reason)
            if not free:
                raise LinkError(f"nothing was taken for {timeout:g} s")
            self._items.append(item)
            self._filled.notify()

    def get(self, timeout: float | None = None) -> T | None:
        """The next item, or None where none came in so many seconds."""
        with self._filled:
            if not self._filled.wait_for(lambda: self._items or self._reason is not None, timeout):
                return None
            if not self._items:
                raise LinkError(self._reason)
            self._freed.notify_all()
            return self._items.popleft()

    def taken(self, timeout: float) -> None:
        """Wait a moment until everything was taken out."""
        with self._freed:
            self._freed.wait_for(lambda: self._reason is not None or not self._items, timeout)

    def widen(self, room: int) -> None:
        """Let so many items wait, if that is more than now."""
        with self._freed:
            self._room = max(room, self._room)
            self._freed.notify_all()

    def end(self, reason: str) -> None:
        """Let nothing more in. The first reason given stays."""
        with self._filled:
            if self._reason is None:
                self._reason = reason
            self._filled.notify_all()
            self._freed.notify_all()

    def cut(self, reason: str) -> None:
        """End it at once: what nobody took yet is gone."""
        with self._filled:
            self._items.clear()
        self.end(reason)


class FrameLink:
    """Messages over two pipes of frames, to a peer of this name. Any thread may send; one at a time receives."""

    def __init__(self, peer: str, limits: Mapping[str, Limit], outgoing: Pipe[bytes], incoming: Pipe[bytes]) -> None:
        self.peer, self.outgoing, self.incoming = peer, outgoing, incoming
        self._assembler = Assembler(limits)
        self._one_message = threading.Lock()

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What may come; frames are judged as `recv` takes them, so new limits hold from the next call on."""
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        self._assembler.limits = limits

    def send(self, message: Message) -> None:
        """Hand a message over; wait while the queue is full, but not for ever: a peer that takes nothing is gone.

        The tensor is copied and may be changed afterwards.
        """
        with self._one_message:
            for frame in frames(message):
                self.outgoing.put(frame, SEND_SECONDS)
            self.outgoing.taken(HANDOVER_SECONDS)

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message, or None where it was not complete in so many seconds; what came of it is kept."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            frame = self.incoming.get(left)
            if frame is None:
                return None
            message = self._assembler.feed(frame)
            if message is not None:
                return message

    def close(self) -> None:
        """End both directions; what was sent can still be received at the other end."""
        self.outgoing.end(f"the link to {self.peer} is closed")
        self.incoming.cut(f"the link to {self.peer} is closed")


# --- over gRPC --------------------------------------------------------------------------------------------------------


class NetworkLink(FrameLink):
    """One end of a stream; `connect` and `Server.accept` make them."""

    def __init__(self, peer: str, limits: Mapping[str, Limit]) -> None:
        super().__init__(peer, limits, Pipe(ROOM), Pipe(ROOM))
        self.over = threading.Event()
        self.abandon: Callable[[], object] = lambda: None  # gives the stream up where it does not end by itself
        self.release: Callable[[], None] = lambda: None  # frees what is left after its end
        self._closed = False

    def frames_out(self) -> Iterator[bytes]:
        """What gRPC sends: the frames until the link ends."""
        with suppress(LinkError):
            while (frame := self.outgoing.get()) is not None:  # it waits without a timeout
                yield frame

    def read(self, frames: Iterator[bytes], reason: str) -> None:
        """Take what gRPC receives until the stream is over, for this reason where it ends without an error."""
        try:
            for frame in frames:
                if not self._closed:  # what comes after `close` is read and thrown away
                    with suppress(LinkError):  # closed while it waited for room
                        self.incoming.put(frame)
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else "the peer is gone"
            reason = f"the link to {self.peer} broke: {details}"
        self.finish(reason)

    def finish(self, reason: str) -> None:
        """Nothing goes over this stream any more."""
        self.incoming.end(reason)
        self.outgoing.cut(reason)
        self.over.set()

    def close(self) -> None:
        """End the link, after what was sent has gone out and the peer has taken it, or after some seconds."""
        self._closed = True
        super().close()
        if not self.over.wait(FLUSH_SECONDS):
            self.abandon()
            self.over.wait(FLUSH_SECONDS)
        self.release()


# --- the side that listens -------------------------------------------------------------------------------------------


class Server:
    """Takes links from the pinned peers and from nobody else. `listen` starts it.

    Anybody can open a TCP connection. One that shows no certificate in ten seconds is closed, and there are
    `CONNECTIONS` at a time, of which none takes a file that the process needs for something else.
    """

    def __init__(self, address: str, identity: Identity, names: Mapping[str, str], roots: bytes, limits: Any) -> None:
        self._identity, self._names, self._limits = identity, names, limits
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
        self.address = f"{address.rpartition(':')[0]}:{port}"  # as really bound
        self._server.start()

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
        link.abandon = context.cancel
        if not context.add_callback(lambda: self._leave(link)):
            self._leave(link)
        context.send_initial_metadata((_WELCOME,))
        arguments = (requests, _gone(link.peer))
        threading.Thread(target=link.read, args=arguments, name=f"tacit-from-{link.peer}", daemon=True).start()
        try:
            self._waiting.put(link)
        except LinkError as error:
            link.finish(str(error))
        yield from link.frames_out()

    def _admit(self, context: grpc.ServicerContext) -> NetworkLink:
        """The link for a stream, if its peer is a pinned one and has not too many; `abort` raises."""
        shown = context.auth_context().get("x509_pem_cert", ())
        name = self._names.get(certificates.fingerprint(shown[0]), "") if len(shown) == 1 else ""
        if not name:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate is not a pinned one")
        link = NetworkLink(name, self._limits)
        with self._lock:
            admitted = sum(each.peer == name for each in self._links) < STREAMS
            if admitted:
                self._links.append(link)
        if not admitted:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{name} has {STREAMS} links already: close one")
        return link

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
    """Listen for the peers whose certificates are trusted, by their names; port 0 takes a free one.

    The limits are what may come over a new link; `link.limits` replaces them.
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

    link.abandon, link.release = call.cancel, release
    if not opened.wait(timeout):
        call.cancel()
        link.close()
        raise LinkError(f"{trusted_name} at {address} did not answer within {timeout:g} s")
    if _WELCOME in call.initial_metadata():
        return link
    code, details = call.code(), str(call.details())  # both wait for the end of the attempt
    link.close()
    if code is grpc.StatusCode.UNAVAILABLE:
        raise certificates.explain(details, address, identity, pinned)
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
