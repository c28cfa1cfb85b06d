"""The HTTP endpoint: scores, health, readiness and metrics, on the party's own network."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import DataError
from tacit.listening import called, is_here
from tacit.serve.asked import WrongRequestError, parsed
from tacit.serve.live import LiveModel
from tacit.serve.log import Log
from tacit.serve.metrics import Metrics

Ready = Callable[[], tuple[bool, Mapping[str, Any]]]
"""Whether the service is ready, and why."""


def _json(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content), status, dict(headers or {}), "application/json")


class _Watched:
    """What both sides answer: whether they live, are ready, and what they have counted."""

    def __init__(self, metrics: Metrics, ready: Ready, token: str | None, log: Log) -> None:
        self.metrics, self._ready, self._token, self._log = metrics, ready, token, log

    def app(self, *more: Route) -> ASGIApp:
        """The app, with further routes."""
        routes = [
            Route("/health", self._health), Route("/ready", self._is_ready), Route("/metrics", self._metrics), *more
        ]  # fmt: skip
        handlers = {HTTPException: self._refused, WrongRequestError: self._wrong, Exception: self._failed}
        app = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]
        return _Local(app) if self._token is None else app

    def admit(self, request: Request) -> None:
        """Refuse whoever has not got the token."""
        if self._token is None:
            return
        kind, _, said = request.headers.get("authorization", "").partition(" ")
        if (
            not hmac.compare_digest(said.strip().encode(errors="replace"), self._token.encode())
            or kind.lower() != "bearer"
        ):
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})

    async def _health(self, _request: Request) -> Response:
        return _json({"alive": True})

    async def _is_ready(self, _request: Request) -> Response:
        ready, why = self._ready()
        return _json({"ready": ready, **why}, 200 if ready else 503)

    async def _metrics(self, request: Request) -> Response:
        self.admit(request)
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _refused(self, _request: Request, error: HTTPException) -> Response:
        self.metrics.http.labels(str(error.status_code)).inc()
        return _json({"error": error.detail}, error.status_code, error.headers)

    async def _wrong(self, _request: Request, error: WrongRequestError) -> Response:
        self.metrics.http.labels(str(error.status)).inc()
        return _json({"error": str(error), **error.where}, error.status)

    async def _failed(self, _request: Request, error: Exception) -> Response:
        """A bug of ours; what it says may hold ids, and is in no log."""
        self.metrics.http.labels("500").inc()
        self._log("bug", error=type(error).__name__, where=_where(error))
        return _json({"error": "this is a bug in tacit: its log says where"}, 500)


class _Local:
    """Without a token: an app for programs of this machine, not for what a site makes a browser here ask."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if not is_here(called(headers.get("host", "")) or ""):
                app = _json({"error": "this service does not go by that name: ask 127.0.0.1, or set a token"}, 400)
            elif "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                app = _json({"error": "a page of a site asks: set a token, and let a program bring it"}, 403)
        await app(scope, receive, send)


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def watch_app(metrics: Metrics, ready: Ready, token: str | None, log: Log) -> ASGIApp:
    """A feature party's: nothing but watching."""
    return _Watched(metrics, ready, token, log).app()


def label_app(model: LiveModel, token: str | None, log: Log) -> ASGIApp:
    """A label party's."""

    def ready() -> tuple[bool, Mapping[str, Any]]:
        there = {name: partner.connected() for name, partner in model.partners.items()}
        return model.ready, {"fallback": model.fallback, "connected": there}

    watched = _Watched(model.metrics, ready, token, log)
    return watched.app(Route("/score", _Scores(model, watched).score, methods=["POST"]))


class _Scores:
    """Answers /score."""

    def __init__(self, model: LiveModel, watched: _Watched) -> None:
        self._model, self._watched = model, watched
        self._rows = 0  # under way

    async def score(self, request: Request) -> Response:
        began = time.monotonic()
        self._watched.admit(request)
        model = self._model
        asked = model.form.read(parsed(await self._body(request)))
        if self._rows + len(asked) > model.settings.waiting_rows:
            raise HTTPException(503, "too many rows are under way: ask again in a moment", {"Retry-After": "1"})
        self._rows += len(asked)
        try:
            scored = await model.scored(asked)
        except DataError as error:
            raise WrongRequestError(str(error), status=422) from None
        finally:
            self._rows -= len(asked)
        model.metrics.http.labels("200").inc()
        model.metrics.seconds.observe(time.monotonic() - began)
        said = {"scores": scored.scores, "basis": scored.basis, "reason": scored.reason, "versions": model.versions}
        return _json(said)

    async def _body(self, request: Request) -> bytes:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "the body must be application/json")
        most = self._model.settings.request_bytes
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise HTTPException(413, f"the body has more than {most} bytes", {"Connection": "close"})
        except ClientDisconnect:
            raise HTTPException(400, "the body is not whole") from None
        return bytes(body)
