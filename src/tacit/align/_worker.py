"""A process that hashes and multiplies: requests come on standard input, answers go to standard output.

A request is a header and its points or hashes; the answer is one byte and the products, 32 bytes for each. The byte is
0 where a product is not on the curve, and the products are then not told. The end of the input ends the process, so it
never outlives the one that started it.
"""

from __future__ import annotations

import signal
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

from tacit.align import _mb8, _x25519

Multiplier = Callable[[bytes, bytes], bytearray]
"""Function from points, 32 bytes each and joined, and a key to their products."""

HEADER = struct.Struct("<BII32s")  # what to do, length of the domain, length of the points or hashes, key
MULTIPLY = 0
BLIND = 1


def multiplier(kind: str) -> Multiplier:
    """The multiplication of an engine by its name."""
    return _mb8.multiplier() if kind == "mb8" else _x25519.multiply


def work(multiply: Multiplier, task: int, domain: bytes, block: bytes, key: bytes) -> bytearray | None:
    """Points times the key, or hashes made points and then times the key; None where one is not on the curve."""
    if task == BLIND:
        return multiply(bytes(_x25519.points(block, domain)), key)
    products = multiply(block, key)
    return products if _x25519.all_on_curve(bytes(products)) else None


def work_anywhere(task: int, domain: bytes, block: bytes, key: bytes) -> bytearray | None:
    """`work` with the fastest multiplication of the machine that it is called on: all give the same bytes."""
    return work(multiplier("cryptography" if _mb8.unavailable() else "mb8"), task, domain, block, key)


def serve(kind: str, source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until there are no more."""
    multiply = multiplier(kind)
    while header := source.read(HEADER.size):
        task, domain_size, size, key = HEADER.unpack(header)
        domain, block = source.read(domain_size), source.read(size)
        if len(block) < size:
            return
        products = work(multiply, task, domain, block, key)
        target.write(bytes([products is not None]) + (products or bytes(size)))
        target.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # control-C reaches the whole group; the parent decides
    serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
