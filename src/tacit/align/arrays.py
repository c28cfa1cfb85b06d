"""Files that are arrays: written as one, mapped into memory, and read block by block where they are larger than it."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.disk import storing

_PIECE = 1 << 16  # rows that are copied at once
_DTYPES = {"int64": torch.int64, "float32": torch.float32}
# Not in the module mmap. Without it the kernel may refuse a private mapping that is larger than the machine's memory.
_MAP_NORESERVE = 0x4000


def mapped(path: Path, dtype: str, shape: list[int]) -> Tensor:
    """A whole file as a tensor; writing to it leaves the file as it is. One of another size is a ValueError."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size:
            raise ValueError(f"{path} has not {size} bytes")
        if not size:
            return torch.empty(shape, dtype=_DTYPES[dtype])
        flags, access = mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        return torch.frombuffer(mmap.mmap(file.fileno(), size, flags, access), dtype=_DTYPES[dtype]).reshape(shape)


def numbers(path: Path, dtype: str) -> NDArray[Any]:
    """A line of numbers that `numpy.save` wrote, read from disk as they are used; anything else is a ValueError.

    `numpy.load` has Python's parser read the header, and in Python before 3.11.9 two threads that do so at the same
    moment may end in a SystemError.
    """
    kind = np.dtype(dtype)
    with path.open("rb") as file:
        head = file.read(10)
        start = 10 + int.from_bytes(head[8:10], "little")
        header = file.read(start - 10).decode("latin-1").split("'shape'")[0]
        size = os.fstat(file.fileno()).st_size - start
    wanted = f"{{'descr': '{kind.newbyteorder('<').str}', 'fortran_order': False, "
    if head[:8] != b"\x93NUMPY\x01\x00" or header != wanted or size < 0 or size % kind.itemsize:
        raise ValueError(f"it is no line of {kind} as numpy saves it")
    if not size:
        return np.empty(0, kind)
    return np.memmap(path, kind, "r", offset=start, shape=(size // kind.itemsize,))


def new_file(path: Path, dtype: str, shape: list[int]) -> NDArray[Any]:
    """A file of zeros to write to as an array; its room on the disk is taken now, while an error can still be told."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with storing(path), open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "rb+") as file:
        if not size:
            return np.empty(shape, dtype)
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "r+", shape=tuple(shape))


def let_go(array: NDArray[Any]) -> None:
    """Take what was read of a file, or written to a new one, out of this process's memory; the file keeps it."""
    mapping: object = array.base
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Copies of some rows at a time: those of a file leave the memory again."""
    for start in range(0, len(array), _PIECE):
        yield np.array(array[start : start + _PIECE])
        let_go(array)


def places_in(path: Path, rows: NDArray[np.int64], total: int | None = None) -> NDArray[np.int64]:
    """For each of so many rows of a table its place in `rows`, counted from 1, in a new file; 0 where it has none.

    Row numbers below 0 have no place; without a total the file ends with the last row that has one.
    """
    if total is None:
        total = 1 + max((int(some.max(initial=-1)) for some in pieces(rows)), default=-1)
    places: NDArray[np.int64] = new_file(path, "int64", [total])
    start = 0
    for some in pieces(rows):
        there = np.flatnonzero(some >= 0)
        places[some[there]] = start + 1 + there
        let_go(places)
        start += len(some)
    return places
