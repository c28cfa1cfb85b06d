"""What both sides agreed on, and their messages as bytes, whose length depends on nothing but that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ProtocolError, UsageError
from tacit.hidden_sums.encryption import EncryptedLabels
from tacit.hidden_sums.shuffle import Shuffle


@dataclass(frozen=True)
class Agreement:
    """What both sides know before the first message; every key, proof and random number is bound to it."""

    contract: str  # the contract's digest
    run: str  # its run, over this alignment
    mechanism: str  # the noise, in words that both sides have the same
    rows: int  # aligned rows that are trained on, in an order that both sides share
    group: int  # rows of a group
    partitions: int  # how many are answered, once each
    reach: int  # the noise is never further from 0 than this: an answer beyond ends the run
    units: bool = False  # whether several rows may belong to one unit; of each unit one row takes part in a partition

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


def bytes_of(record: EncryptedLabels | Shuffle) -> bytes:
    """A record of arrays, one array after the other, in the order of its fields, which is that of its `shapes`."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in vars(record).values())


def size_of(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many bytes a record has."""
    return sum(map(math.prod, shapes.values()))


def arrays_of(shapes: Mapping[str, tuple[int, ...]], raw: bytes) -> dict[str, NDArray[np.uint8]]:
    """The arrays of a record from bytes of a peer; a `ProtocolError` where they have another length."""
    if len(raw) != size_of(shapes):
        raise ProtocolError(f"a message of {len(raw)} bytes, where {size_of(shapes)} were agreed on")
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(np.frombuffer(raw, np.uint8), ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
