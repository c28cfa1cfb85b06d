"""A port on the party's own network."""

from __future__ import annotations

import ipaddress
import socket

from tacit.errors import UsageError

__all__ = ["is_loopback", "listen"]


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--http {address}: write host and port, as 127.0.0.1:7080")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach host and port."""
    host, port = _parts(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


def listen(address: str) -> socket.socket:
    """A socket that listens at host and port; port 0 takes a free one."""
    host, port = _parts(address)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)  # asyncio sends without delay where it is known to be TCP
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--http {address}: {error}: name a host of this machine") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(1024)
    except OSError as error:
        made.close()
        raise UsageError(f"can't listen at {address} ({error.strerror}): name another port with --http") from None
    return made
