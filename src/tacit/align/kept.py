"""A large intersection on disk: memory stays small whatever its size, and after a kill it goes on where it was.

Everything that grows with the ids lies in files of a folder that only its owner can read. What was sent is never said
in two ways: the key and the order stay the same, so the same points go out; a product is on the disk before it leaves,
and is sent again as it is; and the share of the peer that the last proof is about is held fast. So a peer that breaks
the link and comes back learns nothing that it would not have learned at once, and it is still the same alignment.

The key is on the disk until the alignment ends. It hides this party's own ids from the peer, and whoever reads it there
can read the table beside it as well.

The peer is never told of parts: they are cut by what only this party has, its ids, its order and the products.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.align.arrays import BLOCK, filed, let_go
from tacit.align.curve import Points, byte_order
from tacit.align.parts import PARTS, Parts, Records
from tacit.disk import held, make_folder, opened, read_json, remove, storing, sync_file, write, write_at, write_json
from tacit.errors import LinkError, RefusedError, StorageError, UsageError

CHUNK = 16_384
"""Rows of every message but the last one, so that each party knows what must come."""

SHORT = 16
"""Bytes that are kept of a product."""

LARGE = 1 << 22
"""Ids of both sides together from which on an intersection is kept on disk: below it is done again within minutes."""

STATE = "state.json"
"""The file that says that an alignment can go on."""

NEEDED = (STATE, "answered", "received", "share")
"""The files that it goes on from; all others are made anew."""

TABLE = "table.parquet"
"""The file with the rows of a query, of which the ids were taken."""

_HASH, _PLACE = 32, 8
_SLACK = 1 << 14  # records that a part may have beyond twice its share: far more than chance gives
_AGAIN = "run `tacit align --again` on all sides"


@contextmanager
def room_in(where: Path, *, again: bool) -> Iterator[Path]:
    """A folder within a run's for what is too much for memory; at its end only what alignments go on from is left.

    `again` gives up what was begun. The run's folder belongs to one process meanwhile.
    """
    room = where / "aligning"
    with held(where / "lock"):
        try:
            _tidied(room, keep=not again)
            make_folder(room)
            yield room
        finally:
            _tidied(room, keep=True)


def _tidied(room: Path, *, keep: bool) -> None:
    """Remove all files, or all that no alignment goes on from, and folders that are empty then."""
    going_on = [state.parent for state in room.glob(f"*/{STATE}")] if keep else []
    needed = {folder / name for folder in going_on for name in NEEDED} | ({room / TABLE} if going_on else set())
    with storing(room, "removed"):
        for path in [*sorted(room.rglob("*"), reverse=True), room]:  # what is in a folder before the folder
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in needed:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class State:
    """What must be the same when an alignment goes on."""

    ids: str  # digest of this party's hashes
    cap: int  # of the contract
    minimum: int  # of the contract
    nonce: str  # this party's, in hex
    key: str  # this party's secret, in hex; all that is drawn is made of it
    peer_nonce: str  # in hex
    peer_count: int  # ids of the peer

    def __repr__(self) -> str:
        return f"State(peer_count={self.peer_count})"


class Kept:
    """One intersection with one peer, in a folder for its files alone; hashes are in the order of their bytes."""

    def __init__(self, folder: Path, hashes: Points) -> None:
        self.folder = folder
        self.hashes = hashes
        self.state = self._read()

    def _read(self) -> State | None:
        path = self.folder / STATE
        if not path.exists():
            return None
        fields = read_json(path, _AGAIN)
        try:
            state = State(**fields)
        except TypeError as error:
            raise StorageError(f"{path} can't be read ({error}): {_AGAIN}") from None
        if state.ids != self._digest():
            raise UsageError(
                f"{self.folder.name} was being aligned with other ids than the table has now: bring the table back as "
                f"it was, or {_AGAIN}"
            )
        return state

    def begin(self, **fields: Any) -> None:
        """Hold fast with what an alignment begins, before the peer gets any answer; see `State`."""
        make_folder(self.folder)
        for name in NEEDED:
            remove(self.folder / name)
        self.state = State(ids=self._digest(), **fields)
        write_json(self.folder / STATE, asdict(self.state))

    def secret(self, purpose: str) -> bytes:
        """32 bytes that nobody else knows, the same each time the alignment goes on."""
        assert self.state is not None
        return hmac.new(bytes.fromhex(self.state.key), purpose.encode(), "sha256").digest()

    def stock(self) -> OnDisk:
        """What is there, from which it goes on."""
        assert self.state is not None
        return OnDisk(self.folder, self.hashes, self.secret("order"), self.state.peer_count)

    def standing(self) -> tuple[int, int]:
        """How many of the peer's points are answered, and how many products of one's own have come."""
        if self.state is None:
            return 0, 0
        counts = (("answered", self.state.peer_count), ("received", len(self.hashes)))
        return tuple(_whole(self.folder / name, most) for name, most in counts)  # type: ignore[return-value]

    def held_fast(self, share: bytes) -> None:
        """See that the peer's share is the one that it sent before, where it did."""
        path = self.folder / "share"
        if path.exists() and not hmac.compare_digest(path.read_bytes(), share):
            raise RefusedError(
                "share",
                f"{self.folder.name} sent another share when the alignment went on: it guesses at ids; {_AGAIN}",
            )
        write(path, share)

    def drop(self) -> None:
        """Never go on with it."""
        remove(self.folder / STATE)
        self.state = None

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for at in range(0, len(self.hashes), BLOCK):
            digest.update(np.ascontiguousarray(self.hashes[at : at + BLOCK]).data)
            let_go(self.hashes)
        return digest.hexdigest()


