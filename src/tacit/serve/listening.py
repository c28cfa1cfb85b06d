"""A port on the party's own network."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from tacit.errors import UsageError


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach host and port."""
    host = str(_found(address)[4][0])
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def listen(address: str) -> socket.socket:
    """A socket that listens at host and port; port 0 takes a free one."""
    family, kind, protocol, _, where = _found(address)
    made = socket.socket(family, kind, protocol)  # asyncio sends without delay where it is known to be TCP
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(1024)
    except OSError as error:
        made.close()
        raise UsageError(f"can't listen at {address} ({error.strerror}): name another port with --http") from None
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
