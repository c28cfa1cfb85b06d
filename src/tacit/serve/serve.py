"""`tacit serve`: a feature party answers its partner, the label party answers its own network over HTTP."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch
from uvicorn import Server

from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.errors import UsageError
from tacit.listening import http_server, is_loopback, listen
from tacit.serve.answering import Answering, FeatureService
from tacit.serve.endpoint import label_app, watch_app
from tacit.serve.halves import Embedder, Scorer, load_embedder, load_scorer, pin
from tacit.serve.job import alone
from tacit.serve.live import LiveModel
from tacit.serve.log import Log, Seldom, log_to_stderr
from tacit.serve.rows import ServedTable
from tacit.wire.line import given_up

TOKEN = "TACIT_SERVE_TOKEN"
"""The variable that holds the token which requests need."""

_LONG = 32  # signs of a token, at least
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/-]{{{_LONG},4096}}=*")
_HOW = "for example to what `openssl rand -hex 32` prints"
_ADDRESS = "127.0.0.1:7080"
_GRACE = 30  # seconds for answers that are under way when the service stops
Told = Callable[[str], None]
"""Told the address of the HTTP endpoint, when it listens."""


def serve(
    path: Folder | str | Path,
    *,
    http: str | None = None,
    behind_proxy: bool = False,
    wait: float = math.inf,
    told: Told = lambda _: None,
    log: Log = log_to_stderr,
    override: str | None = None,
    reason: str | None = None,
) -> None:
    """Serve until a SIGTERM or Ctrl-C comes; what is under way then is answered.

    Args:
        path: the party's folder.
        http: host and port of the endpoint; that of party.toml if not given.
        behind_proxy: whether a reverse proxy stands before it that ends slow clients; without one it listens on this
            machine alone.
        wait: how many seconds the service goes on without any partner; then it is a `GaveUpError`.
        told: told its address.
        log: told what happens.
        override: the name of somebody who lets a model be used though its limit was not held; on record.
        reason: why; on record.
    """
    folder, where = find_run(path)
    log = Seldom(log)
    http = http or folder.config.serve.http
    _token()  # one that is none is said before a model is read
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    folder.check_pair(folder.terms)
    with alone(where):
        if folder.config.role == "features":
            half = load_embedder(path, "serving", override=override, reason=reason)
            with ExitStack() as stack:
                taken = None if http is None else stack.enter_context(_listening(http, behind_proxy))
                _serve_features(folder, where, half, taken, wait, told, log)
            return
        with _listening(http or _ADDRESS, behind_proxy) as taken:
            scorer = load_scorer(path, "serving", override=override, reason=reason)
            asyncio.run(_serve_label(folder, where, scorer, taken, wait, told, log))


# --- the label party -------------------------------------------------------------------------------------------------


async def _serve_label(
    folder: Folder, where: Path, scorer: Scorer, taken: socket.socket, wait: float, told: Told, log: Log
) -> None:
    """Answer at this socket until the service is stopped."""
    pin(where, folder.config.name, scorer.digest)

    model = LiveModel(folder, where, scorer, log)
    server = http_server(label_app(model, _token(), log), grace=_GRACE)
    log("serving", run=model.name, http=_address(taken), fallback=model.fallback)
    told(_address(taken))
    watch = asyncio.create_task(_alone(model, server, wait))
    with _signals(lambda: None):  # uvicorn ends by signals itself, and hands them on when it is done
        await server.serve(sockets=[taken])
    watch.cancel()
    await model.close()
    log("stopped")
    with suppress(asyncio.CancelledError):
        await watch


async def _alone(model: LiveModel, server: Server, wait: float) -> None:
    """End the service where no partner has been there for so many seconds."""
    gone = time.monotonic()
    while time.monotonic() - gone <= wait:
        await asyncio.sleep(min(1.0, wait))
        if any(partner.connected() for partner in model.partners.values()):
            gone = time.monotonic()
    server.should_exit = True
    raise given_up(", ".join(model.partners), wait)


# --- a feature party -------------------------------------------------------------------------------------------------


def _serve_features(
    folder: Folder, where: Path, half: Embedder, taken: socket.socket | None, wait: float, told: Told, log: Log
) -> None:
    pin(where, folder.config.name, half.digest)
    answering = Answering(folder, where, half, ServedTable(folder, half.columns), log)
    service = FeatureService(folder, half, answering, log, wait=wait)
    log("serving", run=folder.terms.run, rows=answering.known)
    with ExitStack() as stack:
        if taken is not None:
            stack.enter_context(_watched(answering, taken, log))
            told(_address(taken))
        stack.enter_context(_signals(service.over.set))
        service.run()
    log("stopped")


@contextmanager
def _watched(answering: Answering, taken: socket.socket, log: Log) -> Iterator[None]:
    """A small endpoint in a thread of its own."""

    def ready() -> tuple[bool, dict[str, bool]]:
        return answering.connected, {"connected": answering.connected}

    server = http_server(watch_app(answering.metrics, ready, _token(), log), grace=_GRACE)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


# --- both ------------------------------------------------------------------------------------------------------------


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """A SIGTERM, or Ctrl-C, is the way in which a service ends, and not an accident."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, lambda *_: stop()) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _listening(address: str, behind_proxy: bool) -> Iterator[socket.socket]:
    """A port, which others can only reach through a proxy and with a token."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--http {address}: write host and port, as 127.0.0.1:7080")
    host = host.strip("[]")
    if not is_loopback(host):
        if not behind_proxy:
            raise UsageError(
                f"{address} can be reached from other machines, and slow clients are not ended here: listen at "
                "127.0.0.1 behind a reverse proxy, as deploy/nginx-score.conf, or give --behind-proxy where one stands "
                "before this address"
            )
        if _token() is None:
            raise UsageError(f"{address} can be reached from other machines: set {TOKEN}, {_HOW}")
    try:
        taken = listen(host, int(port))
    except OSError as error:
        raise UsageError(f"can't listen at {address} ({error.strerror}): name another port with --http") from None
    try:
        yield taken
    finally:
        taken.close()


def _token() -> str | None:
    """The token that requests need; None for none."""
    token = os.environ.get(TOKEN) or None
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError(f"{TOKEN} is no token of {_LONG} signs or more without blanks: set it anew, {_HOW}")
    return token


def _address(taken: socket.socket) -> str:
    host, port = taken.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
