"""Telling pages that something has changed. What it is they fetch themselves, so a slow page misses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tacit.runs import DAMAGE
from tacit.web.shelf import Shelf

__all__ = ["Bell", "EventStream"]

_ALIVE = 15.0  # seconds between two signs of life
_MOST = 500  # pages that may listen at once


class _Listener:
    """What one page has not been told yet: ids, each once, so that a page that does not read costs no more."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self.wake = asyncio.Event()

    def tell(self, changed: set[str], gone: set[str]) -> None:
        self.changed = (self.changed - gone) | changed
        self.gone = (self.gone - changed) | gone
        self.wake.set()

    def take(self) -> str:
        """Everything that is new, as events."""
        told = "".join(
            f"event: {name}\ndata: {json.dumps({'ids': sorted(ids)})}\n\n"
            for name, ids in (("changed", self.changed), ("gone", self.gone))
            if ids
        )
        self.changed, self.gone = set(), set()
        self.wake.clear()
        return told


class Bell:
    """Looks at all places every second, while somebody listens, and tells everybody what has changed.

    Args:
        shelf: the places.
        pause: seconds between two looks.
    """

    def __init__(self, shelf: Shelf, *, pause: float = 1.0) -> None:
        self._shelf = shelf
        self._pause = pause
        self._listeners: set[_Listener] = set()
        self._watch: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._marks: dict[str, tuple[Any, ...]] = {}

    @property
    def full(self) -> bool:
        """Whether nobody more may listen."""
        return len(self._listeners) >= _MOST

    @property
    def listening(self) -> int:
        """How many pages listen."""
        return len(self._listeners)

    @property
    def watching(self) -> bool:
        """Whether it looks for changes; it does not where nobody listens."""
        return self._watch is not None

    def close(self) -> None:
        """End all streams: the server is about to stop."""
        self._closed = True
        for listener in self._listeners:
            listener.wake.set()

    @asynccontextmanager
    async def listener(self) -> AsyncIterator[AsyncIterator[str]]:
        """What one page hears, as lines of server-sent events; nothing that changes from now on is missed."""
        one = _Listener()
        self._listeners.add(one)
        try:
            async with self._starting:
                if self._watch is None or self._watch.done():
                    self._marks = await anyio.to_thread.run_sync(self._look)
                    self._watch = asyncio.create_task(self._watching())
            yield self._lines(one)
        finally:
            self._listeners.discard(one)
            if not self._listeners and self._watch is not None:
                self._watch.cancel()
                self._watch = None

    async def _lines(self, one: _Listener) -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        while not self._closed:
            try:
                async with asyncio.timeout(_ALIVE):
                    await one.wake.wait()
            except TimeoutError:
                yield ": nothing new\n\n"
                continue
            yield one.take()

    async def _watching(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                found = await anyio.to_thread.run_sync(self._look)
            except (*DAMAGE, RuntimeError):  # a disk that is away for a moment: the next look may see it again
                continue
            changed = {name for name, mark in found.items() if self._marks.get(name) != mark}
            gone = self._marks.keys() - found.keys()
            self._marks = found
            if changed or gone:
                for listener in self._listeners:
                    listener.tell(changed, gone)

    def _look(self) -> dict[str, tuple[Any, ...]]:
        self._shelf.places()
        return self._shelf.marks()


class EventStream(StreamingResponse):
    """The answer to a page that listens.

    Args:
        bell: what it listens to.
    """

    def __init__(self, bell: Bell) -> None:
        super().__init__((), media_type="text/event-stream")
        self._bell = bell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what there is to tell until the page goes away or the server stops."""
        async with self._bell.listener() as lines:
            self.body_iterator = lines
            await super().__call__(scope, receive, send)
