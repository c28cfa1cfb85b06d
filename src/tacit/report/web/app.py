"""The live page's server answers: pages of runs, their figures as Parquet and for Prometheus."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

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
from tacit.report.finding import Place
from tacit.report.reading import RunReader, frame
from tacit.report.web import pages
from tacit.report.web.access import Access, Guard, refused
from tacit.report.web.shelf import Shelf

_LARGEST = 64 * 2**20  # bytes of a report
_FRESH = 30  # seconds after which a page is made anew though nothing has changed: it says how long ago things were
_REPORT = (  # a file that somebody may have changed: it runs nothing, loads nothing, and is of no origin
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)
_HERE = Path(__file__).parent
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

_log = logging.getLogger(__name__)


def make_app(shelf: Shelf, access: Access) -> ASGIApp:
    """The server's app, guarded."""
    answers = _Answers(shelf)
    static = _HERE / "static"
    files = {path.relative_to(static).as_posix(): path for path in static.rglob("*") if path.suffix in _MEDIA}
    files |= {name: _HERE.parent / name for name in ("page.css", "svg.css")}  # the report's
    routes = [
        Route("/", answers.overview),
        Route("/run/{id}", answers.run),
        Route("/run/{id}/report", answers.report),
        Route("/run/{id}/figures.parquet", answers.figures),
        Route("/metrics", answers.metrics),
        Route("/static/{name:path}", partial(_static, files=files)),
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

    async def overview(self, request: Request) -> Response:
        def made() -> bytes:
            return pages.overview(self._shelf.cards())

        return await self._page(request, self._shelf.marks, made)

    async def run(self, request: Request) -> Response:
        place = await self._place(request)
        made = partial(self._read, place, pages.run)
        return await self._page(request, partial(self._shelf.mark, place), made)

    async def report(self, request: Request) -> Response:
        body = await anyio.to_thread.run_sync(_report, (await self._place(request)).path)
        return _tagged(request, body, body, "text/html; charset=utf-8", Content_Security_Policy=_REPORT)

    async def figures(self, request: Request) -> Response:
        def whole(run: RunReader) -> bytes:
            file = io.BytesIO()
            frame(run).write_parquet(file)
            return file.getvalue()

        body = await anyio.to_thread.run_sync(self._read, await self._place(request), whole)
        name = f'attachment; filename="tacit-{request.path_params["id"]}.parquet"'
        return _tagged(request, body, body, "application/vnd.apache.parquet", Content_Disposition=name)

    async def metrics(self, request: Request) -> Response:
        from tacit.report.web.metrics import CONTENT_TYPE, exposition

        cards = await anyio.to_thread.run_sync(self._shelf.cards)
        return Response(exposition(cards, time.time()), media_type=CONTENT_TYPE)

    async def _page(self, request: Request, mark: Callable[[], object], made: Callable[[], bytes]) -> Response:
        """A page, unless the client has it as its files and the last half minute have it."""

        def work() -> Response:
            of = repr((mark(), pages.theme(request.cookies), time.time() // _FRESH)).encode()
            if (kept := _kept(request, of)) is not None:
                return kept
            return _tagged(request, pages.themed(made(), request.cookies), of, "text/html; charset=utf-8")

        return await anyio.to_thread.run_sync(work)

    async def _place(self, request: Request) -> Place:
        place = await anyio.to_thread.run_sync(self._shelf.place, request.path_params["id"])
        if place is None:
            raise HTTPException(404, "no run has that address, or it is gone: all that were found are at /")
        return place

    def _read(self, place: Place, work: Callable[[RunReader], bytes]) -> bytes:
        with self._shelf.reading(place) as reader:
            return work(reader)


async def _static(request: Request, *, files: dict[str, Path]) -> Response:
    """A file of the pages, by its name among those that were there at the start."""
    path = files.get(request.path_params["name"])
    if path is None:
        raise HTTPException(404, "the pages have no such file")
    body = await anyio.to_thread.run_sync(path.read_bytes)
    return _tagged(request, body, body, _MEDIA[path.suffix], Cache_Control="no-cache")


def _tag(of: bytes) -> str:
    return f'"{hashlib.blake2b(of, digest_size=12).hexdigest()}"'


def _kept(request: Request, of: bytes, **headers: str) -> Response | None:
    """A short answer where the client has the same already."""
    had = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    return Response(status_code=304, headers={"ETag": f"W/{_tag(of)}", **headers}) if _tag(of) in had else None


def _tagged(request: Request, body: bytes, of: bytes, media: str, **headers: str) -> Response:
    """An answer with a tag of what it was made from."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _kept(request, of, **named) or Response(body, media_type=media, headers={"ETag": f"W/{_tag(of)}", **named})


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


async def _refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return refused(request.headers, problem.status_code, problem.detail, dict(problem.headers or {}))


async def _unreadable(request: Request, problem: Exception) -> Response:
    _log.debug("a place can't be shown", exc_info=problem)
    return refused(request.headers, 422, str(problem))


async def _failed(request: Request, problem: Exception) -> Response:
    _log.error("%s could not be answered", request.url.path, exc_info=problem)
    return refused(request.headers, 500, "the server could not answer; its own terminal says why")
