"""libsecp256k1, as the `coincurve` package brings it (the extra `[sums]`): what it was compiled to, and one context."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError, UsageError

ENCODED = 33  # bytes of a point on the wire: SEC 1, compressed
POINT = 64  # bytes of a point in the library's own form, which never leaves the process
_COMPRESSED = 258  # SECP256K1_EC_COMPRESSED
_BASE_TWICE = bytes.fromhex("02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5")


class Library:
    """The library's functions, and pointers to arrays as it takes them."""

    def __init__(self) -> None:
        try:
            from coincurve._libsecp256k1 import ffi, lib
        except ImportError as error:
            raise UsageError(
                "hidden sums compute with libsecp256k1, and coincurve is not installed: pip install 'tacit[sums]'"
            ) from error
        self.ffi: Any = ffi
        self.lib: Any = lib
        lib.secp256k1_selftest()
        self.context = lib.secp256k1_context_create(1)

    def points(self, rows: NDArray[np.uint8]) -> Any:
        """A pointer to the first of some points; the array must outlive it."""
        return self.ffi.cast("secp256k1_pubkey *", rows.ctypes.data)

    def pointers(self, addresses: NDArray[np.uint64]) -> Any:
        """A pointer to addresses of points, as the library takes them."""
        return self.ffi.cast("const secp256k1_pubkey * const *", addresses.ctypes.data)

    def bytes(self, rows: NDArray[np.uint8]) -> Any:
        """A pointer to the first byte of an array."""
        return self.ffi.cast("unsigned char *", rows.ctypes.data)


@functools.cache
def library() -> Library:
    """The library, loaded once; trusted after it gave the right answer to a question whose answer is known (2 G)."""
    loaded = Library()
    twice = np.zeros((1, POINT), np.uint8)
    made = loaded.lib.secp256k1_ec_pubkey_create(loaded.context, loaded.points(twice), (2).to_bytes(32, "big"))
    if not made or encoded(loaded, twice).tobytes() != _BASE_TWICE:
        raise TacitError("libsecp256k1 doubled the base point wrongly and is not trusted: reinstall coincurve")
    return loaded


def encoded(library: Library, points: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Points of the library as bytes of the wire; none may be the neutral element.  (count, 33)"""
    rows = np.ascontiguousarray(points)
    result = np.zeros((len(rows), ENCODED), np.uint8)
    target, source = library.bytes(result), library.points(rows)
    size = library.ffi.new("size_t *")
    serialize, context = library.lib.secp256k1_ec_pubkey_serialize, library.context
    for place in range(len(rows)):
        size[0] = ENCODED
        serialize(context, target + ENCODED * place, size, source + place, _COMPRESSED)
    return result
