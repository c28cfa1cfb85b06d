"""Noise that only the holder of a secret can know, and that is the same whenever the same step is asked for."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterator, Sequence
from typing import NoReturn

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError

__all__ = ["KeyedNoise"]

_BLOCK = 1 << 14  # pairs of normals at once: they stay in the cache, and torch computes so few in a single thread
_ZEROS = bytes(16 * _BLOCK)
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
    largest normal is 9.42, and it is 6.66 that 32 bits would give; what is beyond 9.42 has a probability of 5e-21.
    Numbers are computed on the CPU, in pieces so small that torch does not split them: they do not depend on the number
    of threads. They may differ in the last bit between processors of other kinds.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent standard normal numbers."""
        _known(dtype)
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        count = math.prod(shape)
        out = torch.empty(count + count % 2, dtype=exact)
        pairs = len(out) // 2
        width = 16 if exact == torch.float64 else 12
        buffer = torch.empty(width * min(pairs, _BLOCK) + _SLACK, dtype=torch.uint8)
        scratch = torch.empty(min(pairs, _BLOCK), dtype=torch.float64)
        for start, size in _pieces(pairs):
            raw = self._fill(buffer, width * size)
            radius = _radius(raw[: 8 * size].view(torch.int64), scratch[:size], exact)
            turns = raw[8 * size :].view(torch.int64 if exact == torch.float64 else torch.int32)
            angle = turns.to(exact).mul_(2 * math.pi / 2 ** (8 * turns.element_size()))  # from -pi to pi
            both = out[2 * start : 2 * (start + size)]
            torch.mul(angle.cos(), radius, out=both[:size])
            torch.mul(angle.sin_(), radius, out=both[size:])
        return out[:count].reshape(tuple(shape)).to(device=device, dtype=dtype)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent numbers, uniform on the multiples of 2^-bits in [0, 1), with the bits that the dtype holds."""
        bits = _known(dtype)
        whole = torch.int64 if bits > 31 else torch.int32
        count = math.prod(shape)
        out = torch.empty(count, dtype=dtype)
        buffer = torch.empty(whole.itemsize * min(count, _BLOCK) + _SLACK, dtype=torch.uint8)
        for start, size in _pieces(count):
            raw = self._fill(buffer, whole.itemsize * size).view(whole)
            out[start : start + size].copy_(raw.bitwise_and_(2**bits - 1)).mul_(2.0**-bits)
        return out.reshape(tuple(shape)).to(device)

    def _fill(self, buffer: Tensor, count: int) -> Tensor:
        """The next bytes of the key stream, in the beginning of the buffer."""
        self._cipher.update_into(memoryview(_ZEROS)[:count], buffer[: count + _SLACK].numpy().data)
        return buffer[:count]


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    return ((start, min(_BLOCK, count - start)) for start in range(0, count, _BLOCK))


def _radius(raw: Tensor, scratch: Tensor, dtype: torch.dtype) -> Tensor:
    """The length of a pair of normals: sqrt(-2 log u), u from 2^-64 to 1, so it is always finite.

    The logarithm is taken in float64 at both ends: near 0 it makes the tail, near 1 the smallest radii.
    """
    scratch.copy_(raw.bitwise_and_(2**63 - 1)).mul_(2.0**-63).add_(2.0**-64)
    return scratch.log_().mul_(-2).to(dtype).sqrt_()


def _known(dtype: torch.dtype) -> int:
    if dtype not in _BITS:
        raise UsageError(f"noise of {dtype}: it is drawn as one of {', '.join(str(each) for each in _BITS)}")
    return _BITS[dtype]
