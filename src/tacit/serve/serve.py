"""`tacit serve`: a feature party answers its partner, the label party answers its own network over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette

from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.errors import UsageError
from tacit.serve.answering import Answering
from tacit.serve.endpoint import label_app, watch_app
from tacit.serve.halves import Embedder, Scorer, load_embedder, load_scorer, pin
from tacit.serve.job import alone
from tacit.serve.listening import is_loopback, listen
from tacit.serve.live import LiveModel
from tacit.serve.online import Log, Metrics, log_to_stderr
from tacit.serve.online_features import FeatureService
from tacit.serve.rows import open_rows

__all__ = ["TOKEN", "serve"]

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
    paths: Sequence[Folder | str | Path],
    *,
    http: str | None = None,
    told: Told = lambda _: None,
    log: Log = log_to_stderr,
    override: str | None = None,
    reason: str | None = None,
) -> None:
    """Serve until a SIGTERM or Ctrl-C comes; what is under way then is answered.

    Args:
        paths: the party's folder; a label party may name several, each with a version of the model, of which requests
            that name none get the first.
        http: host and port of the endpoint; that of party.toml if not given.
        told: told its address.
        log: told what happens.
        override: the name of somebody who lets a model be used though its limit was not held; on record.
        reason: why; on record.
    """
    runs = [find_run(path) for path in paths]
    roles = {folder.config.role for folder, _ in runs}
    if len(runs) > 1 and roles != {"label"}:
        raise UsageError("several versions of a model are served by the label party: name one folder here")
    names = [one.terms.run for one, _ in runs]
    if len(set(names)) < len(names):
        raise UsageError(
            f"the runs {names} have the same name, by which requests tell them apart: give them different ones"
        )
    folder = runs[0][0]
    http = http or folder.config.serve.http
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    with ExitStack() as stack:
        for one, where in runs:
            one.check_pair(one.terms)
            stack.enter_context(alone(where))
        if roles == {"features"}:
            embedder = load_embedder(paths[0], "serving", override=override, reason=reason)
            _serve_features(folder, runs[0][1], embedder, http, told, log)
            return
        scorers = [load_scorer(path, "serving", override=override, reason=reason) for path in paths]
        for (one, where), scorer in zip(runs, scorers, strict=True):
            pin(where, one.config.name, scorer.digest)
        taken = stack.enter_context(_listening(http or _ADDRESS))
        token = os.environ.get(TOKEN) or None
        if token is None and not is_loopback(http or _ADDRESS):
            raise UsageError(
                f"{http} can be reached from other machines: set {TOKEN} to a long word that requests must bring, or "
                "stay at 127.0.0.1"
            )
        asyncio.run(_serve_label(runs, scorers, taken, token, told, log))


# --- the label party -------------------------------------------------------------------------------------------------


async def _serve_label(
    runs: Sequence[tuple[Folder, Path]],
    scorers: Sequence[Scorer],
    taken: socket.socket,
    token: str | None,
    told: Told,
    log: Log,
) -> None:
    models: list[LiveModel] = []

    def gauges() -> dict[tuple[str, str], float]:
        return {
            ("tacit_serve_connected", f'{{run="{model.name}",partner="{name}"}}'): float(partner.link is not None)
            for model in models
            for name, partner in model.partners.items()
        }

    metrics = Metrics(_ABOUT, gauges)
    models += [LiveModel(*run, scorer, metrics, log) for run, scorer in zip(runs, scorers, strict=True)]
    server = _server(label_app(models, runs[0][0].config.serve, metrics, token, log))
    log("serving", run=models[0].name, http=_address(taken), fallback=models[0].fallback)
    told(_address(taken))
    with _signals(lambda: None):  # uvicorn has its own, and hands them on when it is done
        await server.serve(sockets=[taken])
    for model in models:
        await model.close()
    log("stopped")


def _server(app: Starlette) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", loop="asyncio", access_log=False, log_config=None,
            log_level="critical", server_header=False, proxy_headers=False, timeout_graceful_shutdown=_GRACE,
        )
    )  # fmt: skip


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
        service.run()
    log("stopped")


@contextmanager
def _watched(answering: Answering, taken: socket.socket, log: Log) -> Iterator[None]:
    """A small endpoint in a thread of its own."""
    server = _server(
        watch_app(answering.metrics, lambda: (answering.connected, {"connected": answering.connected}), log)
    )
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
    taken = listen(address)
    try:
        yield taken
    finally:
        taken.close()


def _address(taken: socket.socket) -> str:
    host, port = taken.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