class Held:
    """What one side holds: its ids in the order they are sent, and the products of both sides; here in memory."""

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


class OnDisk:
    """What `Held` is in memory, in files of a folder; the key draws the order of ids."""

    def __init__(self, folder: Path, hashes: Points, key: bytes, peer_count: int) -> None:
        self.count = len(hashes)
        self._folder = folder
        self._own = _Products(folder / "received", self.count)
        self._peer = _Products(folder / "answered", peer_count)
        self._order = _shuffled(folder, hashes, key)

    @property
    def answered(self) -> int:
        """See `Held`."""
        return self._peer.count

    @property
    def received(self) -> int:
        """See `Held`."""
        return self._own.count

    def hashes(self, start: int) -> Iterator[Points]:
        """See `Held`."""
        for records in self._sent(start, CHUNK):
            yield np.ascontiguousarray(records[:, :_HASH])

    def answers(self, start: int) -> Iterator[Points]:
        """See `Held`."""
        return self._peer.read(start, CHUNK)

    def answer(self, products: Points) -> None:
        """See `Held`."""
        self._peer.add(products)

    def receive(self, products: Points) -> None:
        """See `Held`."""
        self._own.add(products)

    def close(self) -> None:
        """See `Held`."""
        self._own.close()
        self._peer.close()

    def matches(self, peer: str) -> NDArray[np.int64]:
        """See `Held`: products are compared part by part, and so are the places put in order."""
        own, theirs = Parts(self._folder, "own", SHORT + _PLACE), Parts(self._folder, "theirs", SHORT)
        for products, sent in zip(self._own.read(0, BLOCK), self._sent(0, BLOCK), strict=True):
            own.add(np.concatenate([products, sent[:, _HASH:]], axis=1), products[:, 0])
        for products in self._peer.read(0, BLOCK):
            theirs.add(products, products[:, 0])
        found = Parts(self._folder, "found", _PLACE)
        for part in range(PARTS):
            mine = _taken(own, part, self.count, "matches", peer)
            others = _taken(theirs, part, self._peer.count, "points", peer)
            same = np.take(mine, equal(peer, np.ascontiguousarray(mine[:, :SHORT]), others), axis=0)
            places = np.ascontiguousarray(same[:, SHORT:])
            found.add(places, (places.view(np.int64)[:, 0] * PARTS // max(1, self.count)).astype(np.uint8))
        return filed(self._folder / "positions", (np.sort(each.view(np.int64)[:, 0]) for each in found))

    def _sent(self, start: int, size: int) -> Iterator[Records]:
        """Hashes and their places, in the order in which they are sent, so many at a time."""
        yield from _read(self._order, _HASH + _PLACE, start, self.count, size)


class _Products:
    """Shortened products in a file, in whole chunks: one that a kill cut short was not used, and is cut off."""

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self.count = _whole(path, most)
        self._lock = threading.Lock()
        with storing(path, "opened"):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.ftruncate(self._fd, self.count * SHORT)

    def add(self, products: Points) -> None:
        """They are on the disk when this returns."""
        with self._lock:
            if self._fd < 0:
                raise LinkError("the link was given up meanwhile")
            write_at(self._fd, self._path, [products.data], self.count * SHORT)
            sync_file(self._fd, self._path)
            self.count += len(products)

    def read(self, start: int, size: int) -> Iterator[Points]:
        """From this place on, so many at a time."""
        return _read(self._path, SHORT, start, self.count, size)

    def close(self) -> None:
        """Nothing is added any more."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


def _whole(path: Path, most: int) -> int:
    """How many products a file holds, in whole chunks."""
    count = path.stat().st_size // SHORT if path.exists() else 0
    return most if count >= most else count - count % CHUNK


def _read(path: Path, width: int, start: int, end: int, size: int) -> Iterator[Records]:
    """Records of a file, so many at a time."""
    for at in range(start, end, size):
        count = min(size, end - at)
        records = np.fromfile(path, np.uint8, count * width, offset=at * width)
        if len(records) < count * width:
            raise StorageError(f"{path} is shorter than it was: nothing else may write there; {_AGAIN}")
        yield records.reshape(-1, width)


def _taken(parts: Parts, part: int, count: int, field: str, peer: str) -> Records:
    """The records of a part; of honest products every part has about as many, and memory is for no more."""
    if parts.size(part) > 2 * count // PARTS + _SLACK:
        raise RefusedError(
            field,
            f"{parts.size(part)} of {count} products of {peer} are alike in a byte: it sent one point many times, or "
            "does not multiply",
        )
    return parts.take(part)


def _shuffled(folder: Path, hashes: Points, key: bytes) -> Path:
    """A file of all hashes with their places, in an order that the key draws: to a part by lot, and shuffled there."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    parts, path, size = Parts(folder, "lots", _HASH + _PLACE), folder / "order", 0
    for at in range(0, len(hashes), BLOCK):
        block = hashes[at : at + BLOCK]
        places = np.arange(at, at + len(block)).view(np.uint8).reshape(-1, _PLACE)
        lots = np.frombuffer(stream.update(bytes(len(block))), np.uint8)
        parts.add(np.concatenate([block, places], axis=1), lots)
        let_go(hashes)
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        for part in parts:
            lots = np.frombuffer(stream.update(bytes(8 * len(part))), np.uint64)
            size += write_at(fd, path, [np.take(part, np.argsort(lots), axis=0).data], size)
    return path
