"""Embeddings that came a moment ago."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class Cache:
    """Values by token, each for so many seconds, the newest so many of them. One thread uses it.

    Args:
        seconds: 0 for none at all.
        most: values.
        now: a clock that never goes back.
    """

    def __init__(self, seconds: float, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._most, self._now = seconds, most, now
        self._held: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, token: bytes) -> bytes | None:
        """The value, if it is here and not too old."""
        found = self._held.get(token)
        if found is None:
            return None
        if found[0] <= self._now():
            del self._held[token]
            return None
        return found[1]

    def put(self, token: bytes, value: bytes) -> None:
        """Keep a value; the oldest goes where there are too many."""
        if self._seconds:
            self._held.pop(token, None)
            self._held[token] = (self._now() + self._seconds, value)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
