"""HTTP on this machine or on the party's own network: a port, a server, and how long a client may take there."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.errors import UsageError


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's name or address."""
    return all(ipaddress.ip_address(str(found[4][0]).partition("%")[0]).is_loopback for found in _found(host, 0))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, so that nobody else can take the port; 0 is a free one. An `OSError` if it can't."""
    family, kind, protocol, _, where = _found(host, port)[0]
    made = socket.socket(family, kind, protocol)  # asyncio sends without delay where it is known to be TCP
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(1024)
    except OSError:
        made.close()
        raise
    return made


def _found(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{host} is no address of this machine ({error}): name one, such as 127.0.0.1") from None


def http_server(app: ASGIApp, *, grace: int) -> uvicorn.Server:
    """A server that logs nothing itself; answers under way have so many seconds when it stops."""
    return uvicorn.Server(
        uvicorn.Config(
            app, http=Patient, ws="none", lifespan="off", loop="asyncio", access_log=False, log_config=None,
            log_level="critical", server_header=False, proxy_headers=False, timeout_graceful_shutdown=grace,
        )
    )  # fmt: skip


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
