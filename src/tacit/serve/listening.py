"""A port on the party's own network, and how long a client may take there."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.errors import UsageError


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach host and port."""
    host = str(_found(address)[4][0])
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def listen(address: str) -> socket.socket:
    """A socket that listens at host and port; port 0 takes a free one."""
    try:
        return listening_at(_found(address))
    except OSError as error:
        raise UsageError(f"can't listen at {address} ({error.strerror}): name another port with --http") from None


def listening_at(found: Any) -> socket.socket:
    """A socket that listens where an entry of `getaddrinfo` says; an `OSError` where it can't."""
    family, kind, protocol, _, where = found
    made = socket.socket(family, kind, protocol)  # asyncio sends without delay where it is known to be TCP
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(1024)
    except OSError:
        made.close()
        raise
    return made


def _found(address: str) -> Any:
    """The first meaning of host and port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--http {address}: write host and port, as 127.0.0.1:7080")
    try:
        return socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--http {address}: {error}: name a host of this machine") from None


class Patient(H11Protocol):
    """HTTP with a client that has some seconds to bring a whole request.

    Without it, whoever begins requests and does not end them has connections for ever, until nobody else gets one.
    """

    SECONDS = 10.0
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """More of a request, or the rest of it."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """It may go on with what has come meanwhile of the next request."""
        super().on_response_complete()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP; after an answer that has begun there is no place for it, only an end."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._stop()

    def _look(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop()
        elif self._end is None:
            self._end = self.loop.call_later(self.SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
