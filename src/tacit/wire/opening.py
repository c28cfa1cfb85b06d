"""How a connection begins: TLS 1.3 between pinned certificates, and the few words before it is a link."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress

from tacit.wire import certificates
from tacit.wire.certificates import Identity
from tacit.wire.network_link import LENGTH, Secured


def pinned_tls(protocol: int, identity: Identity, roots: bytes) -> ssl.SSLContext:
    """TLS 1.3, our certificate, and no other than pinned ones from the other side."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_ecdh_curve("X25519")  # others may take a hundred times as long, of a stranger's choice
    context.check_hostname = False  # the certificate itself is the one that is pinned, whatever it names
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=roots.decode())
    certificates.show(context, identity)
    return context


def framed(word: bytes) -> bytes:
    """As it goes over the connection."""
    return LENGTH.pack(len(word)) + word


OPENING = 1 << 14
"""Bytes in which a hello, a certificate and a first word must be whole: nobody is known by then."""


class Opening(Secured):
    """A connection to somebody who has yet to show who it is, and what it wants."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, *, server: bool = False) -> None:
        super().__init__(plain, context, server=server)
        self._left = OPENING

    def listen(self) -> None:
        """Take what is there; a `ValueError` where the few words of an opening are not whole by then."""
        if not self._left:
            raise ValueError(f"it has sent {OPENING} bytes, and said nothing yet")
        self._left -= self.take(memoryview(bytearray(self._left)))

    def fileno(self) -> int:
        """Of the socket: what may be waited for."""
        return self.plain.fileno()

    def shake(self) -> bool:
        """Go on with the handshake, as far as what was taken allows; whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            with suppress(OSError):  # the other side is told why not; that it does not hear it is another matter
                self.plain.sendall(self._goes.read())
        return True

    @property
    def shown(self) -> str:
        """The fingerprint of the certificate that the other side has shown."""
        der = self._tls.getpeercert(binary_form=True)
        return certificates.fingerprint(ssl.DER_cert_to_PEM_cert(der).encode()) if der else ""

    def say(self, word: bytes) -> None:
        """Send a word."""
        self.plain.sendall(self.encrypt(framed(word)))

    def heard(self, size: int) -> bytes:
        """A few bytes, as far as they were taken."""
        room = bytearray(size)
        return bytes(room[: self.decrypt(memoryview(room))])

    def next_word(self, until: float) -> bytes:
        """A listener's word. TLS 1.3 is done here before it has judged our certificate: its first word says that."""
        found, size = b"", LENGTH.size
        while len(found) < size:
            piece = self.heard(size - len(found))
            if not piece:
                self.take_until(until)
            found += piece
            if size == LENGTH.size == len(found):
                size += min(LENGTH.unpack(found)[0], 1024)
        return found[LENGTH.size :]

    def take_until(self, until: float) -> None:
        """Take what comes by this time, or raise a `TimeoutError`."""
        left = until - time.monotonic()
        if left <= 0.0:  # also where something comes all the time
            raise TimeoutError
        self.plain.settimeout(left)
        self.listen()
