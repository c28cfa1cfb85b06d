"""Noise that only the holder of a secret can know, and that is the same whenever the same step is asked for."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError

_PIECE = 1 << 14  # pairs of normals at once
_ZEROS = memoryview(bytes(16 * _PIECE))
_SLACK = 15  # what `update_into` wants behind its output
_BITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}  # of a number below 1


class _Secret:
    """Holds a key: it is not shown, and it can't be copied or pickled into a checkpoint or a log."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')}, key hidden>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} holds a key: it can't be copied or pickled; make it again from the secret")


class KeyedNoise(_Secret):
    """Noise for each step from a stream cipher, keyed by HMAC-SHA256 of a secret, the purpose, the step and a context.

    A step that is computed again after a crash gets the same noise; a step in any other context gets noise that has
    nothing to do with it, so that nobody can average it away by asking again with a changed request.

    Args:
        secret: at least 32 random bytes that never leave their owner.
        purpose: what the noise is for; different purposes have unrelated noise under one secret.

    >>> noise = KeyedNoise(bytes(range(32)), "doctest")
    >>> draw = lambda *context: noise.at(7, *context).normal((3,), dtype=torch.float64, device=torch.device("cpu"))
    >>> torch.equal(draw(b"request"), draw(b"request")), torch.equal(draw(b"request"), draw(b"another"))
    (True, False)
    """

    def __init__(self, secret: bytes, purpose: str) -> None:
        if not isinstance(secret, bytes) or len(secret) < 32:
            what = f"{len(secret)} bytes" if isinstance(secret, bytes) else f"a {type(secret).__name__}"
            raise UsageError(f"KeyedNoise: the secret is {what}: pass at least 32 random bytes")
        self._mac = hmac.new(secret, b"tacit noise 1" + _framed(purpose.encode()), hashlib.sha256)

    def at(self, step: int, *context: bytes) -> NoiseSource:
        """The source of this step in this context; asked again, it begins again at the same bytes."""
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 1 << 63:
            raise UsageError(f"KeyedNoise.at({step!r}): a step is a whole number from 0 on")
        mac = self._mac.copy()
        mac.update(step.to_bytes(8, "big") + b"".join(map(_framed, context)))
        return _Stream(mac.digest())


def _framed(part: bytes) -> bytes:
    """A part with its length before it, so that no two lists of parts give the same bytes."""
    return len(part).to_bytes(8, "big") + part


class _Stream(_Secret):
    """Normal and uniform numbers from the key stream of AES-256 in counter mode; each call goes on where one ended.

    AES takes two thirds of the time of ChaCha20 here. Normals are made by Box and Muller's method, a radius of 63
    random bits, taken through a logarithm in float64, with an angle of 32 bits (64 for float64 normals). So the
    largest normal is 9.42, where 32 bits would give 6.66; what is beyond 9.42 has a probability of 5e-21.

    Numbers are computed by numpy on the CPU, always in one thread, in pieces that stay in the cache: 1024 x 128 float32
    normals take 0.9 of the time of `torch.randn`. They are the same for any number of threads; between processors
    of other kinds they may differ in the last bit.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent standard normal numbers."""
        kind, angles, _ = _kinds(dtype)
        count = math.prod(shape)
        pairs = (count + 1) // 2
        out = np.empty(2 * pairs, kind)
        width, most = 8 + angles.itemsize, min(pairs, _PIECE)
        buffer = np.empty(width * most + _SLACK, np.uint8)
        logs, radii, turns = np.empty(most, np.float64), np.empty(most, kind), np.empty(most, kind)
        for start in range(0, pairs, _PIECE):
            size = min(_PIECE, pairs - start)
            raw = self._fill(buffer, width * size)
            radius = _radius(raw[: 8 * size].view(np.int64), logs[:size], radii[:size])
            turn = turns[:size]
            turn[...] = raw[8 * size :].view(angles)
            turn *= kind.type(2 * math.pi / 2 ** (8 * angles.itemsize))  # from -pi to pi
            both = out[2 * start : 2 * (start + size)].reshape(2, size)
            np.cos(turn, out=both[0])
            np.sin(turn, out=both[1])
            both *= radius
        return torch.from_numpy(out)[:count].reshape(tuple(shape)).to(device=device, dtype=dtype)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent numbers, uniform on the multiples of 2^-bits in [0, 1), with the bits that the dtype holds."""
        kind, words, bits = _kinds(dtype)
        count = math.prod(shape)
        out = np.empty(count, kind)
        buffer = np.empty(words.itemsize * min(count, _PIECE) + _SLACK, np.uint8)
        for start in range(0, count, _PIECE):
            piece = out[start : start + _PIECE]
            raw = self._fill(buffer, words.itemsize * len(piece)).view(words)
            piece[...] = np.bitwise_and(raw, words.type(2**bits - 1), out=raw)
            piece *= kind.type(2.0**-bits)
        return torch.from_numpy(out).reshape(tuple(shape)).to(device=device, dtype=dtype)

    def _fill(self, buffer: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """The next bytes of the key stream, in the beginning of the buffer."""
        self._cipher.update_into(_ZEROS[:count], buffer[: count + _SLACK].data)
        return buffer[:count]


def _radius(raw: NDArray[np.int64], logs: NDArray[np.float64], radii: NDArray[Any]) -> NDArray[Any]:
    """The length of a pair of normals: sqrt(-2 log u), u from 2^-64 to 1, so it is always finite.

    The logarithm is taken in float64 for the sake of both ends: near 0 lies the tail, near 1 the smallest radii.
    """
    np.bitwise_and(raw, 2**63 - 1, out=raw)
    logs[...] = raw
    logs += 0.5
    logs *= 2.0**-63
    radii[...] = np.log(logs, out=logs)
    radii *= -2
    np.sqrt(radii, out=radii)
    return radii


def _kinds(dtype: torch.dtype) -> tuple[np.dtype[Any], np.dtype[Any], int]:
    """What numbers of a dtype are computed in, the words of the key stream for one of them, and its bits below 1."""
    if dtype not in _BITS:
        raise UsageError(f"noise of {dtype}: it is drawn as one of {', '.join(str(each) for each in _BITS)}")
    if dtype == torch.float64:
        return np.dtype(np.float64), np.dtype(np.int64), _BITS[dtype]
    return np.dtype(np.float32), np.dtype(np.int32), _BITS[dtype]
