"""Which rows are in which batch: a matter of a seed, so that no party chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.errors import UsageError

__all__ = ["batches", "digest"]


def batches(count: int, size: int, *, epoch: int, seed: int) -> Iterator[Tensor]:
    """The batches of one epoch, all of one size; what is left over sits this epoch out and is shuffled in again.

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
    generator = torch.Generator().manual_seed(_mix(seed, epoch))
    order = torch.randperm(count, generator=generator)
    return iter(order[: count - count % size].split(size))


def digest(rows: Tensor) -> bytes:
    """A digest of the row ids of a batch and their order; it does not depend on the width of the integers."""
    return hashlib.blake2b(rows.to("cpu", torch.int64).numpy().tobytes(), digest_size=16).digest()


def _mix(seed: int, epoch: int) -> int:
    """One number for a pair of numbers, without the overlaps of a sum."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{epoch}".encode(), digest_size=7).digest(), "big")
