"""A label's coins: the same whenever they are asked for, nested over limits, and exact, without any float.

A row's stream of random words comes from a keyed hash. It visits positions: the first is uniform below 2**64, each next
one uniform below the one before. At every position the value is redrawn. A coin that keeps labels with probability
keep/2**64 sends what was drawn last at a position of at least `keep`, or the label itself where even the first position
is below. Whether a position is visited is independent of all others (records, Renyi): what a stronger limit sends is
what a weaker one sends, or a later redraw that depends on nothing else. One uniform number for all limits would be
wrong: pairs come up that only one label can have.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import LabelsError, UsageError
from tacit.labels.flips import Flips
from tacit.labels.numbers import NumberFlips
from tacit.labels.records import in_order

# bytes of a row's key: a keyed hash of the label party's own id of the row, and of its place within its unit
KEY_SIZE = 16
_VERSION = b"tacit coins 1"
_WORDS = 8  # in a block of BLAKE2b
_SLICE = 1 << 16  # rows at a time

Words = NDArray[np.uint64]


class Coins:
    """The coins of one label column under one secret of at least 32 bytes; another definition or epoch has other coins.

    >>> coins = Coins(bytes(range(32)), column="late", definition="over 15 minutes", epoch=0)
    >>> from tacit.labels.flips import flips
    >>> keys = np.arange(64, dtype=np.uint8).reshape(4, 16)
    >>> sent = coins.draw(flips(0.6), keys, np.array([0, 1, 1, -1]))
    >>> bool((sent == coins.draw(flips(0.6), keys, np.array([0, 1, 1, -1]))).all()), sent.dtype
    (True, dtype('uint8'))
    """

    def __init__(self, secret: bytes, *, column: str, definition: str, epoch: int) -> None:
        if not isinstance(secret, bytes) or len(secret) < 32:
            raise UsageError("Coins: the secret is too short: pass at least 32 random bytes")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 63:
            raise UsageError(f"Coins: epoch = {epoch!r}: a whole number from 0 on")
        self._key = hashlib.sha256(secret).digest()
        self._context = (_VERSION, column.encode(), definition.encode(), epoch.to_bytes(8, "little"))

    def __repr__(self) -> str:
        return "<Coins, key hidden>"

    def draw(self, mechanism: Flips | NumberFlips, keys: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[Any]:
        """What is sent for each row, in order: uint8 for two classes, int16 for more, and for outputs of numbers.

        A row without a label, -1, is sent as if its label had been drawn like a redraw, by a word of its own: over all
        limits it looks like a labelled row, so even whether there is a label is within the bound. No two keys
        (rows, 16) may be the same: they would have the same coins.
        """
        labels = _checked_labels(labels, mechanism.classes)
        keys = _checked_keys(keys, len(labels))
        bits = isinstance(mechanism, Flips) and mechanism.classes == 2
        sent = np.empty(len(labels), np.uint8 if bits else np.int16)
        for start in range(0, len(labels), _SLICE):
            part = slice(start, start + _SLICE)
            stream, known = _Stream(self._base(mechanism, b"events"), keys[part]), labels[part].copy()
            missing = np.flatnonzero(known < 0)  # for these a label is drawn
            blank = _Stream(self._base(mechanism, b"no label"), keys[part][missing])
            known[missing] = _redraw(mechanism, blank, np.arange(len(missing)))
            sent[part] = _sent(mechanism, stream, known)
        return sent

    def _base(self, mechanism: Flips | NumberFlips, purpose: bytes) -> Any:
        base = hashlib.blake2b(key=self._key)
        for part in (*self._context, mechanism.series.encode(), purpose):
            base.update(len(part).to_bytes(8, "little") + part)
        return base


def counted_keys(numbers: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
    """Keys of rows that are known by their numbers alone, where all of it stays in one process.  (rows, 16)"""
    keys = np.zeros((len(numbers), KEY_SIZE), np.uint8)
    keys[:, :8] = np.ascontiguousarray(numbers.astype("<u8"))[:, None].view(np.uint8)
    return keys


class _Stream:
    """Each row's own words, in order: eight from every block, blocks counted from 0."""

    def __init__(self, base: Any, keys: NDArray[np.uint8]) -> None:
        self._base, self._raw = base, keys.tobytes()
        self._words = np.empty((len(keys), _WORDS), np.uint64)
        self._next = np.zeros(len(keys), np.int64)  # how many words each row has had

    def take(self, rows: NDArray[np.int64]) -> Words:
        """The next word of each of these rows."""
        places = self._next[rows]
        used = rows[places % _WORDS == 0]
        if len(used):
            self._words[used] = self._blocks(used)
        self._next[rows] += 1
        return self._words[rows, places % _WORDS]

    def below(self, rows: NDArray[np.int64], bounds: Words) -> Words:
        """Uniform below each row's bound, exactly: words of the incomplete last stretch are thrown away."""
        found = np.empty(len(rows), np.uint64)
        left = np.arange(len(rows))
        while len(left):
            bound = bounds[left]
            words = self.take(rows[left])
            good = words <= ~((~bound + np.uint64(1)) % bound)  # 2**64 - 1 less the rest of 2**64 by the bound
            found[left[good]] = words[good] % bound[good]
            left = left[~good]
        return found

    def _blocks(self, rows: NDArray[np.int64]) -> Words:
        raw, copy, digests = self._raw, self._base.copy, []
        for row, block in zip(rows.tolist(), (self._next[rows] // _WORDS).tolist(), strict=True):
            hashed = copy()
            hashed.update(raw[row * KEY_SIZE : (row + 1) * KEY_SIZE] + block.to_bytes(8, "little"))
            digests.append(hashed.digest())
        return np.frombuffer(b"".join(digests), "<u8").reshape(-1, _WORDS).astype(np.uint64)


def _sent(mechanism: Flips | NumberFlips, stream: _Stream, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """One word against the thresholds of the row's cell; of a coin what was drawn last that counts, or the label."""
    value, rows = labels.copy(), np.arange(len(labels))
    positions = stream.take(rows)
    if isinstance(mechanism, NumberFlips):
        for cell in np.unique(labels):
            here = labels == cell
            value[here] = np.searchsorted(mechanism.thresholds[cell], positions[here], side="right")
        return value
    while True:
        counts = positions >= np.uint64(mechanism.keep)
        rows, positions = rows[counts], positions[counts]
        if not len(rows):
            return value
        value[rows] = _redraw(mechanism, stream, rows)
        positions = stream.below(rows, positions)


def _redraw(mechanism: Flips | NumberFlips, stream: _Stream, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A value that depends on no label; for numbers a cell of the prior."""
    if isinstance(mechanism, NumberFlips):
        return np.searchsorted(mechanism.prior_thresholds, stream.take(rows), side="right").astype(np.int64)
    if mechanism.classes == 2:
        return (stream.take(rows) < np.uint64(mechanism.ones)).astype(np.int64)
    return stream.below(rows, np.full(len(rows), mechanism.classes, np.uint64)).astype(np.int64)


def _checked_labels(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.signedinteger):
        raise LabelsError(f"labels are {labels.dtype} {labels.shape}: pass one signed whole number for each row")
    wrong = (labels < -1) | (labels >= classes)
    if wrong.any():
        raise LabelsError(
            f"{int(wrong.sum())} labels, the first in row {int(wrong.argmax())}, are none of the {classes} classes: "
            f"classes are counted from 0, and -1 says that there is no label"
        )
    return labels.astype(np.int64)


def _checked_keys(keys: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    if not isinstance(keys, np.ndarray) or keys.dtype != np.uint8 or keys.shape != (rows, KEY_SIZE):
        raise UsageError(f"keys are to be uint8 ({rows}, {KEY_SIZE}), one for each label")
    in_order(keys)  # an error where two are the same
    return np.ascontiguousarray(keys)
