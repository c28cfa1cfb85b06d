"""Links between machines: TCP with mutual TLS 1.3, where each side takes exactly the certificates that it has pinned.

One connection is one link. Each frame of the codec goes after its length, in four bytes.
"""

from __future__ import annotations

import errno
import resource
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from tacit.errors import DataError, LinkError, RefusedError, UsageError
from tacit.wire import certificates
from tacit.wire.certificates import Certificate, Identity
from tacit.wire.codec import Limit
from tacit.wire.line import Arrivals
from tacit.wire.network_link import LENGTH, NetworkLink, in_words
from tacit.wire.opening import Opening, framed, pinned_tls
from tacit.wire.reaching import reach

CONNECTIONS = 4096  # strangers at a time; half of all files that may be open where that is less
STREAMS = 4  # links of one peer at a time: a peer that reconnects may be faster than the end of its old link is noticed
HANDSHAKE_SECONDS = 10.0  # who does not finish TLS in that time does not stay

_FILES = 3  # of a link: its socket, and a pipe
_LEFT = 32  # connections of strangers that there is room for, whoever has links
_UNPINNED = (
    "not connected, but somebody showed a certificate that is not pinned or has expired: where the peer has a new one, "
    "compare fingerprints by phone, then `tacit trust` it with --replace"
)
WELCOME = b"tacit link 2"  # the listener's first frame, and its answer to the same one; another answer says why not


# --- the side that listens -------------------------------------------------------------------------------------------


class Server:
    """Takes links from the pinned peers and from nobody else. `listen` starts it.

    Anybody can open a TCP connection. One that shows no certificate in ten seconds is closed, and there are
    `CONNECTIONS` at a time, of which none takes a file that the process needs for something else: where there are more,
    the one that has waited longest goes.
    """

    def __init__(
        self, address: str, identity: Identity, names: Mapping[str, str], roots: bytes, limits: Mapping[str, Limit]
    ) -> None:
        self._names, self._limits = names, limits
        self._context = pinned_tls(ssl.PROTOCOL_TLS_SERVER, identity, roots)
        self._context.num_tickets = 0  # nobody comes back to a session
        self._most = min(CONNECTIONS, allow_files(2 * CONNECTIONS) // 2)
        self._lock = threading.Lock()
        self._links: list[NetworkLink] = []
        self._arrivals = Arrivals(identity.name)
        self.accept = self._arrivals.accept
        self._strangers: dict[Opening, float] = {}  # until when each may take, the longest here first
        self._known: dict[Opening, str] = {}  # those of them that have shown a pinned certificate: whose it is
        self.missing = "not connected"  # what there is to say about a peer that is not there
        self._over = False
        self._listener = bound(address, identity.name)
        self.address = f"{address.rpartition(':')[0]}:{self._listener.getsockname()[1]}"  # as really bound
        self._listener.setblocking(False)
        self._woken, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._door = threading.Thread(target=self._attend, name="tacit-door", daemon=True)
        self._door.start()

    def close(self) -> None:
        """End all links as their `close` does, and stop listening."""
        if self._over:
            return
        self._over = True
        self._arrivals.close()
        with suppress(OSError):  # the door's thread may have seen it by itself, and be gone
            self._wake.send(b"x")
        self._door.join()
        self._wake.close()
        ending = list(self._links)  # nobody makes another one now
        for link in ending:  # all at once: a peer that does not hang up is waited for some seconds
            link.close(0.0)
        for link in ending:
            link.close()

    # --- the door: one thread for all that have not shown who they are ---

    def _attend(self) -> None:
        while not self._over:
            first = next(iter(self._strangers.values()), None)
            patience = None if first is None else max(first - time.monotonic(), 0.0)
            for key, _ in self._selector.select(patience):
                if key.fileobj is self._listener:
                    self._open()
                elif isinstance(key.fileobj, Opening) and key.fileobj in self._strangers:
                    self._heed(key.fileobj)
            for late in [one for one, until in self._strangers.items() if until <= time.monotonic()]:
                self._drop(late)
        for stranger in list(self._strangers):
            self._drop(stranger)
        self._selector.close()
        for one in (self._listener, self._woken):
            one.close()

    def _open(self) -> None:
        """Take a connection, whoever it is of."""
        while len(self._strangers) >= max(self._most - _FILES * len(self._links), _LEFT):
            self._drop(next(iter(self._strangers)))
        try:
            plain, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # whoever waits still waits: not at full speed
                time.sleep(0.05)
            return  # else it is gone again
        plain.setblocking(False)
        try:
            secured = Opening(plain, self._context, server=True)
        except (OSError, MemoryError):
            plain.close()
            return
        self._strangers[secured] = time.monotonic() + HANDSHAKE_SECONDS
        self._selector.register(secured, selectors.EVENT_READ)

    def _drop(self, stranger: Opening) -> None:
        self._forget(stranger)
        stranger.plain.close()

    def _forget(self, stranger: Opening) -> None:
        self._known.pop(stranger, None)
        del self._strangers[stranger]
        self._selector.unregister(stranger)

    def _heed(self, stranger: Opening) -> None:
        """Go on with a handshake, or hear the word that makes a link of the connection of one that is known."""
        try:
            stranger.listen()
            if stranger not in self._known:
                if stranger.shake():
                    self._known[stranger] = self._names[stranger.shown]
                    stranger.say(WELCOME)
            elif said := stranger.heard(LENGTH.size + len(WELCOME) + 1):
                self._admit(stranger, self._known[stranger], said)
        except BlockingIOError:  # it is gone again, or takes nothing, and then it will not come to an end in time
            return
        except (OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError) as error:  # TLS has told it why
            if isinstance(error, ssl.SSLCertVerificationError | KeyError):
                self.missing = _UNPINNED
            with suppress(OSError, ValueError):  # with something unread, closing it would take its last words along
                stranger.listen()
            self._drop(stranger)

    def _admit(self, secured: Opening, name: str, said: bytes) -> None:
        """Make a link of a connection whose peer wants one, if it has not too many; what fails here closes it."""
        if said != framed(WELCOME):  # who only looks whether we are there says nothing
            self._drop(secured)
            return
        link = NetworkLink(name, self._limits, secured, self._leave)
        self._forget(secured)
        with self._lock:
            free = sum(each.peer == name for each in self._links) < STREAMS
            word = WELCOME if free else f"{name} has {STREAMS} links already: close one".encode()
            try:
                if free:
                    link.start()  # its end waits for this lock
                    self._links.append(link)
                secured.say(word)
            except (OSError, ValueError, RuntimeError):  # no thread, no file, or nobody there
                if link in self._links:
                    link.end(f"the link to {name} could not be made")
                return
            finally:
                if not free:
                    secured.plain.close()
            if free:
                self._arrivals.add(link)

    def _leave(self, link: NetworkLink) -> None:
        with self._lock:
            self._links.remove(link)


def bound(address: str, name: str) -> socket.socket:
    """Where the party of this name listens."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, int(port)), family=family, backlog=256, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:  # the latter for what no name can be, as "a..b"
        raise LinkError(
            f"{name} can't listen on {address} ({getattr(error, 'strerror', None) or 'it is no name'}): end what "
            "listens there (`ss -ltnp` shows it), or write another address under [network] listen, and at the peers "
            "under connect"
        ) from None


def allow_files(many: int) -> int:
    """Let this process have so many files open, as far as the system allows; how many it may have now."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    allowed = max(soft, min(many, hard))
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, limits[1]))
    return allowed


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
    link = NetworkLink(trusted_name, limits, _secured(address, identity, trusted_name, trusted_pem, timeout))
    try:
        link.start()
    except (OSError, RuntimeError) as error:
        raise LinkError(f"there is no file or thread for a link to {trusted_name}: {in_words(error)}") from None
    return link


