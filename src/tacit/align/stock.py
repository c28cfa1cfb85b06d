"""What one side of an intersection holds: its ids in the order they are sent, and the products of both sides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit.align.curve import Points, byte_order
from tacit.errors import RefusedError

CHUNK = 16_384
"""Rows of every message but the last one, so that each party knows what must come."""

SHORT = 16
"""Bytes that are kept of a product."""


class Held:
    """A stock in memory; `tacit.align.kept.OnDisk` has the same on a disk that another process can go on from."""

    def __init__(self, hashes: Points, order: NDArray[np.int64], peer_count: int) -> None:
        self.count = len(hashes)
        self.answered = 0  # points of the peer that were multiplied, from its first one on
        self.received = 0  # this party's points whose products have come back, from its first one on
        self._hashes, self._order = hashes, order
        self._own: Points = np.empty((len(hashes), SHORT), np.uint8)  # this party's points times both keys
        self._peer: Points = np.empty((peer_count, SHORT), np.uint8)  # the peer's points times both keys

    def hashes(self, start: int) -> Iterator[Points]:
        """This party's ids in the order in which they are sent, from this place on, in chunks."""
        for at in range(start, self.count, CHUNK):
            yield np.take(self._hashes, self._order[at : at + CHUNK], axis=0)

    def answers(self, start: int) -> Iterator[Points]:
        """What the peer was answered, from this place on, in chunks."""
        for at in range(start, self.answered, CHUNK):
            yield self._peer[at : min(at + CHUNK, self.answered)]

    def answer(self, products: Points) -> None:
        """Keep what the peer is about to be answered."""
        self._peer[self.answered : self.answered + len(products)] = products
        self.answered += len(products)

    def receive(self, products: Points) -> None:
        """Keep what has come back."""
        self._own[self.received : self.received + len(products)] = products
        self.received += len(products)

    def close(self) -> None:
        """Keep nothing more: a thread that is not yet through may not change what another one goes on from."""

    def matches(self, peer: str) -> NDArray[np.int64]:
        """The places of all ids that the peer has as well, in the order of their hashes' bytes."""
        places: NDArray[np.int64] = self._order[equal(peer, self._own, self._peer)]
        return places[byte_order(np.take(self._hashes, places, axis=0))]


def equal(peer_name: str, own: Points, peer: Points) -> NDArray[np.int64]:
    """Where in `own` the products are that are in `peer` too."""
    both = np.concatenate([own, peer])
    order = byte_order(both)  # stable: of two that are equal, this party's own comes first
    words = np.take(both, order, axis=0).view(np.uint64)  # many times as fast as both[order]
    again = np.flatnonzero((words[1:] == words[:-1]).all(axis=1))
    first, second = order[again], order[again + 1]
    if (wrong := first >= len(own)).any():
        raise RefusedError(
            "points",
            f"{peer_name} sent {int(wrong.sum())} points twice: its ids are not distinct, or it is not honest",
        )
    if (wrong := second < len(own)).any():
        raise RefusedError(
            "matches",
            f"{peer_name} returned one product for {int(wrong.sum())} pairs of different points: this party's hashes "
            "are not distinct, or the peer does not multiply",
        )
    return first
