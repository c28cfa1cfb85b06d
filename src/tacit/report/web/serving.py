"""The live page's server: a port and a token."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from pathlib import Path

from tacit import listening
from tacit.errors import UsageError
from tacit.listening import http_server
from tacit.report.web.access import Access
from tacit.report.web.app import make_app
from tacit.report.web.shelf import Shelf

PORT = 7860
"""The first port that is tried."""

_TRIES = 100
_GRACE = 2  # seconds for answers that are under way when the server stops


class Dashboard:
    """A server of the live page, which has its port from the start: 0 is any, None the first free one from 7860 on.

    Whoever looks needs its token. Runs under the roots are looked for again after so many seconds.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        token: str | None = None,
        every: float = 3.0,
    ) -> None:
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]  # where it listens
        # localhost may stand for two addresses, and at the other one somebody else may listen, who would get the token
        called = self._socket.getsockname()[0] if host == "localhost" else host
        self.access = Access(host=called, port=self.port, token=token)  # its token and its address
        self.shelf = Shelf(roots, every=every)  # the places that it shows
        # what goes wrong in an answer is logged by the app; the token must be in no log
        self._server = http_server(make_app(self.shelf, self.access), grace=_GRACE)

    def run(self) -> None:
        """Serve until Ctrl-C, a SIGTERM or `stop`."""
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:  # uvicorn has ended well, and hands the signal on
            return
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let `run`, in another thread, come to its end."""
        self._server.should_exit = True


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens at a port, or at the first free one."""
    tries = range(PORT, PORT + _TRIES) if port is None else (port,)
    for number in tries:
        try:
            return listening.listen(host, number)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            remedy = "a port above 1023" if error.errno == errno.EACCES else "an address of this machine"
            raise UsageError(f"can't listen at {host}, port {number} ({error.strerror}): give {remedy}") from None
    if port is None:
        raise UsageError(f"ports {PORT} to {PORT + _TRIES - 1} are all taken: give another with --port")
    raise UsageError(f"port {port} is taken: give another with --port, or none for the next that is free")
