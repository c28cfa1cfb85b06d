"""HTTP on this machine, or behind a proxy on the party's own network: a port, a server, and the name it is called by.

The server waits for slow clients as long as they like: a proxy before it ends them (`deploy/nginx-score.conf`), and
without one only this machine reaches it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tacit.errors import UsageError

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


def called(header: str) -> str | None:
    """The name or number in a Host header; None where there is none."""
    match = _HOST.fullmatch(header)
    return None if match is None else match[1].strip("[]").lower()


def is_here(name: str) -> bool:
    """Whether a name or number stands for this machine alone, and is not another site's that was made to lead here."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


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
            app, http="h11", ws="none", lifespan="off", loop="asyncio", access_log=False, log_config=None,
            log_level="critical", server_header=False, proxy_headers=False, timeout_graceful_shutdown=grace,
        )
    )  # fmt: skip
