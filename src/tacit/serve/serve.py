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
from typing import Any

import torch

from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.errors import TacitError, UsageError
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
    paths: Sequence[Folder | str | Path],
    *,
    http: str | None = None,
    told: Told = lambda _: None,
    log: Log = log_to_stderr,
    override: str | None = None,
    reason: str | None = None,
) -> None:
    """Serve until a SIGTERM or Ctrl-C comes; what is under way then is answered.

    A SIGHUP has a label party read its folders again, while it answers, and a feature party look for new rows.

    Args:
        paths: the party's folder; a label party may name several, each with a version of the model, of which requests
            that name none get the first.
        http: host and port of the endpoint; that of party.toml if not given.
        told: told its address.
        log: told what happens.
        override: the name of somebody who lets a model be used though its limit was not held; on record.
        reason: why; on record.
    """
    folder, where = find_run(paths[0])
    log = Seldom(log)
    http = http or folder.config.serve.http
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    if folder.config.role == "label":
        with _listening(http or _ADDRESS) as taken:
            service = LabelService(lambda: _loaded(paths, override, reason), log)
            asyncio.run(service.run(taken, _token(), told))
        return
    if len(paths) > 1:
        raise UsageError("several versions of a model are served by the label party: name one folder here")
    folder.check_pair(folder.terms)
    with alone(where):
        half = load_embedder(paths[0], "serving", override=override, reason=reason)
        _serve_features(folder, where, half, http, told, log)


# --- the label party -------------------------------------------------------------------------------------------------

Loaded = list[tuple[Folder, Path, Scorer]]
"""What is served: folders of the party, of the run, and the half."""


def _loaded(paths: Sequence[Folder | str | Path], override: str | None, reason: str | None) -> Loaded:
    """The label party's halves, as they are on the disk now."""
    found: Loaded = []
    for path in paths:
        folder, where = find_run(path)
        folder.check_pair(folder.terms)
        scorer = load_scorer(path, "serving", override=override, reason=reason)
        pin(where, folder.config.name, scorer.digest)
        found.append((folder, where, scorer))
    names = [folder.terms.run for folder, _, _ in found]
    if len(set(names)) < len(names):
        raise UsageError(f"the runs {names} must have different names, by which requests tell them apart")
    return found


class LabelService:
    """A label party that serves, with one model or several."""

    def __init__(self, load: Callable[[], Loaded], log: Log) -> None:
        self._load, self._log = load, log
        self._models: list[LiveModel] = []
        self._served: Loaded = []
        self._locks = ExitStack()
        self._metrics = Metrics(_ABOUT, self._gauges)
        self._reloading = asyncio.Lock()

    def _gauges(self) -> dict[tuple[str, str], float]:
        return {
            ("tacit_serve_connected", f'{{run="{model.name}",partner="{name}"}}'): float(partner.link is not None)
            for model in self._models
            for name, partner in model.partners.items()
        }

    def _facts(self) -> dict[str, Any]:
        there = [(name, partner.link is not None) for model in self._models for name, partner in model.partners.items()]
        return {"connected": {name: all(found for one, found in there if one == name) for name, _ in there}}

    async def run(self, taken: socket.socket, token: str | None, told: Told) -> None:
        """Answer at this socket until the service is stopped."""
        await self._begin(self._load())
        server = http_server(label_app(self._models, self._metrics, token, self._log), grace=_GRACE)
        self._log("serving", run=self._models[0].name, http=_address(taken), fallback=self._models[0].fallback)
        told(_address(taken))
        loop = asyncio.get_running_loop()
        try:
            # uvicorn ends by signals itself, and hands them on when it is done
            with (
                _signals(lambda: None, lambda: loop.call_soon_threadsafe(self._again)),
                reported(lambda: [where for _, where, _ in self._served], Traffic("label", self._metrics, self._facts)),
            ):
                await server.serve(sockets=[taken])
            async with self._reloading:
                for model in self._models:
                    await model.part()
                    await model.finish()
        finally:
            self._locks.close()
        self._log("stopped")

    async def _begin(self, loaded: Loaded) -> None:
        """Let what was loaded take the place of what is served."""
        self._locks.close()
        made: list[LiveModel] = []
        try:
            for one in loaded:
                self._locks.enter_context(alone(one[1]))
                made.append(LiveModel(*one, self._metrics, self._log))
        except TacitError:
            for model in made:
                await model.part()
                await model.finish()
            raise
        self._models[:], self._served = made, loaded

    def _again(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._reload())  # somebody must hold it

    async def _reload(self) -> None:
        """Read everything again while requests are answered; where that fails, what was served is served on."""
        async with self._reloading:
            old = self._models[:]
            try:
                loaded = await asyncio.get_running_loop().run_in_executor(None, self._load)
            except TacitError as error:
                self._log("reload failed", reason=str(error))
                return
            for model in old:  # until their partners are connected anew, rows get the fallback
                await model.part()
            try:
                await self._begin(loaded)
                self._log("reloaded", run=self._models[0].name)
            except TacitError as error:  # a port that is taken, say
                self._log("reload failed", reason=str(error))
                await self._begin(self._served)
            for model in old:
                await model.finish()


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
        stack.enter_context(_signals(service.over.set, answering.again.set))
        stack.enter_context(reported(lambda: [where], Traffic("features", answering.metrics, answering.facts)))
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
def _signals(stop: Callable[[], None], again: Callable[[], object]) -> Iterator[None]:
    """A SIGTERM, or Ctrl-C, is the way in which a service ends, and not an accident; SIGHUP has it look again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    acts = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: again}
    before = {one: signal.signal(one, lambda number, _: acts[signal.Signals(number)]()) for one in acts}
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
