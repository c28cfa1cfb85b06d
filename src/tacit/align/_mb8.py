"""X25519 eight at a time, from the `crypto_mb` library that the extra `[fastpsi]` brings.

It is trusted only after it has given the right answer to a question whose answer is known. Nothing of numpy or torch is
imported here: worker processes load this file and should start at once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

_WIDTH = 8
_SIZE = 32
_BASE = (9).to_bytes(_SIZE, "little")
# What the library was linked with: found by name once loaded, since the loader does not look beside it.
_RUNTIME = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so")
# RFC 7748, section 5.2: a scalar, a point and their product.
_SCALAR = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
_POINT = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
_PRODUCT = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")

_Eight = ctypes.c_void_p * _WIDTH


class _UnavailableError(Exception):
    """The library can't be used here; the text says why, and what would help."""


def unavailable() -> str | None:
    """Why the library can't be used on this machine, or None where it can."""
    try:
        _load()
    except _UnavailableError as reason:
        return str(reason)
    return None


def multiplier() -> Callable[[bytes, bytes], bytearray]:
    """The function that multiplies points (32 bytes each, joined) by a key; ask `unavailable` first."""
    return functools.partial(_multiply, _load())


@functools.cache
def _load() -> ctypes.CDLL:
    path = _library()
    try:
        for name in _RUNTIME:
            if path.with_name(name).exists():
                ctypes.CDLL(str(path.with_name(name)), mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise _UnavailableError(
            f"{path.name} does not load ({error}): pip install intel-cmplr-lib-rt, and have OpenSSL 3 on the machine"
        ) from error
    library.mbx_is_crypto_mb_applicable.argtypes = [ctypes.c_uint64]
    library.mbx_x25519_mb8.argtypes = [_Eight, _Eight, _Eight]
    library.mbx_x25519_mb8.restype = ctypes.c_uint32
    if not library.mbx_is_crypto_mb_applicable(0):
        raise _UnavailableError("this processor has no AVX-512 IFMA instructions")
    if _multiply(library, _POINT + _BASE * 8, _SCALAR)[:_SIZE] != _PRODUCT:
        raise _UnavailableError(f"{path.name} multiplied the test vector of RFC 7748 wrongly and is not trusted")
    return library


def _library() -> Path:
    try:
        package = metadata.distribution("ipp-crypto")
    except metadata.PackageNotFoundError as error:
        raise _UnavailableError("ipp-crypto is not installed: pip install 'tacit[fastpsi]'") from error
    for file in package.files or ():
        if file.name == "libcrypto_mb.so":
            return Path(package.locate_file(file)).resolve()  # type: ignore[arg-type]
    raise _UnavailableError("ipp-crypto is installed without libcrypto_mb.so: install its wheel for Linux")


def _multiply(library: ctypes.CDLL, points: bytes, key: bytes) -> bytearray:
    """Products of all points with a key. The library clamps it and takes any u, as X25519 does; 0 comes out as 0."""
    padding = -(len(points) // _SIZE) % _WIDTH
    source = ctypes.create_string_buffer(points + _BASE * padding, len(points) + _SIZE * padding)
    result = bytearray(len(source))
    target = (ctypes.c_char * len(result)).from_buffer(result)
    secret = ctypes.create_string_buffer(key, _SIZE)
    keys = _Eight(*[ctypes.addressof(secret)] * _WIDTH)
    points_at, result_at = ctypes.addressof(source), ctypes.addressof(target)
    for eight in range(0, len(result), _SIZE * _WIDTH):
        places = range(eight, eight + _SIZE * _WIDTH, _SIZE)
        targets, sources = _Eight(*[result_at + at for at in places]), _Eight(*[points_at + at for at in places])
        library.mbx_x25519_mb8(targets, keys, sources)
    ctypes.memset(secret, 0, _SIZE)
    del target  # the array may only be cut while nothing points into it
    del result[len(points) :]
    return result
