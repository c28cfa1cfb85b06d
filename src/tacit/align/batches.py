"""Which rows are in which batch: a matter of a seed, so that no party chooses, and of no memory that grows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import UsageError

__all__ = ["batches", "digest", "scramble", "shuffled"]

_BLOCK = 1 << 16  # places that are worked out at a time
_ROUNDS = 8
_SMALL = 10
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # what splitmix64 adds before it mixes


def batches(count: int, size: int, *, epoch: int, seed: int, first: int = 0) -> Iterator[Tensor]:
    """The batches of one epoch, all of one size; what is left over sits this epoch out and is shuffled in again.

    Args:
        count: the number of rows.
        size: rows in a batch.
        epoch: counted from 0; every epoch has its own order.
        seed: of the whole run.
        first: the batch to begin with, for a run that goes on in the middle of an epoch.

    >>> [batch.tolist() for batch in batches(5, 2, epoch=0, seed=1)] == [
    ...     batch.tolist() for batch in batches(5, 2, epoch=0, seed=1)
    ... ]
    True
    >>> len(list(batches(5, 2, epoch=0, seed=1)))
    2
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= count:
        raise UsageError(
            f"batch_size = {size!r} does not fit {count} rows: choose a whole number between 1 and {count}"
        )
    return _batches(count, size, f"{seed}:{epoch}", first)


def _batches(count: int, size: int, key: str, first: int) -> Iterator[Tensor]:
    end = count - count % size
    block = max(1, _BLOCK // size) * size
    for start in range(first * size, end, block):
        yield from shuffled(count, start, min(start + block, end), key=key).split(size)


def shuffled(count: int, start: int, stop: int, *, key: str) -> Tensor:
    """The rows at some places of a random order of `range(count)`, without the order itself ever being held.

    A Feistel network is a bijection of numbers of n bits whatever its round function is; where it leaves `range(count)`
    it is applied again until it is back inside. The order is the same on every machine and with every version of every
    library, since it is made of whole numbers alone.

    >>> sorted(shuffled(10, 0, 10, key="any").tolist()) == list(range(10))
    True
    """
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest(), dtype="<u8")
    bits = (count - 1).bit_length()
    if bits < _SMALL:  # so few bits have too few networks for every order to be likely: sort by numbers of more bits
        numbers = _feistel(np.arange(count, dtype=np.uint64), 2 * _SMALL, keys)
        return torch.from_numpy(np.argsort(numbers)[start:stop])
    rows = _feistel(np.arange(start, stop, dtype=np.uint64), bits, keys)
    outside = np.flatnonzero(rows >= count)
    while len(outside):
        rows[outside] = _feistel(rows[outside], bits, keys)
        outside = outside[rows[outside] >= count]
    return torch.from_numpy(rows.astype(np.int64))


def _feistel(numbers: NDArray[np.uint64], bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One pass of the network; the halves differ by one bit where `bits` is odd, and change places at each round."""
    low_bits, high_bits = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    high, low = numbers >> low_bits, numbers & _ones(low_bits)
    for key in keys:
        high, low = low, high ^ (_mixed(low + key) & _ones(high_bits))
        low_bits, high_bits = high_bits, low_bits
    return (high << low_bits) | low


def _ones(bits: np.uint64) -> np.uint64:
    return np.uint64((1 << int(bits)) - 1)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of a word spread over all of its bits, as the finish of splitmix64 does it."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def scramble(ids: NDArray[np.integer[Any]], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each id that depends on nothing but the id and the seed.

    It is the same on every machine and with every version of every library, so what it chooses stays chosen.

    >>> scramble(np.array([7, 8, 7]), seed=0).round(4).tolist()
    [0.3935, 0.8927, 0.3935]
    """
    key = _mixed(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)
    return (_mixed((ids.astype(np.uint64) ^ key) + _GOLDEN) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def digest(rows: Tensor) -> bytes:
    """A digest of the row ids of a batch and their order; it does not depend on the width of the integers."""
    return hashlib.blake2b(rows.to("cpu", torch.int64).numpy().tobytes(), digest_size=16).digest()