def look(address: str, identity: Identity, trusted_name: str, trusted_pem: bytes, timeout: float = 10.0) -> None:
    """See whether a peer listens, is the pinned one and takes our certificate; the errors are those of `connect`.

    Nothing but the handshake is said, so that a run of the peer goes on with the link that it has.
    """
    _secured(address, identity, trusted_name, trusted_pem, timeout, looking=True).plain.close()


def _secured(
    address: str, identity: Identity, trusted_name: str, trusted_pem: bytes, timeout: float, *, looking: bool = False
) -> Opening:
    """A connection on which both sides have taken the other's certificate and, unless we only look, made it a link."""
    pinned = certificates.read(trusted_pem, dates=False)
    if pinned.name != trusted_name:
        raise UsageError(f"the certificate pinned for {trusted_name} is that of {pinned.name}")
    _check_dates("our certificate", identity.cert_pem)
    _check_dates("the pinned certificate", trusted_pem)
    until, where = time.monotonic() + timeout, f"{trusted_name} at {address}"
    context = pinned_tls(ssl.PROTOCOL_TLS_CLIENT, identity, trusted_pem)
    met = False  # whether it is the pinned one that we talk to
    with ExitStack() as failing:  # whatever fails closes the connection
        try:
            plain = failing.enter_context(reach(address, trusted_name, timeout))
            secured = Opening(plain, context)
            while not secured.shake():
                secured.take_until(until)
            if secured.shown != pinned.fingerprint:
                raise _another(where, pinned, "another one")
            met = True
            first = secured.next_word(until)
            if first == WELCOME and not looking:
                secured.say(WELCOME)
                first = secured.next_word(until)
        except TimeoutError:
            raise LinkError(f"{where} did not answer within {timeout:g} s") from None
        except (OSError, EOFError, ValueError) as error:
            raise _explained(error, where, identity, pinned, met=met) from None
        if first != WELCOME:
            text = "".join(letter for letter in first[:200].decode("ascii", "ignore") if letter.isprintable())
            raise LinkError(f"{where} takes no link from us: {text}")
        failing.pop_all()
    return secured


def _check_dates(what: str, pem: bytes) -> None:
    try:
        certificates.read(pem)
    except DataError as error:
        raise RefusedError("certificate", f"{what} can't be used: {error}") from None


def _another(where: str, pinned: Certificate, wrong: str) -> RefusedError:
    return RefusedError(
        "certificate",
        f"{where} should show the certificate {pinned.fingerprint} and shows {wrong}: ask {pinned.name} which "
        "is right, by phone; if it made a new one, tacit trust it",
    )


def _explained(
    error: Exception, where: str, identity: Identity, pinned: Certificate, *, met: bool
) -> LinkError | RefusedError:
    """What TLS or the network says about a connection that could not be made, in words that help.

    An alert before the pinned one is met may be of anybody on the way, and does not end a run; another certificate
    does: somebody has to look at that.
    """
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        expired = "expired" in error.verify_message
        return _another(where, pinned, "one that has expired" if expired else "another one")
    if met and "ALERT" in reason and any(word in reason for word in ("CERT", "UNKNOWN_CA", "DECRYPT")):
        ours = certificates.fingerprint(identity.cert_pem)
        return RefusedError(
            "certificate",
            f"{where} does not take our certificate {ours} of {identity.name}: it trusts another one, or none, or its "
            f"clock says that ours is not valid; let {pinned.name} trust the present one with tacit trust",
        )
    if reason == "WRONG_VERSION_NUMBER":
        return LinkError(f"what listens for {where} does not speak TLS: see whether the address is right")
    return LinkError(f"the connection to {where} could not be made: {in_words(error)}")
