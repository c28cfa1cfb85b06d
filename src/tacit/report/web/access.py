"""Who may look: whoever has the token, by an address that is this machine's own, and with nothing but reading."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.errors import UsageError
from tacit.listening import called, is_here
from tacit.report.web import pages

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer says to the browser, where it does not say it in its own words."""

_LONG = 32  # signs of a token, at least
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{_LONG},256}}")
_BEARER = {"WWW-Authenticate": "Bearer"}
_WITHOUT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Tacit: a token is needed</title>
<h1>A token is needed</h1>
<p>This page shows what runs leak, so it is for the one who started it. Open the address that
<code>tacit dashboard</code> printed on its terminal; it ends in <code>?token=</code> and a long word. A new start makes
a new one.</p></html>
"""
_ONWARDS = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Tacit</title>
<meta http-equiv="refresh" content="0;url=/"><p><a href="/">Go on to the page</a></p></html>
"""


class Access:
    """The token of one server, and the names by which it may be called: its host's, and any loopback name.

    Cookies know no ports, so the cookie's name says which one it is for.
    """

    def __init__(self, *, host: str, port: int, token: str | None = None) -> None:
        self.token = secrets.token_urlsafe(32) if token is None else token  # whoever has it may look
        self.cookie = f"tacit-{port}"  # the cookie's name
        # what the cookie holds, from which the token can't be told
        self.session = hmac.digest(self.token.encode(), b"cookie of the live page", hashlib.sha256).hex()
        self._names = {"localhost", host.lower()}
        self._everywhere = host in ("0.0.0.0", "::")
        name = host
        if self._everywhere:
            name = socket.gethostname()
            self._names.add(name.lower())
        # of the page, with the token
        self.address = f"http://{f'[{name}]' if ':' in name else name}:{port}/?token={self.token}"

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server, and is not another site's name that was made to lead here."""
        name = called(host)
        if name is None or name in self._names or is_here(name):
            return name is not None
        try:  # no site can have a number for its name
            return self._everywhere and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def is_token(self, token: str) -> bool:
        """Whether this is the token; how long the answer takes says nothing about it."""
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def admits(self, headers: Headers) -> bool:
        """Whether a request has the token, as a bearer or by the cookie that was set for it."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(token.strip()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return hmac.compare_digest(cookie.encode(errors="replace"), self.session.encode())


class Guard:
    """Lets a request through to the app if it may pass, and sees that every answer says how it may be used."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_on)

    def _refusal(self, scope: Scope) -> Response | None:
        """What to say instead of the answer; None where the request may pass."""
        headers = Headers(scope=scope)
        if not self._access.knows(headers.get("host", "")):
            return refused(
                headers, 400, "this server does not go by that name: open the address that `tacit dashboard` printed"
            )
        if scope["method"] not in ("GET", "HEAD"):
            return refused(headers, 405, "this server is only read: use GET or HEAD", {"Allow": "GET, HEAD"})
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not _leads_here(scope["path"], headers):
            # a browser sends the cookie also for pages of this machine's other ports, which have no business here
            return refused(headers, 403, "another site's page asks: open the address that `tacit dashboard` printed")
        token = QueryParams(scope.get("query_string", b"")).get("token") if scope["path"] == "/" else None
        if token is not None and self._access.is_token(token):
            # a browser that another site sent here keeps a strict cookie, but would follow without it
            sent = headers.get("sec-fetch-site") == "cross-site"
            answer = HTMLResponse(_ONWARDS) if sent else RedirectResponse("/", status_code=303)
            answer.set_cookie(self._access.cookie, self._access.session, httponly=True, samesite="strict", path="/")
            return answer
        if token is None and self._access.admits(headers):
            return None
        if scope["path"] == "/" or _is_browser(headers):
            return HTMLResponse(_WITHOUT, status_code=401, headers=_BEARER)
        return refused(headers, 401, "a token is needed: open the address that `tacit dashboard` printed", _BEARER)


def refused(headers: Headers, status: int, text: str, extra: Mapping[str, str] | None = None) -> Response:
    """What went wrong, as a page for people and as JSON for programs."""
    if _is_browser(headers) and status in (404, 422, 500):
        return HTMLResponse(pages.refusal(status, text), status_code=status, headers=extra)
    return JSONResponse({"error": text}, status_code=status, headers=extra)


def _leads_here(path: str, headers: Headers) -> bool:
    """Whether somebody followed a link to the first page, in a window that no other site's page sees into."""
    way = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return path == "/" and way == ("navigate", "document")


def _is_browser(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "")


def token_in(path: Path) -> str:
    """The token in a file that only its owner can read; where there is no file, one is made with a fresh token."""
    if not path.exists():
        token = secrets.token_urlsafe(32)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as made:
                made.write(token + "\n")
        except OSError as error:
            raise UsageError(
                f"--token-file {path} can't be made ({error.strerror}): name a file in a folder that exists"
            ) from None
        return token
    if not path.is_file():
        raise UsageError(f"--token-file {path} is no file: name one, or a new one in a folder that exists")
    with path.open("rb") as opened:
        status = os.fstat(opened.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise UsageError(f"--token-file {path} can be read by others: `chmod 600 {path}`, or name a new file")
        token = opened.read(1024).strip().decode(errors="replace")
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"--token-file {path} holds no token ({_LONG} or more letters, digits, - and _, nothing else): name a new "
            "file, and one is made there"
        )
    return token
