"""Connections that say nothing, or half a request, are ended: each holds a line that a page may need."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PatientProtocol"]

_UNFINISHED = (h11.IDLE, h11.SEND_BODY)


class PatientProtocol(H11Protocol):
    """A connection on which a request must be whole some seconds after it began; answers may take longer.

    Attributes:
        seconds: that a request may take to come in, from its first byte or from the beginning of the connection.
    """

    seconds = 10.0
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what came; where it is a part of a request, its time runs."""
        super().data_received(data)
        if self.conn.their_state in _UNFINISHED:
            self._wait()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._end is None:
            self._end = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
