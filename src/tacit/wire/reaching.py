"""The way to a peer's address: straight, or through the HTTP proxy that the environment names."""

from __future__ import annotations

import base64
import socket
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack

from tacit.errors import LinkError

_ANSWER = 8192  # bytes of a proxy's answer, at most


def reach(address: str, name: str, timeout: float) -> socket.socket:
    """A TCP connection to an address. A `LinkError` says what is wrong; one that only takes long is a `TimeoutError`.

    Args:
        address: host and port.
        name: whose they are.
        timeout: how many seconds it may take.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    proxy, until = _proxy(host), time.monotonic() + timeout
    where = f"{name} at {address}" + ("" if proxy is None else f", through the proxy {proxy.hostname}")
    try:
        if proxy is None:
            return socket.create_connection((host, int(port)), timeout)
        with ExitStack() as failing:
            through = failing.enter_context(socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout))
            _tunnel(through, address, proxy, where, until)
            failing.pop_all()
        return through
    except (socket.gaierror, UnicodeError):  # the latter for what no name can be, as "a..b"
        raise LinkError(f"the name in the address of {where} is not known here: see whether it is right") from None
    except ConnectionRefusedError:
        raise LinkError(f"nothing listens for {where}: see whether {name} runs and the address is right") from None


def _proxy(host: str) -> urllib.parse.SplitResult | None:
    """The proxy for a host, as environment variables have it: https_proxy, then http_proxy, but for no_proxy."""
    known = urllib.request.getproxies_environment()
    named = known.get("https") or known.get("http")
    if not named or urllib.request.proxy_bypass(host):
        return None
    return urllib.parse.urlsplit(named if "//" in named else f"//{named}")


def _tunnel(through: socket.socket, address: str, proxy: urllib.parse.SplitResult, where: str, until: float) -> None:
    """Ask a proxy to pass bytes on."""
    if proxy.scheme not in ("", "http"):  # a password would go in the clear, or to what speaks something else
        raise LinkError(f"{where}: the proxy is spelled {proxy.scheme}://, and only http:// is spoken with one")
    login = f"{urllib.parse.unquote(proxy.username or '')}:{urllib.parse.unquote(proxy.password or '')}"
    header = f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n" if proxy.username else ""
    through.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{header}\r\n".encode())
    said = b""
    while b"\r\n\r\n" not in said and len(said) < _ANSWER:
        through.settimeout(max(until - time.monotonic(), 0.001))
        piece = through.recv(1)  # not a byte of what comes after the answer
        if not piece:
            break
        said += piece
    first = said.split(b"\r\n")[0].decode("ascii", "replace")
    if len(words := first.split()) < 2 or words[1] != "200":
        raise LinkError(f"the connection to {where}, is refused with {first[:80]!r}: see what the proxy allows")
