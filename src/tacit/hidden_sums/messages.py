"""What both sides agreed on, and their messages as bytes, whose length depends on nothing but that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ProtocolError, UsageError


class _Record(Protocol):
    @staticmethod
    def shapes(rows: int) -> Mapping[str, tuple[int, ...]]: ...


@dataclass(frozen=True)
class Agreement:
    """What both sides know before the first message; every key, proof and random number is bound to it.

    Attributes:
        contract: the contract's digest.
        run: its run, over this alignment.
        mechanism: the noise, in words that both sides have the same.
        rows: aligned rows that are trained on, in an order that both sides share.
        group: rows of a group.
        partitions: how many are answered, once each.
        reach: the noise is never further from 0 than this: an answer beyond ends the run.
        units: whether several rows may belong to one unit; of each unit one row takes part in a partition.
    """

    contract: str
    run: str
    mechanism: str
    rows: int
    group: int
    partitions: int
    reach: int
    units: bool = False

    def __post_init__(self) -> None:
        if min(self.rows, self.partitions, self.reach) < 1 or not 2 <= self.group <= self.rows:
            raise UsageError(
                f"hidden sums over {self.partitions} partitions of {self.rows} rows in groups of {self.group}: there "
                "must be a partition, and rows for a group of 2 or more"
            )

    def context(self, *parts: object) -> bytes:
        """That proofs and keys are bound to: all that was agreed on, and what they are for."""
        values = (*(getattr(self, name) for name in self.__dataclass_fields__), *parts)
        encoded = [str(value).encode() for value in values]
        return b"tacit hidden sums 1" + b"".join(len(part).to_bytes(8, "big") + part for part in encoded)

    def check_partition(self, partition: int) -> None:
        """Refuse the number of a partition that was not agreed on."""
        if type(partition) is not int or not 0 <= partition < self.partitions:
            raise ProtocolError(f"partition {str(partition)[:20]}: {self.partitions} are agreed, counted from 0")


def masks_shape(rows: int, partitions: int) -> dict[str, tuple[int, ...]]:
    """What follows the encrypted labels where there are units: a bit for each row that takes part in a partition."""
    return {"masks": (partitions, -(-rows // 8))}


def bytes_of(record: _Record, rows: int) -> bytes:
    """A record of arrays, one array after the other."""
    return b"".join(np.ascontiguousarray(getattr(record, name)).tobytes() for name in record.shapes(rows))


def size_of(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many bytes a record has."""
    return sum(int(np.prod(shape)) for shape in shapes.values())


def arrays_of(shapes: Mapping[str, tuple[int, ...]], raw: bytes) -> dict[str, NDArray[np.uint8]]:
    """The arrays of a record from bytes of a peer.

    Raises:
        ProtocolError: they have another length.
    """
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    if len(raw) != size_of(shapes):
        raise ProtocolError(f"a message of {len(raw)} bytes, where {size_of(shapes)} were agreed on")
    return dict(_cut(shapes, sizes, np.frombuffer(raw, np.uint8)))


def _cut(shapes: Mapping[str, Any], sizes: Mapping[str, int], raw: NDArray[np.uint8]) -> Iterator[tuple[str, Any]]:
    start = 0
    for name, shape in shapes.items():
        yield name, raw[start : start + sizes[name]].reshape(shape)
        start += sizes[name]
