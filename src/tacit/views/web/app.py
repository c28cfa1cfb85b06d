"""What the live page's server answers: places as JSON and Parquet, what changes, figures for Prometheus, the page."""

from __future__ import annotations

import io
import logging
import math
import os
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tacit.errors import DataError
from tacit.views.reading import Place, RunReader, SweepReader, frame, matrix
from tacit.views.web.access import Access, Guard
from tacit.views.web.answers import as_json, error, tagged
from tacit.views.web.metrics import CONTENT_TYPE, exposition
from tacit.views.web.shelf import Shelf

R = TypeVar("R", RunReader, SweepReader)
T = TypeVar("T")

_POINTS = (10, 20_000)  # of a curve: the fewest and the most that can be asked for
_LARGEST = 64 * 2**20  # bytes of a report
_REPORT = (  # a file that somebody may have changed: it runs nothing, loads nothing, and is of no origin
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
_STATIC = Path(__file__).parent / "static"
_MEDIA = {
    ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png",
    ".json": "application/json", ".woff2": "font/woff2",
}  # fmt: skip

_log = logging.getLogger(__name__)


def make_app(shelf: Shelf, access: Access) -> ASGIApp:
    """The server's app, guarded."""
    answers = _Answers(shelf)
    page = {path.relative_to(_STATIC).as_posix(): path for path in _STATIC.rglob("*") if path.suffix in _MEDIA}
    routes = [
        Route("/api/runs", answers.all_places),
        Route("/api/runs/{id}", answers.run),
        Route("/api/runs/{id}/report", answers.report),
        Route("/api/runs/{id}/figures.parquet", answers.figures),
        Route("/api/sweeps/{id}", answers.sweep),
        Route("/api/sweeps/{id}/{replica:int}", answers.replica),
        Route("/api/matrix", answers.matrix),
        Route("/api/marks", answers.marks),
        Route("/metrics", answers.metrics),
        Route("/", partial(_static, files=page, name="index.html")),
        Route("/static/{name:path}", partial(_static, files=page)),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)],
        exception_handlers={HTTPException: _refused, DataError: _unreadable, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return Guard(app, access)


class _Answers:
    """One method for each address. Files are read in threads; the loop only passes on what they found."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def all_places(self, request: Request) -> Response:
        def read() -> bytes:
            return b",".join(glance.text for glance in self._shelf.glances())

        cards = await anyio.to_thread.run_sync(read)
        made = as_json(datetime.now(UTC).isoformat(timespec="seconds"))
        return tagged(request, b'{"places":[' + cards + b'],"made":' + made + b"}", of=cards)

    async def run(self, request: Request) -> Response:
        asked, first, last = (_number(request, name) for name in ("points", "first", "last"))
        points = 2000 if asked is None else int(min(max(asked, _POINTS[0]), _POINTS[1]))
        body = await self._read(request, RunReader, lambda run: as_json(run.detail(points, first, last)))
        return tagged(request, body)

    async def sweep(self, request: Request) -> Response:
        return tagged(request, await self._read(request, SweepReader, lambda sweep: as_json(sweep.detail())))

    async def replica(self, request: Request) -> Response:
        training = await self._read(request, SweepReader, lambda sweep: sweep.replica(request.path_params["replica"]))
        if training is None:
            raise HTTPException(404, "the sweep has no training of that number: its points are at /api/sweeps/ID")
        return tagged(request, as_json(training))

    async def report(self, request: Request) -> Response:
        body = await anyio.to_thread.run_sync(_report, (await self._place(request, "run")).path)
        return tagged(request, body, media="text/html; charset=utf-8", Content_Security_Policy=_REPORT)

    async def figures(self, request: Request) -> Response:
        def whole(run: RunReader) -> bytes:
            file = io.BytesIO()
            frame(run).write_parquet(file)
            return file.getvalue()

        body = await self._read(request, RunReader, whole)
        name = f'attachment; filename="tacit-{request.path_params["id"]}.parquet"'
        return tagged(request, body, media="application/vnd.apache.parquet", Content_Disposition=name)

    async def matrix(self, request: Request) -> Response:
        def read() -> bytes:
            with self._shelf.reading_all() as readers:
                return as_json(matrix(readers))

        return tagged(request, await anyio.to_thread.run_sync(read))

    async def marks(self, request: Request) -> Response:
        """A mark of each place by its id, which is another one whenever the place has changed: what pages ask often."""
        return tagged(request, as_json(await anyio.to_thread.run_sync(self._shelf.marks)))

    async def metrics(self, request: Request) -> Response:
        glances = await anyio.to_thread.run_sync(self._shelf.glances)
        return Response(exposition(glances, time.time()), media_type=CONTENT_TYPE)

    async def _place(self, request: Request, kind: str) -> Place:
        place = await anyio.to_thread.run_sync(self._shelf.place, request.path_params["id"], kind)
        if place is None:
            raise HTTPException(404, f"no {kind} has that id, or it is gone: all that were found are at /api/runs")
        return place

    async def _read(self, request: Request, kind: type[R], work: Callable[[R], T]) -> T:
        place = await self._place(request, "run" if kind is RunReader else "sweep")

        def read() -> T:
            with self._shelf.reading(place) as reader:
                assert isinstance(reader, kind)
                return work(reader)

        return await anyio.to_thread.run_sync(read)


async def _static(request: Request, *, files: dict[str, Path], name: str | None = None) -> Response:
    """A file of the page, by its name among those that were there at the start."""
    path = files.get(request.path_params["name"] if name is None else name)
    if path is None:
        raise HTTPException(404, "the page has no such file")
    body = await anyio.to_thread.run_sync(path.read_bytes)
    return tagged(request, body, media=_MEDIA[path.suffix], Cache_Control="no-cache")


def _report(folder: Path) -> bytes:
    """A run's report as it lies on the disk: a file of this folder, not what a link there leads to."""

    def plainly(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    try:
        with open(folder / "report.html", "rb", opener=plainly) as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST:
                return file.read()
    except OSError:  # not there, a link, a folder, not for us
        pass
    raise HTTPException(404, "this run has no report that can be read: `tacit audit` makes one")


def _number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise HTTPException(400, f"{name} is no number: write it in digits, or leave it out")
    return number


async def _refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return error(problem.status_code, problem.detail, dict(problem.headers or {}))


async def _unreadable(request: Request, problem: Exception) -> Response:
    _log.debug("a place can't be shown", exc_info=problem)
    return error(422, str(problem))


async def _failed(request: Request, problem: Exception) -> Response:
    _log.error("%s could not be answered", request.url.path, exc_info=problem)
    return error(500, "the server could not answer; its own terminal says why")
