"""All runs that a server shows: found again every few seconds, read by one thread at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.report.reading import DAMAGE, Place, RunReader, damage, find

_SHARE = 10  # finding takes a tenth of the time, at most: a tree on a slow disk is looked through less often


@dataclass
class Shelf:
    """Runs by their ids. Ids are all that a client can name, so no path of its own choice is ever opened.

    A reader keeps its curves, so that the next look costs only what is new.
    """

    roots: Sequence[Path]  # folders under which runs are looked for
    _: KW_ONLY
    every: float = 3.0  # seconds after which they are looked for again
    now: Callable[[], float] = time.monotonic  # a clock that never goes back

    def __post_init__(self) -> None:
        self._readers: dict[str, RunReader] = {}
        self._finding, self._reading = threading.Lock(), threading.Lock()
        self._next = -math.inf

    def places(self) -> list[Place]:
        """All places, newest first; looked for again where the last time was a few seconds ago.

        While one thread looks through a large tree, others get what was found before.
        """
        if self._finding.acquire(blocking=self._next == -math.inf):
            try:
                began = self.now()
                if began >= self._next:
                    known = self._readers
                    self._readers = {one.id: known.get(one.id) or RunReader(one) for one in find(self.roots)}
                    ended = self.now()
                    self._next = ended + max(self.every, _SHARE * (ended - began))
            finally:
                self._finding.release()
        return [reader.place for reader in list(self._readers.values())]

    def place(self, name: str) -> Place | None:
        """The place of an id; None where there is none."""
        if name not in self._readers:
            self.places()
        reader = self._readers.get(name)
        return None if reader is None else reader.place

    @contextmanager
    def reading(self, place: Place) -> Iterator[RunReader]:
        """The reader of a place, fresh, and for this thread alone. What its files make impossible is a `DataError`."""
        reader = self._readers.get(place.id) or RunReader(place)  # it may have gone a moment ago
        with self._reading:
            try:
                reader.refresh()
                yield reader
            except DAMAGE as error:
                raise DataError(damage(place, error)) from error

    def cards(self) -> list[dict[str, Any]]:
        """The card of each place, newest first; of one that can't be read what happened."""
        cards = []
        for place in self.places():
            try:
                with self.reading(place) as reader:
                    cards.append(reader.card())
            except DataError as error:  # its files hold what nothing of ours has written
                cards.append({"id": place.id, "name": place.name, "state": "unknown", "alive": False,
                              "problems": [str(error)]})  # fmt: skip
        return cards

    def mark(self, place: Place) -> tuple[Any, ...]:
        """A mark of a place that changes with its files; it waits for nobody who reads them."""
        return (self._readers.get(place.id) or RunReader(place)).fingerprint()

    def marks(self) -> list[tuple[Any, ...]]:
        """The marks of all places."""
        return [(place.id, *self.mark(place)) for place in self.places()]
