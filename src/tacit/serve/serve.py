"""`tacit serve`: a feature party answers its partner, the label party answers its own network over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.errors import UsageError
from tacit.serve.answering import Answering, FeatureService
from tacit.serve.endpoint import label_app, watch_app
from tacit.serve.halves import Embedder, Scorer, load_embedder, load_scorer, pin
from tacit.serve.job import alone
from tacit.serve.listening import http_server, is_loopback, listen
from tacit.serve.live import LiveModel
from tacit.serve.online import Log, Metrics, Seldom, log_to_stderr
from tacit.serve.rows import open_rows
from tacit.serve.traffic import Traffic, reported

TOKEN = "TACIT_SERVE_TOKEN"
"""The variable that holds the token which requests need."""

_ADDRESS = "127.0.0.1:7080"
_GRACE = 30  # seconds for answers that are under way when the service stops
_ABOUT = {
    "tacit_serve_http_total": "Answers to requests, by their code.",
    "tacit_serve_request_seconds": "Time that an answer with scores took.",
    "tacit_serve_rows_total": "Rows that were scored, by their basis.",
    "tacit_serve_messages_total": "Messages to a partner.",
    "tacit_serve_refusals_total": "Messages that a partner refused, by why.",
    "tacit_serve_cache_total": "Embeddings that were looked for among those that came before.",
    "tacit_serve_connected": "Whether a partner is connected.",
}

Told = Callable[[str], None]
"""Told the address of the HTTP endpoint, when it listens."""


def serve(
    path: Folder | str | Path,
    *,
    http: str | None = None,
    told: Told = lambda _: None,
    log: Log = log_to_stderr,
    override: str | None = None,
    reason: str | None = None,
) -> None:
    """Serve until a SIGTERM or Ctrl-C comes; what is under way then is answered.

    Args:
        path: the party's folder.
        http: host and port of the endpoint; that of party.toml if not given.
        told: told its address.
        log: told what happens.
        override: the name of somebody who lets a model be used though its limit was not held; on record.
        reason: why; on record.
    """
    folder, where = find_run(path)
    log = Seldom(log)
    http = http or folder.config.serve.http
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    folder.check_pair(folder.terms)
    with alone(where):
        if folder.config.role == "features":
            half = load_embedder(path, "serving", override=override, reason=reason)
            _serve_features(folder, where, half, http, told, log)
            return
        with _listening(http or _ADDRESS) as taken:
            scorer = load_scorer(path, "serving", override=override, reason=reason)
            asyncio.run(_serve_label(folder, where, scorer, taken, told, log))


# --- the label party -------------------------------------------------------------------------------------------------


async def _serve_label(folder: Folder, where: Path, scorer: Scorer, taken: socket.socket, told: Told, log: Log) -> None:
    """Answer at this socket until the service is stopped."""
    pin(where, folder.config.name, scorer.digest)

    def connected() -> dict[str, bool]:
        return {name: partner.link is not None for name, partner in model.partners.items()}

    def gauges() -> dict[tuple[str, str], float]:
        return {
            ("tacit_serve_connected", f'{{run="{model.name}",partner="{name}"}}'): float(there)
            for name, there in connected().items()
        }

    metrics = Metrics(_ABOUT, gauges)
    model = LiveModel(folder, where, scorer, metrics, log)
    server = http_server(label_app(model, metrics, _token(), log), grace=_GRACE)
    log("serving", run=model.name, http=_address(taken), fallback=model.fallback)
    told(_address(taken))
    # uvicorn ends by signals itself, and hands them on when it is done
    with (
        _signals(lambda: None),
        reported(where, Traffic("label", metrics, lambda: {"connected": connected()})),
    ):
        await server.serve(sockets=[taken])
    await model.close()
    log("stopped")


# --- a feature party -------------------------------------------------------------------------------------------------


def _serve_features(folder: Folder, where: Path, half: Embedder, http: str | None, told: Told, log: Log) -> None:
    pin(where, folder.config.name, half.digest)
    answering = Answering(folder, where, half, open_rows(folder, half.columns), log)
    service = FeatureService(folder, half, answering, log)
    log("serving", run=folder.terms.run, rows=answering.known)
    with ExitStack() as stack:
        if http is not None:
            taken = stack.enter_context(_listening(http))
            stack.enter_context(_watched(answering, taken, log))
            told(_address(taken))
        stack.enter_context(_signals(service.over.set))
        stack.enter_context(reported(where, Traffic("features", answering.metrics, answering.facts)))
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
def _listening(address: str) -> Iterator[socket.socket]:
    """A port, which others can only reach where a token is asked for."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--http {address}: write host and port, as 127.0.0.1:7080")
    host = host.strip("[]")
    if _token() is None and not is_loopback(host):
        raise UsageError(
            f"{address} can be reached from other machines: set {TOKEN} to a long word that requests must bring, or "
            "stay at 127.0.0.1"
        )
    try:
        taken = listen(host, int(port))
    except OSError as error:
        raise UsageError(f"can't listen at {address} ({error.strerror}): name another port with --http") from None
    try:
        yield taken
    finally:
        taken.close()


def _token() -> str | None:
    """That requests need; None for none."""
    return os.environ.get(TOKEN) or None


def _address(taken: socket.socket) -> str:
    host, port = taken.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
