"""All places that a server shows: found again every few seconds, each read by one thread at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.report.reading import DAMAGE, Place, RunReader, damage, find
from tacit.report.status import alive

_SHARE = 10  # finding takes a tenth of the time, at most: a tree on a slow disk is looked through less often
_POINTS = 10_000_000  # kept in memory over all readers, about 250 MB
_LIGHT = 5_000  # points that a reader weighs besides its curves


@dataclass(frozen=True)
class Glance:
    """A place in short: what a list of many needs, kept when its reader is not."""

    card: dict[str, Any]  # as the reader makes it
    # the last figure of every leak curve, as name and figure
    leaks: list[tuple[str, float]] = field(default_factory=list)
    waiting: float | None = None  # since when a run waits for its peer, in seconds since 1970


@dataclass
class _Slot:
    """A place and its reader, which one thread has at a time."""

    place: Place
    reader: RunReader
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: tuple[Any, ...] | None = None  # the mark at the last glance
    glance: Glance | None = None
    pid: Any = None  # of the process that writes a run, which may end without a word
    weight: int = 0
    used: float = 0.0


@dataclass
class Shelf:
    """Places by their ids. Ids are all that a client can name, so no path of its own choice is ever opened.

    A reader keeps its curves, so that the next look costs only what is new; where all together keep too much, those
    that were used longest ago are let go.
    """

    roots: Sequence[Path]  # folders under which runs are looked for
    _: KW_ONLY
    every: float = 3.0  # seconds after which they are looked for again
    points: int = _POINTS  # that all readers together may keep
    now: Callable[[], float] = time.monotonic  # a clock that never goes back

    def __post_init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._finding = threading.Lock()
        self._next = -math.inf

    def places(self) -> list[Place]:
        """All places, newest first; looked for again where the last time was a few seconds ago.

        While one thread looks through a large tree, others get what was found before.
        """
        if self._finding.acquire(blocking=self._next == -math.inf):
            try:
                began = self.now()
                if began >= self._next:
                    self._slots = {
                        place.id: self._slots.get(place.id) or _Slot(place, RunReader(place))
                        for place in find(self.roots)
                    }
                    ended = self.now()
                    self._next = ended + max(self.every, _SHARE * (ended - began))
            finally:
                self._finding.release()
        return [slot.place for slot in self._slots.values()]

    def place(self, name: str) -> Place | None:
        """The place of an id; None where there is none."""
        if name not in self._slots:
            self.places()
        slot = self._slots.get(name)
        return None if slot is None else slot.place

    @contextmanager
    def reading(self, place: Place) -> Iterator[RunReader]:
        """The reader of a place, fresh, and for this thread alone. What its files make impossible is a `DataError`."""
        slot = self._slots.get(place.id) or _Slot(place, RunReader(place))  # it may have gone a moment ago
        with slot.lock:
            try:
                self._refresh(slot)
                yield slot.reader
            except DAMAGE as error:
                raise DataError(damage(place, error)) from error
        self._let_go()

    def glances(self) -> list[Glance]:
        """A glance at each place, newest first; only those are read whose files have changed."""
        self.places()
        glances = [self._look(slot) for slot in list(self._slots.values())]
        self._let_go()
        return glances

    def mark(self, place: Place) -> tuple[Any, ...]:
        """A mark of a place that changes with its files; it waits for nobody who reads them."""
        return _mark(self._slots.get(place.id) or _Slot(place, RunReader(place)))

    def marks(self) -> list[tuple[Any, ...]]:
        """The marks of all places."""
        self.places()
        return [(name, *_mark(slot)) for name, slot in list(self._slots.items())]

    def _look(self, slot: _Slot) -> Glance:
        if slot.seen is not None and slot.seen == _mark(slot) and slot.glance is not None:
            return slot.glance  # nobody waits for a large run that is just being shown, if it stands as it did
        with slot.lock:
            mark = _mark(slot)  # before it is read: what changes meanwhile is read again
            if slot.glance is None or slot.seen != mark:
                try:
                    self._refresh(slot)
                    slot.glance = _glance(slot.reader)
                except DAMAGE as error:  # its files hold what nothing of ours has written
                    place = slot.place
                    card = {"id": place.id, "name": place.name, "state": "unknown", "alive": False,
                            "problems": [damage(place, error)]}  # fmt: skip
                    slot.glance = Glance(card)
                slot.seen = (*mark[:-1], _lives(slot))
            return slot.glance

    def _refresh(self, slot: _Slot) -> None:
        slot.reader.refresh()
        slot.pid = slot.reader.status.get("pid")
        held = sum(map(len, slot.reader.series.values()))
        slot.weight, slot.used = _LIGHT + held, self.now()

    def _let_go(self) -> None:
        """Forget what the readers keep that were used longest ago, until the rest is light enough; one always stays."""
        kept = sorted((slot for slot in list(self._slots.values()) if slot.weight), key=lambda slot: slot.used)
        weight = sum(slot.weight for slot in kept)
        for slot in kept[:-1]:
            if weight <= self.points:
                return
            if slot.lock.acquire(blocking=False):  # one that is being read is in use
                try:
                    weight -= slot.weight
                    slot.reader, slot.weight = RunReader(slot.place), 0
                finally:
                    slot.lock.release()


def _glance(reader: RunReader) -> Glance:
    card = reader.card()
    leaks = [(curve.name, curve.y[-1]) for curve in reader.series.values() if curve.group == "leak" and len(curve)]
    waits = card["state"] == "waiting" and card["alive"]
    since = None
    for when, _, state, _ in reversed(reader.pace):
        if not waits or state != "waiting":
            break
        since = when
    return Glance(card, leaks, since)


def _mark(slot: _Slot) -> tuple[Any, ...]:
    return RunReader(slot.place).fingerprint(), _lives(slot)


def _lives(slot: _Slot) -> bool:
    return slot.pid is not None and alive(slot.pid)
